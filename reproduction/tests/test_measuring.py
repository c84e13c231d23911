"""Rows of tables: cuts, interrupted runs, the command line, figures, and what the study says about objectives."""

import csv
import json
import math
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal_paper as paper
from helpers import run_paper, synthetic
from rhocal import SCE, RhoNormScaling, optimize
from rhocal.data.files import read
from rhocal.evaluation.rows import FAILED, Row, read_rows
from rhocal.profile.statistics import Facts
from rhocal_paper.cli import app
from rhocal_paper.measure import draws, measure, moved, old_rows


def row(network, split, method, floor=0.002, note="", **figures):
    return Row(network, split, method, {"accuracy": 0.8} | figures, 0.0, 1, 1, floor, note)


# Measuring ------------------------------------------------------------------------------------------------------------


def test_cuts_put_tune_and_test_together(tmp_path):
    logits, labels = synthetic(300, 3)
    np.savez(tmp_path / "one.npz", logits=logits, labels=labels)
    np.savez(
        tmp_path / "two.npz", logits_val=logits[:100], labels_val=labels[:100], logits_test=logits[100:],
        labels_test=labels[100:],
    )  # fmt: skip
    for name, n_calibration in (("one", 150), ("two", 100)):
        first, second = draws(read(tmp_path / f"{name}.npz"), 2)
        calibration, test = first.calibration.predictions, first.test.predictions
        assert (calibration.n_samples, test.n_samples) == (n_calibration, 300 - n_calibration)
        assert (first.name, second.name) == ("seed 0", "seed 1")
        together = np.concatenate([calibration.logits, test.logits])
        assert sorted(together[:, 0]) == sorted(logits[:, 0])
        assert not np.array_equal(calibration.logits, second.calibration.predictions.logits)


def test_divergence_by_hand():
    """g = (1/4, 3/4), s = (1/2, 1/2): KL(g‖s) = log 2 − H(g), KL(s‖g) = −log 2 − ½ log(3/16); over two classes."""
    g, s = np.log([[0.25, 0.75]]), np.zeros((1, 2))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    found = moved(g, s)
    assert found["kl_to_base"] == pytest.approx((math.log(2) - entropy) / 2)
    assert found["kl_from_base"] == pytest.approx((-math.log(2) - math.log(3 / 16) / 2) / 2)


def test_finished_cells_are_not_run_again(tmp_path):
    logits, labels = synthetic(200, 3)
    np.savez(tmp_path / "net.npz", logits=logits, labels=labels)
    grid, output, seen = paper.GRIDS[2], tmp_path / "rows.csv", []
    once = measure(grid, [tmp_path / "net.npz"], n_seeds=2, output=output, step=seen.append)
    assert len(once) == len(seen) == 2 * len(grid.entries)
    kept = read_rows(output)
    assert [r["method"] for r in kept[: len(grid.entries)]] == list(grid.entries)
    lines = output.read_text(encoding="utf-8").splitlines()
    output.write_text("\n".join(lines[:5]) + "\n", encoding="utf-8")  # interrupted after four
    seen.clear()
    again = measure(
        grid, [tmp_path / "net.npz"], n_seeds=2, output=output, before=old_rows(output), step=seen.append
    )  # fmt: skip
    assert len(seen) == 2 * len(grid.entries) - 4
    assert [(r.split, r.method, r.values["ece"]) for r in again] == [
        (r.split, r.method, pytest.approx(r.values["ece"], rel=1e-5)) for r in once
    ]


def test_rows_of_fits_that_failed_say_so():
    assert row("net", "seed 0", "vector", note=f"{FAILED}too many classes").failed
    assert not row("net", "seed 0", "vector", note="a warning").failed


# The command line -----------------------------------------------------------------------------------------------------


def test_table_from_the_command_line(tmp_path):
    logits, labels = synthetic(600, 4)
    for name in ("cifar100_resnet50", "other", "cifar10_resnet18"):
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
    rows = tmp_path / "rows.csv"
    order = ("table2", "--logits", tmp_path, "--seeds", 2, "-o", rows)
    text = run_paper(*order).stdout
    assert "cifar100_resnet50 in place of CIFAR-100, ResNet50" in text
    assert "[0.048]" in text  # published, temperature scaling
    assert "other" not in text
    assert "cifar10_resnet18" not in text  # the table has no CIFAR-10
    assert "Needs a GPU: rhocal-paper train --data cifar100 --model resnet34" in text
    n = 2 * len(paper.GRIDS[2].entries)
    assert len(rows.read_text(encoding="utf-8").splitlines()) == 1 + n
    before = rows.read_bytes()
    document = json.loads(run_paper(*order, "--resume", "--json").stdout)
    assert rows.read_bytes() == before
    assert {line["verdict"] for line in document["verdicts"]} <= {
        "reproduced", "reproduced in direction", "tie", "cannot be told", "not reproduced",
    }  # fmt: skip
    assert document["missing"][0]["model"] == "ResNet35"
    named = run_paper(*order[:3], "--seeds", 1, "--networks", "other").stdout
    assert "other: ours" in named
    assert "there is no nothing; there are" in run_paper(*order, "--networks", "nothing", code=2).stderr
    (tmp_path / "cifar100_resnet50.npz").unlink()
    assert "--all takes them" in run_paper("table2", "--logits", tmp_path, code=2).stderr
    assert "name it with -o" in run_paper("table2", "--logits", tmp_path, "--resume", code=2).stderr


