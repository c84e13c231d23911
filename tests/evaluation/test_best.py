"""Which methods of a comparison are distinguished from the best: debiased, paired, and a tie is a tie."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from rhocal.cli import app
from rhocal.evaluation import best
from rhocal.evaluation.best import DifferenceToBest, SampleNumbers, differences_to_best
from rhocal.evaluation.measure import DEBIASED, EXTRAS
from rhocal.evaluation.rows import COLUMNS, Row, summary
from rhocal.evaluation.ties import ties
from rhocal.metrics import METRICS, Scored
from rhocal.metrics.inference import intervals


def row(method, scored, split="own", network="net"):
    values = {name: METRICS[name].value(scored) for name in COLUMNS if name != "classwise_ece"} | {"classwise_ece": 0.0}
    return Row(
        network, split, method, values, 0.0, 10, scored.n_samples,
        ece_debiased=EXTRAS[DEBIASED](scored).value, samples=SampleNumbers.of(scored),
    )  # fmt: skip


def two_perfect_models(n, seed):
    """One knows the difficulty of each sample, the other only the mean: both are calibrated, and their floors differ."""
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.5, 1.0, n)
    labels = (rng.random(n) > c).astype(int)
    fine, coarse = np.stack([c, 1 - c], axis=1), np.tile([0.75, 0.25], (n, 1))
    return [Scored.from_arrays(p, labels, None, "probs") for p in (fine, coarse)]


def test_two_perfect_models_are_tied_in_ece_whatever_their_floors():
    plain, tied = [], []
    for seed in range(20):
        fine, coarse = two_perfect_models(1000, seed)
        rows = [row("fine", fine), row("coarse", coarse)]
        found = differences_to_best(rows, summary(rows), ["net"])["ece"]
        plain.append(rows[0].values["ece"] > rows[1].values["ece"])
        tied.append(all(difference.is_tied for difference in found.values()))
    assert sum(plain) >= 18  # the plain ECE prefers the model with less information
    assert sum(tied) >= 18


def test_a_difference_of_ece_is_no_larger_than_the_ece():
    """A difference of 0.1155 [0.0091, 0.2220] stood beside a debiased ECE of 0.0850."""
    for seed in range(6):
        fine, _ = two_perfect_models(300, seed)
        p = np.stack([np.minimum(fine.confidence + 0.06, 1), np.maximum(0.94 - fine.confidence, 0)], axis=1)
        sure = Scored.from_arrays(p, fine.labels, None, "probs")
        rows = [row("fine", fine), row("sure", sure)]
        found = differences_to_best(rows, summary(rows), ["net"])["ece"]
        (other,) = (name for name, difference in found.items() if difference.best != name)
        high = intervals({"fine": fine, "sure": sure}[other], ["ece"])["ece"].high
        assert found[other].value <= {row.method: row.values["ece"] for row in rows}[other] + 1e-12
        assert found[other].low <= found[other].value <= found[other].high <= high + 1e-6


def test_a_worse_model_is_distinguished_and_the_best_has_no_difference_to_itself():
    fine, coarse = two_perfect_models(4000, 0)
    p = np.stack([np.minimum(fine.confidence + 0.1, 1), np.maximum(0.9 - fine.confidence, 0)], axis=1)
    sure = Scored.from_arrays(p, fine.labels, None, "probs")
    rows = [
        row(name, scored, split)
        for split in ("seed 0", "seed 1")
        for name, scored in (("fine", fine), ("coarse", coarse), ("sure", sure))
    ]
    found = differences_to_best(rows, summary(rows), ["net"])
    assert not found["ece"]["sure"].is_tied
    assert found["ece"]["sure"].value == pytest.approx(0.1, abs=0.03)
    assert found["nll"]["fine"].best == "fine"
    assert (found["nll"]["fine"].value, found["nll"]["fine"].low) == (0, 0)
    assert not found["nll"]["coarse"].is_tied
    assert all(difference.is_tied for difference in found["accuracy"].values())
    assert set(found) == set(best.ORDER)  # no order of MCE or AdaECE, whose floors differ


def test_samples_of_blocks_add_and_are_the_same_for_every_method(monkeypatch):
    fine, coarse = two_perfect_models(500, 3)
    monkeypatch.setattr(best, "MAX_KEPT", 120)
    parts = [np.arange(0, 230), np.arange(230, 500)]
    added = [SampleNumbers.of(view.take(parts[0])) + SampleNumbers.of(view.take(parts[1])) for view in (fine, coarse)]
    assert len(added[0].keys) == 120
    assert added[0].keys.tolist() == added[1].keys.tolist()
    assert np.array_equal(added[0].scored.correct, added[1].scored.correct)  # both decide the same


def test_rows_of_an_earlier_run_have_no_samples():
    fine, coarse = two_perfect_models(300, 0)
    rows = [row("fine", fine), row("coarse", coarse)]
    rows[1] = Row.from_flat({name: str(value) for name, value in rows[1].flat().items()})
    assert differences_to_best(rows, summary(rows), ["net"]) == {}


def test_the_command_marks_ties(tmp_path):
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (1200, 3))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    np.savez(tmp_path / "z.npz", logits=4 * z, labels=labels)
    arguments = ["compare", str(tmp_path / "z.npz"), "--methods", "identity,temperature,rho-norm", "--seeds", "2"]
    shown = CliRunner().invoke(app, arguments)
    assert "= tied with it" in shown.stdout
    assert "higher by at most" in shown.stdout
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert not document["to_best"]["identity"]["ece"]["tied"]
    assert document["to_best"]["temperature"]["ece"]["tied"]
    assert all(line["ece_debiased"] < line["ece"] for line in document["summary"])
    assert document["rows"][0]["ece_debiased"] > 0.1


def sentences(bounds, best):
    """What is printed of differences to the best method, all tied."""
    return ties({"ece": {name: DifferenceToBest(best, 0.0, low, high) for name, (low, high) in bounds.items()}})


def test_where_all_methods_tie_no_winner_is_named():
    """A tie with no calibration shows that it is not needed only if the samples could have shown a need."""
    few = {"identity": (-0.01, 0.08), "temperature": (0.0, 0.0), "field": (-0.01, 0.01)}
    (sentence,) = sentences(few, "temperature")
    assert "all 3 methods tie; too few samples to tell whether calibration is needed" in sentence
    assert "by at most 0.0800 (95 % confidence)" in sentence
    many = {"identity": (0.0, 0.0), "temperature": (-0.004, 0.01), "field": (-0.002, 0.3)}
    assert sentences(many, "identity") == [
        "ECE: all 3 methods tie; calibration is not needed: it could lower the ECE by at most 0.0040 (95 % confidence)"
    ]
    assert "field is the best" in sentences({"identity": (0.01, 0.02), "field": (0.0, 0.0)}, "field")[0]
    assert "field is the best" in sentences({"temperature": (-0.01, 0.02), "field": (0.0, 0.0)}, "field")[0]
