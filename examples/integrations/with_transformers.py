"""Hugging Face transformers"""  # packages: transformers accelerate torch

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import rhocal
from rhocal.torch import Calibrated, calibrate

torch.manual_seed(0)
size = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
model = BertForSequenceClassification(BertConfig(**size, num_labels=3)).eval()
tokens, labels = torch.randint(0, 50, (300, 8)), torch.randint(0, 3, (300,))
val_loader = [{"input_ids": tokens[:200], "labels": labels[:200]}]

# begin
calibrated = calibrate(model, val_loader, "temperature")
logits = calibrated(input_ids=tokens).logits
calibrated.save_pretrained("folder")  # the model, and calibrator.safetensors beside it
again = Calibrated(
    BertForSequenceClassification.from_pretrained("folder"), rhocal.load("folder/calibrator.safetensors")
)
# end

torch.testing.assert_close(again.eval()(input_ids=tokens).logits, logits)
arguments = TrainingArguments("trainer", report_to=[], disable_tqdm=True, use_cpu=True)
rows = [{"input_ids": row, "labels": label} for row, label in zip(tokens[200:], labels[200:], strict=True)]
loss = Trainer(calibrated, arguments, eval_dataset=rows).evaluate()["eval_loss"]
want = torch.nn.functional.cross_entropy(logits[200:], labels[200:])
assert abs(loss - want) < 1e-4