@pytest.mark.filterwarnings("ignore::rhocal.errors.ConvergenceWarning")  # of 20 steps
@pytest.mark.parametrize("number", [3, 4])
def test_figures_from_the_command_line(tmp_path, number, monkeypatch):
    for name in ("sgd", "adam"):  # how they converge is tested elsewhere: here 20 steps are enough
        monkeypatch.setattr(optimize, name, partial(few_steps, getattr(optimize, name)))
    logits, labels = synthetic(400, 3)
    np.savez(tmp_path / "net.npz", logits=logits, labels=labels)
    rows = tmp_path / "rows.csv"
    figure = tmp_path / "figure.svg"
    command = [f"figure{number}", "--logits", tmp_path / "net.npz", "-o", figure, "--rows", rows]
    answer = CliRunner().invoke(app, [str(one) for one in command])
    assert answer.exit_code == 0, (answer.output, answer.exception)
    assert "reproduced" in answer.output
    assert figure.read_text(encoding="utf-8").startswith("<?xml")
    with rows.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    key = "method" if number == 3 else "way"
    assert len({line[key] for line in found}) == (6 if number == 3 else 3)
    # every sample is in one bin of each panel
    panels = {(line[key], line.get("objective")) for line in found}
    assert sum(int(line["n"]) for line in found) == 200 * len(panels)


def few_steps(real, *arguments, **options):
    return real(*arguments, **(options | {"n_steps": 20}))


CARD = {"model_name": "resnet34", "loss": "cross-entropy", "mixup": 0, "epochs": 200}


def write_run(folder, decay, amplitude, factor):
    """A finished run whose amplitude went like this, and whose logits are this large."""
    folder.mkdir()
    (folder / "run.json").write_text(
        json.dumps(CARD | {"data": "made.tar.gz", "weight_decay": decay, "model_width": 8}), encoding="utf-8"
    )
    lines = [f"{epoch},{size},0.5" for epoch, size in enumerate(amplitude, 1)]
    (folder / "log.csv").write_text("\n".join(["epoch,amplitude,confidence", *lines]) + "\n", encoding="utf-8")
    logits, labels = synthetic(200, 4, scale=factor)
    np.savez(folder / "logits.npz", logits_val=logits, labels_val=labels, logits_test=logits, labels_test=labels)


def test_figure_2(tmp_path):
    write_run(tmp_path / "without", 0.0, [1.0, 1.5, 2.0, 2.5], 3.0)
    write_run(tmp_path / "with", 5e-4, [1.0, 1.2, 1.3, 1.2], 1.0)
    text = run_paper("figure2", "--runs", tmp_path, "-o", tmp_path / "f.svg", "--rows", tmp_path / "rows.csv").stdout
    assert (
        "amplitude grows without weight decay: reproduced (from 1.000 to 2.500; rank correlation with the epoch 1.00)"
        in text
    )
    assert "weight decay holds the amplitude down: reproduced in direction (ends at 1.200" in text
    assert text.count("amplitude and confidence of samples are positively correlated: reproduced") == 2
    assert len((tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()) == 1 + 8
    assert (
        "no finished runs" in run_paper("figure2", "--runs", tmp_path / "with", "-o", tmp_path / "f.svg", code=2).stderr
    )


def test_figure_2_sees_an_amplitude_that_shrinks(tmp_path):
    write_run(tmp_path / "without", 0.0, [2.0, 1.5, 1.0], 1.0)
    write_run(tmp_path / "with", 5e-4, [1.0, 2.0, 3.0], 1.0)
    text = run_paper("figure2", "--runs", tmp_path, "-o", tmp_path / "f.svg").stdout
    assert "amplitude grows without weight decay: not reproduced" in text
    assert "weight decay holds the amplitude down: not reproduced" in text


# What the study says about objectives ---------------------------------------------------------------------------------


def test_a_model_that_knows_nothing_has_the_lower_sce():
    """Always 75 % sure, and rightly so: 0.75·0.25/128. No class of 100 known, and 1 % said: 0.01·0.99/128, far less."""

    def sce(correct, confidence):
        facts = Facts(np.array(correct, float), np.full(len(correct), 1 / len(correct)), 100)
        return SCE().evaluate({"confidence": np.full(len(correct), confidence)}, facts)[0]

    good, useless = sce([1, 1, 1, 0], 0.75), sce([1] + [0] * 99, 0.01)
    assert good == pytest.approx(0.75 * 0.25 / 128)
    assert useless == pytest.approx(0.01 * 0.99 / 128)
    assert useless < good / 18


def test_reductions_of_kl_are_one_family():
    """α = 1 as a mean over samples and classes is α = 1/m as a mean over samples and 1/(128 m) as a sum over a batch."""
    logits, labels = synthetic(300, 4)

    def fitted(reduction, alpha):
        kl = f"kl(reduction={reduction})"
        return (
            RhoNormScaling.paper(rho=2.0, solver="expected", kl=kl, alpha=alpha)
            .fit(logits, labels)
            .predict_proba(logits)
        )

    mean = fitted("mean", 1.0)
    np.testing.assert_allclose(fitted("samples", 1 / 4), mean, atol=1e-6)
    np.testing.assert_allclose(fitted("sum", 1 / (128 * 4)), mean, atol=1e-6)
    assert np.abs(fitted("samples", 1.0) - mean).max() > 0.01
