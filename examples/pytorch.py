"""A PyTorch model calibrated from its validation loader, with a metric and a plain loop.

python examples/pytorch.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rhocal.torch
from rhocal.torch.metrics import CalibrationMetric

torch.manual_seed(0)
x = torch.randn(3000, 20)
y = (x[:, :4] + 1.5 * torch.randn(3000, 4)).argmax(dim=1)
train, tune, test = (TensorDataset(x[rows], y[rows]) for rows in (slice(500), slice(500, 1800), slice(1800, None)))

model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 4))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(40):
    for inputs, labels in DataLoader(train, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

# Collects the logits of held-out data, fits, and puts the calibrator behind the model.
calibrated = rhocal.torch.calibrate(model, DataLoader(tune, batch_size=256), "field")

for name, net in (("as trained", model), ("calibrated", calibrated)):
    metric = CalibrationMetric("ece", num_classes=4)
    net.eval()
    with torch.no_grad():
        for inputs, labels in DataLoader(test, batch_size=256):
            metric.update(net(inputs), labels)
    print(f"{name}: ECE {metric.compute():.4f}")

# The module alone: buffers in its state, any device, ready for torch.export.
module = calibrated.fitted.to_torch(output="probs")
program = torch.export.export(module, (torch.randn(2, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},))
print(
    f"exported: {len(list(program.graph.nodes))} nodes, probabilities of shape {tuple(module(torch.randn(5, 4)).shape)}"
)
