"""PyTorch"""  # packages: torch

import torch
from _tables import logits
from torch.utils.data import DataLoader, TensorDataset

import rhocal
import rhocal.torch

values, labels = (torch.tensor(array) for array in logits())
model = torch.nn.Linear(10, 10, bias=False)
torch.nn.init.eye_(model.weight)
val_loader = DataLoader(TensorDataset(values[:1000], labels[:1000]), batch_size=200)
images = values[1000:]

# begin
calibrated = rhocal.torch.calibrate(model, val_loader, "field")  # collects logits, fits, wraps the model
probs = calibrated.predict_proba(images)
module = calibrated.fitted.to_torch(output="probs")  # the calibrator alone: logits -> probabilities
# end

assert rhocal.metrics.ece(probs, labels[1000:]) < 0.5 * rhocal.metrics.ece(images.softmax(dim=1), labels[1000:])
torch.testing.assert_close(torch.jit.script(module)(model(images)), probs)
torch.testing.assert_close(torch.export.export(module, (images,)).module()(model(images)), probs)
