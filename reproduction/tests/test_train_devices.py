"""Training on other devices and on several: what a step waits for, resuming elsewhere, and two processes that act as one."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import PATIENCE
from rhocal.errors import FileError
from rhocal.evaluation.rows import read_rows
from rhocal_paper.campaign.scheduler import free_port
from rhocal_paper.train import Images, Model, Recipe, train
from rhocal_paper.train.batches import Normal, epoch_batches
from rhocal_paper.train.data.dataset import dataset
from rhocal_paper.train.distributed import Processes
from rhocal_paper.train.pretrained import load_weights
from rhocal_paper.train.worker import Worker, clip_weights

CPU = torch.device("cpu")
THIN = Model("resnet18", width=2)


def stripes(n=60, side=16, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    pixels = rng.integers(0, 120, (n, side, side, 3))
    for k, label in enumerate(labels):
        pixels[k, slice(0, side // 2) if label else slice(side // 2, side)] += 110
    return Images(pixels.astype(np.uint8), labels)


@pytest.fixture(scope="module")
def data():
    return dataset("stripes", stripes(), stripes(40, seed=1), ("low", "high"))


def worker(net, recipe, group=Processes(), n_train=60):  # noqa: B008 - frozen
    return Worker(net, recipe, CPU, THIN, group, 2, n_train)


def batches(data, recipe, epoch=0):
    images = data.train
    pixels, labels = torch.from_numpy(images.pixels), torch.from_numpy(images.labels)
    return epoch_batches(pixels, labels, Normal.of(images.pixels), recipe, epoch, mirror=True)


class HostReads(TorchDispatchMode):
    """Counts the operations that make the host wait for a value of the device."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("clip", ["gradient", "weights", "none"])
def test_the_host_reads_nothing_of_a_step(data, clip):
    """As many values are read in an epoch of two steps as in one of many."""
    counts = []
    for batch_size in (30, 4):
        torch.manual_seed(0)
        recipe = Recipe(batch_size=batch_size, clip=clip)
        with HostReads() as reads:
            worker(THIN.build(2, 3), recipe).epoch(batches(data, recipe), 0.1)
        counts.append(reads.count)
    assert counts[0] == counts[1] <= 2  # the mean loss and the accuracy, at the end


def test_weights_of_units_are_clipped_at_their_norm():
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 4.0, 0.0], [1.0, 0.0, 0.0]]))
        layer.bias.fill_(9.0)
    clip_weights(layer, 3.0)
    assert layer.weight.tolist()[0] == pytest.approx([1.8, 2.4, 0.0], rel=1e-5)  # (3, 4) has norm 5
    assert layer.weight.tolist()[1] == [1.0, 0.0, 0.0]
    assert layer.bias.tolist() == [9.0, 9.0]


def test_clipping_of_weights_is_part_of_a_step(data):
    recipe = Recipe(batch_size=20, clip="weights", clip_norm=0.5)
    torch.manual_seed(0)
    net = THIN.build(2, 3)
    worker(net, recipe).epoch(batches(data, recipe), 0.1)
    norms = [p.flatten(1).norm(dim=1).max().item() for p in net.parameters() if p.ndim > 1]
    assert max(norms) <= 0.5 + 1e-5


