"""Write `samples_lists.jsonl` again: a random language model on a made-up task, through lm-evaluation-harness itself.

pip install lm_eval transformers accelerate; python experiments/lm_eval/make_samples.py FOLDER
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast  # type: ignore[import-not-found]

WORDS = [
    "apple", "river", "stone", "cloud", "violin", "ladder", "kettle", "harbor", "meadow", "candle", "Brücke", "naïve café",
]  # fmt: skip
TASK = """task: lists
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
"""


def questions(n: int = 80) -> list[dict[str, object]]:
    rng, rows = random.Random(0), []  # noqa: S311 - no secret
    for k in range(n):
        choices = rng.sample(WORDS, rng.choice([2, 3, 4, 4, 5]))
        question = f"Which word comes {rng.choice(['first', 'last'])} in list {k}?"
        answer, subject = rng.randrange(len(choices)), rng.choice(["lists", "words"])
        rows.append({"question": question, "choices": choices, "answer": answer, "subject": subject})
    return rows


def write_model(folder: Path, texts: list[str]) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<end>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    special = dict.fromkeys(("eos_token", "bos_token", "pad_token"), "<end>")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=len(fast), n_positions=128, n_embd=32, n_layer=2, n_head=2)).save_pretrained(
        folder
    )


def main(folder: Path) -> None:
    rows = questions()
    (folder / "tasks").mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "tasks" / "lists.yaml").write_text(TASK.replace("DATA", str(folder / "data.jsonl")), encoding="utf-8")
    write_model(folder / "model", lines)
    options = ["--model", "hf", "--model_args", f"pretrained={folder / 'model'}", "--tasks", "lists", "--log_samples"]
    paths = ["--include_path", str(folder / "tasks"), "--output_path", str(folder / "out")]
    subprocess.run(["lm_eval", *options, *paths, "--device", "cpu"], check=True)  # noqa: S603, S607 - as a user calls it


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
