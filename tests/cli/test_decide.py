"""`rhocal decide`: samples that certify never fit, and what a bad request is told."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import rhocal
from helpers import synthetic
from rhocal.cli import app, in_options
from rhocal.errors import RhocalError

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")


def call(*arguments, code=0):
    done = CliRunner().invoke(app, ["decide", *map(str, arguments)])
    if isinstance(done.exception, RhocalError):
        return in_options(done.exception, app)
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decide")
    z, y = synthetic(4000, 3, seed=4)
    np.savez(folder / "one.npz", logits=z, labels=y)
    np.savez(folder / "two.npz", logits_val=z[:2000], labels_val=y[:2000], logits_test=z[2000:], labels_test=y[2000:])
    order = np.random.default_rng(0).permutation(4000)
    np.savez(folder / "segments.npz", logits=z, labels=y, site=np.where(np.arange(4000) % 2, "a", "b"))
    np.savez(folder / "shuffled.npz", logits=z[order], labels=y[order])
    return folder


def test_with_two_splits_the_test_split_certifies(folder):
    out = folder / "cal.safetensors"
    text = call(folder / "two.npz", "--max-error", "0.1", "-m", "temperature", "-o", out)
    assert "temperature was fitted on the calibration split" in text
    assert "certified coverage" in text
    assert "at most 10 % with 95 % confidence" in text
    cal = rhocal.load(out)
    with np.load(folder / "two.npz") as file:
        z, y = file["logits_test"], file["labels_test"]
        assert cal.temperature_ == rhocal.TemperatureScaling().fit(file["logits_val"], file["labels_val"]).temperature_
    decisions = cal.decide(z)
    assert decisions.automated.sum() == cal.policy_.certificate.n_automated
    assert (decisions.label != y)[decisions.automated].mean() <= 0.1
    again = json.loads(call(folder / "two.npz", "-c", out, "--max-error", "0.1", "--json"))
    assert again["thresholds"] == cal.policy_.thresholds.tolist()
    assert again["certificate"]["n_samples"] == 2000


def test_segments_on_the_command_line(folder):
    common = (folder / "segments.npz", "-m", "temperature", "--segments", "site")
    text = call(*common, "--max-error", "0.15")
    assert "at most 15 % with 95 % confidence in each of 2 segments" in text
    assert "give it with --max-error, --at-least or --max-cost" in call(*common, "--coverage", ".9")
    assert "--segments needs the file in memory" in call(*common, "--max-error", "0.15", "--stream")


def test_a_single_set_is_cut_by_content(folder):
    arguments = ("--max-error", "0.1", "-m", "temperature", "--json")
    one, other = (json.loads(call(folder / f"{name}.npz", *arguments)) for name in ("one", "shuffled"))
    assert "2,000 (cut by content)" in one["certified_on"]
    assert one["n_samples"] == 2000
    assert one["thresholds"] == pytest.approx(other["thresholds"], abs=1e-6)


def test_infeasible_is_exit_code_1_and_writes_nothing(folder):
    out = folder / "none.safetensors"
    text = call(folder / "two.npz", "--max-error", "0.0001", "-m", "temperature", "-o", out, code=1)
    assert "infeasible: at best " in text
    assert "too few to tell how many more labels would do" in text
    assert "none.safetensors was not written" in text
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-error", "2"], "--max-error must lie between 0 and 1 (0.02 for 2 %); got 2.0"),
        ([], "state what to certify: --max-error 0.02, --coverage 0.9"),
        (["--risk", "fnr"], "--risk fnr needs --max-error; it is missing"),
        (["--risk", "recall", "--max-error", ".1"], "--risk recall needs --at-least; --max-error was given"),
        (["--risk", "recall", "--at-least", ".9"], "there are 3 classes. Use risk error"),
        (["--risk", "guess", "--max-error", ".1"], "--risk is one of error, fpr, fnr, precision, recall; got 'guess'"),
        (["--max-error", ".1", "--confidence", "95"], "--confidence must lie between 0 and 1"),
        (["--max-error", ".1", "-o", "x.npz"], "must end in .safetensors"),
        (["--max-error", ".1", "--stream"], "fit on other samples and give the calibrator with -c"),
    ],
)
def test_bad_requests(folder, arguments, message):
    assert message in call(folder / "one.npz", "-m", "temperature", *arguments)


def test_costs_on_the_command_line(folder):
    rng = np.random.default_rng(0)
    p = rng.beta(0.2, 3, 6000)
    z, y = np.stack([0 * p, 2 * np.log(p / (1 - p))], axis=1), np.where(rng.random(6000) < p, "ill", "well")
    np.savez(folder / "ill.npz", logits=z, labels=y, classes=np.array(["well", "ill"]))
    out = folder / "ill.safetensors"
    pair = ("--classes", "well,ill", "-m", "temperature", "--cost-fp", 5, "--cost-fn", 50, "--cost-review", 1)
    assert "it was not stated which of well and ill that is. Use --positive to name" in call(folder / "ill.npz", *pair)
    pair = (*pair, "--positive", "ill")
    text = call(folder / "ill.npz", *pair, "-o", out)
    assert "least expected cost" in text
    assert "positive class of the costs: ill" in text
    assert "positive class of the costs: ill" in call(folder / "ill.npz", *pair, "--max-cost", 2)
    assert json.loads(call(folder / "ill.npz", *pair, "--json"))["positive"] == "ill"
    assert "calibrating saves: " in text
    assert rhocal.load(out).policy_.costs.tolist() == [[0, 5, 1], [50, 0, 1]]
    (folder / "costs.csv").write_text("class,ill,well\nwell,5,0\nill,0,50\n")
    table = ("--classes", "well,ill", "-c", out, "--costs", folder / "costs.csv", "--json")
    found = json.loads(call(folder / "ill.npz", *table, "--cost-review", 1))
    assert found["costs"] == [[0, 5, 1], [50, 0, 1]]
    certified = json.loads(call(folder / "ill.npz", *table, "--max-cost", 2))
    assert certified["certificate"]["bound"] <= 2
    assert "monitor watches rates; it does not watch this mean cost" in call(
        folder / "ill.npz", *table[:-1], "--max-cost", 2
    )
    rare = call(folder / "ill.npz", *pair[:4], "--max-error", ".1")
    assert "always `well` would have" in rare
    assert "for the rare class use --risk recall or fnr, or --score per-class" in rare
    assert "give one of them" in call(folder / "ill.npz", *pair, "--max-error", ".1")
    assert "use --costs" in call(folder / "one.npz", "-m", "temperature", "--cost-fp", 1, "--cost-fn", 1)
    assert "need --cost-fp and --cost-fn" in call(folder / "ill.npz", *pair[:4], "--cost-fp", 1)


def test_prediction_sets_on_the_command_line(folder):
    out = folder / "sets.safetensors"
    common = (folder / "two.npz", "-m", "temperature", "--coverage", ".9")
    text = call(*common, "--set-score", "aps", "-o", out)
    assert "expected coverage 90 % to 90.0" in " ".join(text.replace("│", " ").split())
    assert "exchangeable with these 2,000" in text
    with np.load(folder / "two.npz") as file:
        z, y = file["logits_test"], file["labels_test"]
    sets = rhocal.load(out).decide(z).sets
    assert sets[np.arange(2000), y].sum() == 1801
    found = json.loads(
        call(folder / "two.npz", "-c", out, "--coverage", ".9", "--set-score", "aps", "--per-class", "--json")
    )
    assert found["per_class"]
    assert [row["coverage"] >= 0.9 for row in found["classes"]] == [True] * 3
    done = CliRunner().invoke(app, ["apply", str(out), str(folder / "one.npz"), "-o", str(folder / "sets.csv")])
    assert done.exit_code == 0, done.output
    assert "set_0" in (folder / "sets.csv").read_text().splitlines()[0]
    blocks = folder / "blocks.safetensors"  # a file of numbers: 1 is automate
    done = CliRunner().invoke(app, ["apply", str(out), str(folder / "one.npz"), "-o", str(blocks), "--stream"])
    assert done.exit_code == 0, done.output
    assert (load_file(blocks)["action"] == (load_file(blocks)["set"].sum(axis=1) == 1)).all()
    assert "--coverage must lie between 0 and 1 (0.9 for 90 %); got 90.0" in call(*common[:-1], "90")
    assert "--per-class belongs to prediction sets; give their --coverage too" in call(*common[:-2], "--per-class")
    assert "give one of them" in call(*common, "--max-error", ".1")
    assert "--set-score is one of lac, aps, raps" in call(*common, "--set-score", "x")


def test_positive_is_whose_risk_and_not_what_the_column_holds(folder):
    rng = np.random.default_rng(0)
    x = 2 * rng.normal(size=6000)
    y = np.where(rng.random(6000) < 1 / (1 + np.exp(-x)), "well", "sick")
    fitted, out, path = folder / "b.safetensors", folder / "b_policy.safetensors", folder / "b.npz"
    rhocal.TemperatureScaling().fit(-x[:2000], y[:2000], positive="sick").save(fitted)  # scores of sick
    np.savez(path, logits=-x[2000:], labels=y[2000:])
    recall = ("--risk", "recall", "--at-least", ".8", "--positive", "well")
    text = call(path, "-c", fitted, *recall, "-o", out)
    assert "decide well for" in text
    cal, truth = rhocal.load(out), y[2000:] == "well"
    decided = cal.decide(-x[2000:]).label == "well"
    assert cal.policy_.certificate.observed == pytest.approx(decided[truth].mean())
    assert abs(decided[truth].mean() - 0.8) < 0.04
    costs = ("--cost-fp", 1, "--cost-fn", 10, "--positive", "well", "--json", "-o", out)
    found = json.loads(call(path, "-c", fitted, *costs))
    decided = rhocal.load(out).decide(-x[2000:]).label == "well"
    paid = 1 * (decided & ~truth) + 10 * (~decided & truth)
    assert found["cost"]["value"] == pytest.approx(paid.mean())


def test_questions_of_a_log_that_occur_more_than_once(folder):
    rng = np.random.default_rng(0)
    lines = []
    for question in range(400):
        score = float(rng.normal()) * 2
        right = bool(rng.random() < 1 / (1 + np.exp(-2 * score)))
        lines += [{"question_id": question, "score": score + float(rng.normal()) * 0.01, "correct": right}] * 5
    (folder / "log.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    common = ("-m", "temperature", "--max-error", ".2", "--json")
    text = call(folder / "log.jsonl", *common)
    assert "questions occur more than once" in text
    found = json.loads(text[text.index("{") :])
    assert found["n_samples"] == 200
    assert "200 samples, one of each cluster, of" in found["certified_on"]
    assert "temperature was fitted on 1,000 (cut by clusters)" in found["certified_on"]
    with np.load(folder / "two.npz") as file:
        arrays = {**file, "patient_val": np.arange(2000) // 2, "patient_test": np.arange(2000) // 4}
    np.savez(folder / "patients.npz", **arrays)
    stated = json.loads(call(folder / "patients.npz", *common, "--clusters", "patient"))
    assert stated["n_samples"] == 500
    assert "500 samples, one of each cluster, of the test split" in stated["certified_on"]
    rhocal.TemperatureScaling().fit(*synthetic(300, 3)).save(folder / "own.safetensors")
    streamed = (folder / "segments.npz", "-c", folder / "own.safetensors", *common[2:], "--stream")
    assert "--clusters needs the file in memory" in call(*streamed, "--clusters", "site")