def interrupted(data, folder, recipe):
    def interrupt(_row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(data, THIN, recipe, folder, device="cpu", after_epoch=interrupt)


def test_a_run_of_a_gpu_goes_on_without_one(data, tmp_path):
    """Its checkpoint has the state of a gradient scaler and of a fused optimizer, which the CPU does not use."""
    recipe = Recipe(epochs=2, batch_size=16)
    interrupted(data, tmp_path, recipe)
    path = tmp_path / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    content["scaler"] = {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 3,
    }
    content["optimizer"]["param_groups"][0]["fused"] = True
    torch.save(content, path)
    train(data, THIN, recipe, tmp_path, device="cpu", resume=True)
    other = tmp_path / "whole"
    train(data, THIN, recipe, other, device="cpu")
    with np.load(tmp_path / "logits.npz") as one, np.load(other / "logits.npz") as two:
        assert np.array_equal(one["logits_test"], two["logits_test"])


def test_a_checkpoint_of_an_earlier_version_goes_on(data, tmp_path):
    recipe = Recipe(epochs=2, batch_size=16)
    interrupted(data, tmp_path, recipe)
    path = tmp_path / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    del content["criterion"], content["best"]
    for name in ("clip", "amp", "keep", "weights", "model_dropout", "model_passes", "model_members"):
        del content["settings"][name]
    torch.save(content, path)
    with pytest.raises(FileError, match=r"another run: clip was None and is 'none'"):
        train(data, THIN, replace(recipe, clip="none"), tmp_path, device="cpu", resume=True)
    train(data, THIN, recipe, tmp_path, device="cpu", resume=True)
    assert (tmp_path / "logits.npz").is_file()


def test_pretrained_weights(data, tmp_path):
    torch.manual_seed(0)
    ten, two = THIN.build(10, 3), THIN.build(2, 3)
    file = tmp_path / "weights.pth"
    state = {
        f"layer.{k}": value for k, (name, value) in enumerate(ten.state_dict().items()) if "num_batches" not in name
    }
    torch.save({"state_dict": state}, file)  # other names, in the same order, without the counters
    left = load_weights(two, file)
    assert left == ["15.weight", "15.bias"] or len(left) == 2
    assert torch.equal(two[0][0].weight, ten[0][0].weight)
    assert two[-1].weight.shape == (2, 16)  # the last layer has other classes, and stays
    same = THIN.build(10, 3)
    assert load_weights(same, file) == []
    assert torch.equal(same[-1].weight, ten[-1].weight)
    with pytest.raises(FileError, match="another width, form"):
        load_weights(Model("resnet18", width=4).build(10, 3), file)
    with pytest.raises(FileError, match="has 102 tensors, the network has"):
        load_weights(Model("vgg16", width=2).build(10, 3), file)
    (tmp_path / "text.pth").write_bytes(b"no weights")
    with pytest.raises(FileError, match="is no file of tensors"):
        load_weights(same, tmp_path / "text.pth")
    with pytest.raises(FileError, match=r"cannot read .*absent"):
        train(data, THIN, Recipe(), tmp_path / "run", weights=tmp_path / "absent.pth", device="cpu")
    train(data, THIN, Recipe(epochs=1, batch_size=16), tmp_path / "run", weights=file, device="cpu")
    card = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert len(card["weights"]) == 64
    with pytest.raises(FileError, match="another run: weights was"):
        train(data, THIN, Recipe(epochs=1, batch_size=16), tmp_path / "run", device="cpu", resume=True)


TWO = """
import sys
from pathlib import Path
import numpy as np, torch
from torch import nn
from test_train_devices import CPU, THIN, batches, dataset, stripes, worker
from rhocal_paper.train import Recipe, train
from rhocal_paper.train.distributed import processes

folder = Path(sys.argv[1])
data = dataset("stripes", stripes(), stripes(40, seed=1), ("low", "high"))
recipe = Recipe(batch_size=11, mixup=0.4)
group = processes(CPU)
torch.manual_seed(0)
net = nn.Sequential(nn.Flatten(), nn.Linear(16 * 16 * 3, 2))  # without batch normalization two are exactly one
row = worker(net, recipe, group).epoch(batches(data, recipe), 0.01)
torch.save({"weight": net[1].weight.detach(), "row": row}, folder / f"linear-{group.rank}.pt")
train(data, THIN, Recipe(epochs=2, batch_size=16), folder / "run", device="cpu")
"""


def test_two_processes_train_as_one(data, tmp_path):
    """Gradients are those of the whole batch, also where it is odd; one process writes the run; another goes on with it."""
    environment = os.environ | {
        "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path]),  # noqa: PTH120
    }  # fmt: skip
    both = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, str(tmp_path)], env=environment | {"RANK": str(rank)},
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=PATIENCE)[1] for process in both]
    finally:
        for process in both:
            process.kill()  # does nothing to one that has ended
    assert [process.returncode for process in both] == [0, 0], errors
    recipe = Recipe(batch_size=11, mixup=0.4)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16 * 16 * 3, 2))
    alone = worker(net, recipe).epoch(batches(data, recipe), 0.01)
    for rank in range(2):
        there = torch.load(tmp_path / f"linear-{rank}.pt", weights_only=True)
        assert torch.allclose(there["weight"], net[1].weight, atol=1e-6)
        assert there["row"] == pytest.approx(alone, rel=1e-5)
    run = tmp_path / "run"
    log = read_rows(run / "log.csv")
    assert len(log) == 2
    assert float(log[1]["loss"]) < float(log[0]["loss"])
    with np.load(run / "logits.npz") as file:
        assert np.isfinite(file["logits_test"]).all()
    (run / "logits.npz").unlink()
    train(data, THIN, Recipe(epochs=2, batch_size=16), run, device="cpu", resume=True)
    assert (run / "logits.npz").is_file()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use; this machine has none")
@pytest.mark.parametrize("amp", [True, False])
def test_a_gpu_trains_without_waiting_and_the_cpu_goes_on(data, tmp_path, amp):
    """Any wait of the host within an epoch is an error of torch here; then the run is resumed on the CPU."""
    recipe = Recipe(epochs=2, batch_size=16, amp=amp)
    real = Worker.step

    def step(self, batch):
        torch.cuda.set_sync_debug_mode("error")
        try:
            return real(self, batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "step", step)

        def interrupt(_row):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(data, THIN, recipe, tmp_path, device="cuda", after_epoch=interrupt)
    train(data, THIN, recipe, tmp_path, device="cpu", resume=True)
    with np.load(tmp_path / "logits.npz") as file:
        assert np.isfinite(file["logits_test"]).all()
