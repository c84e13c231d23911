"""The paper's tables: the stored numbers, where a network belongs, and ours beside the published."""

import json
import math

import numpy as np
import pytest

from conftest import ROOT, run, synthetic
from rhocal import paper
from rhocal.campaign import network_name
from rhocal.compare import Row
from rhocal.errors import FileError
from rhocal.metrics.binned import N_BINS


def test_published_numbers_are_complete():
    assert [len(paper.published(table)) for table in range(1, 6)] == [119, 16, 26, 28, 24]
    one = {(p.dataset, p.model, p.method, p.metric): (p.value, p.sd) for p in paper.published(1)}
    assert one["CIFAR-100", "ResNet18", "temperature", "ECE"] == (0.033, 0.006)  # Table 1, first row
    value, sd = one["CIFAR-100", "ResNet18", "rho-norm", "ECE"]
    assert value == 0.009
    assert math.isnan(sd)  # not printed where it is the best
    assert {p.method for p in paper.published(1)} == {name for name in paper.TABLE1.values() if name}
    assert N_BINS == 10  # as in the paper, and what rows are measured with


def test_published_numbers_are_those_of_the_shared_file():
    shared = ROOT.parent / "shared" / "paper" / "published.csv"
    if not shared.is_file():
        pytest.skip(f"needs {shared}, which is not part of the project")
    assert (ROOT / "src" / "rhocal" / "data" / "published.csv").read_bytes() == shared.read_bytes()


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("cifar100_vgg16_bn", ("CIFAR-100", "VGG16")),
        ("cifar10_resnet34-seed1", ("CIFAR-10", "ResNet35")),
        ("CIFAR-10_ResNet-35", ("CIFAR-10", "ResNet35")),
        ("tiny-imagenet resnet34", ("Tiny-ImageNet", "ResNet35")),
        ("Oxford 102 Flowers resnet50", ("102 Flower", "ResNet50")),
        ("flowers102_64px.tar.gz resnet50", ("102 Flower", "ResNet50")),
        ("cifar100_resnet56", None),  # not a network of the paper
        ("cifar10_resnet1810", None),
        ("imagenet_resnet50", None),
        ("svhn_disiji_logp", None),
    ],
)
def test_names_say_the_cell(name, cell):
    assert paper.cell_of(name) == cell


CARD = {
    "data": "CIFAR-10",
    "model_name": "resnet34",
    "model_width": 64,
    "weight_decay": 0.0,
    "loss": "focal",
    "mixup": 0,
}


def test_cards_of_runs_say_the_cell(tmp_path):
    for seed, width in ((0, 64), (1, 64), (0, 16)):
        folder = tmp_path / f"run-{seed}-{width}"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps(CARD | {"seed": seed, "model_width": width}))
        (folder / "logits.npz").touch()
    thin, first, second = (paper.network_of(path) for path in paper.logits_files(tmp_path))
    assert first == second  # seeds are pooled
    assert first == paper.Network("CIFAR-10, ResNet35, width 64, weight decay 0, focal", ("CIFAR-10", "ResNet35"))
    assert not thin.full
    assert ("CIFAR-10", "ResNet35") in paper.missing([thin])
    assert ("CIFAR-10", "ResNet35") not in paper.missing([thin, first])
    assert network_name(tmp_path / "run-0-64" / "logits.npz") == "run-0-64"
    (tmp_path / "run-0-16" / "run.json").write_text("{}")
    with pytest.raises(FileError, match="not the card of a run"):
        paper.network_of(tmp_path / "run-0-16" / "logits.npz")
    with pytest.raises(FileError, match=r"no \.npz files"):
        paper.logits_files(tmp_path / "run-0-16" / "nothing")


def row(network, split, method, **figures):
    return Row(network, split, method, figures, 0.0, 1, 1, 0.002)


def lines_of(**ece):
    """One network with these ECE values; AdaECE and MCE are the same."""
    names = {"histogram_binning": "histogram-binning", "temperature_avuc": "temperature-avuc", "rho": "rho-norm-paper"}
    values = {"identity": 0.2, "histogram-binning": 0.1, "temperature": 0.1, "vector": 0.1, "temperature-avuc": 0.1}
    values |= {"rho-norm-paper": 0.05, "rho-norm": 0.001} | {
        names.get(name, name): value for name, value in ece.items()
    }
    rows = [
        row("net", f"seed {k}", m, ece=v + k * 0.002, adaptive_ece=v, mce=v) for m, v in values.items() for k in (0, 1)
    ]
    return paper.table1(rows, {"net": paper.Network("net", ("CIFAR-100", "ResNet18"))})


def test_ours_beside_the_published():
    line = next(line for line in lines_of() if (line["metric"], line["method"]) == ("ECE", "rho-norm-paper"))
    assert line["ours"] == pytest.approx(0.051)
    assert line["ours_sd"] == pytest.approx(0.002 / math.sqrt(2))
    assert (line["n"], line["published"], line["ece_floor"]) == (2, 0.009, 0.002)
    own = next(line for line in lines_of() if (line["metric"], line["method"]) == ("ECE", "rho-norm"))
    assert math.isnan(own["published"])  # our defaults are not the paper's method


@pytest.mark.parametrize(
    ("values", "verdict", "on_mce"),
    [
        ({}, "reproduced", "not reproduced"),
        ({"vector": 0.01}, "reproduced in direction", "reproduced"),
        ({"temperature": 0.01}, "not reproduced", "reproduced"),
        ({"identity": 0.01}, "not reproduced", "reproduced"),
        ({"vector": math.nan}, "reproduced", "not reproduced"),  # a fit that failed does not count
        ({"temperature": math.nan}, "no verdict", "no verdict"),
    ],
)
def test_verdicts(values, verdict, on_mce):
    found = {line["metric"]: line["verdict"] for line in paper.verdicts(lines_of(**values))}
    assert found == {"ECE": verdict, "AdaECE": verdict, "MCE": on_mce}


def test_command_line(tmp_path):
    logits, labels = synthetic(600, 4)
    np.savez(tmp_path / "cifar10_resnet34.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "other.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "cifar10_resnet18.npz", logits=logits, labels=labels)  # the paper has it for CIFAR-100 and SVHN
    found = run("paper", "table1", "--logits", tmp_path, "--seeds", 2, "-o", tmp_path / "rows.csv").stdout
    assert "cifar10_resnet34 as CIFAR-10, ResNet35" in found
    assert "[0.054]" in found  # published, uncalibrated ECE
    assert "other" not in found
    assert "cifar10_resnet18" not in found
    assert "Needs a GPU: rhocal train --data cifar100 --model resnet18" in found
    assert "--data cifar10 " not in found
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 1 + 7 * 3
