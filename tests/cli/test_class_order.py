"""Scores whose classes stand in another order than those of the fit, or in a single column."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import run, synthetic
from rhocal.cli import app
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, SuspiciousInputWarning

NAMES = np.array(["walrus", "ant", "mole"])
ORDER = np.array([2, 0, 1])
Z, Y = synthetic(400, 3)
Z = Z + np.array([0.0, 1.5, 0.0])

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


@pytest.fixture
def files(tmp_path):
    """A calibrator with biases for classes, and the same samples in another order of the columns, with numbers as labels."""
    np.savez(tmp_path / "fit.npz", logits=Z, labels=NAMES[Y], classes=NAMES)
    np.savez(tmp_path / "other.npz", logits=Z[:, ORDER], labels=np.argsort(ORDER)[Y], classes=NAMES[ORDER])
    invoke("fit", tmp_path / "fit.npz", "-m", "svs", "-o", tmp_path / "cal.safetensors")
    return tmp_path


def test_labels_count_the_columns_of_their_file(files):
    cal = files / "cal.safetensors"
    values = [
        json.loads(invoke("evaluate", files / name, "-c", cal, "--metrics", "nll", "--json"))["values"]
        for name in ("fit.npz", "other.npz")
    ]
    for model in ("uncalibrated", "svs"):
        assert values[0][model] == pytest.approx(values[1][model])
    invoke("report", files / "other.npz", "-c", cal, "-o", files / "r.html", "--json-output", files / "r.json")
    rows = json.loads((files / "r.json").read_text(encoding="utf-8"))["classes"]["rows"]
    assert {row["class"]: row["n_labels"] for row in rows} == {
        name: int((NAMES[Y] == name).sum()) for name in NAMES.tolist()
    }


@pytest.mark.parametrize("stream", [(), ("--stream",)])
@pytest.mark.parametrize("prefix", ["", "logit_"])
def test_labels_count_the_columns_of_their_table(tmp_path, stream, prefix):
    """Of a table whose columns stand in another order than those of the fit, in memory and block by block."""
    columns = [prefix + name for name in NAMES]
    frame = pd.DataFrame(Z, columns=columns)
    frame.assign(labels=NAMES[Y]).to_csv(tmp_path / "fit.csv", index=False)
    moved = frame[[columns[k] for k in ORDER]].assign(labels=np.argsort(ORDER)[Y], extra=1.5)
    moved.drop(columns="extra").to_parquet(tmp_path / "f.parquet")
    moved.to_parquet(tmp_path / "more.parquet")
    cal = tmp_path / "cal.safetensors"
    invoke("fit", tmp_path / "fit.csv", "-m", "svs", "-o", cal)
    wanted = json.loads(invoke("evaluate", tmp_path / "fit.csv", "-c", cal, "--json"))["values"]
    for name in ("f.parquet", "more.parquet"):
        values = json.loads(invoke("evaluate", tmp_path / name, "-c", cal, "--json", *stream))["values"]
        for model in ("uncalibrated", "svs"):
            for metric in ("accuracy", "nll"):
                assert values[model][metric] == pytest.approx(wanted[model][metric], rel=1e-6)
    invoke("apply", cal, tmp_path / "f.parquet", "-o", tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv")["labels"].tolist() == NAMES[Y].tolist()
    updates = [
        invoke(
            "update",
            cal,
            tmp_path / name,
            "-s",
            tmp_path / f"{name}.state.safetensors",
            "-o",
            tmp_path / f"{name}.safetensors",
        )
        for name in ("fit.csv", "f.parquet")
    ]
    first, second = (update.split(":", 1)[1].split()[:12] for update in updates)  # lines are wrapped
    assert first == second


def test_numbers_beside_columns_that_moved_from_those_of_a_fit_on_numbers(tmp_path):
    """Numbers are the classes of the fit, and columns are matched with its columns by name."""
    frame = pd.DataFrame(Z, columns=NAMES).assign(labels=Y)
    frame.to_csv(tmp_path / "fit.csv", index=False)
    frame[[*NAMES[ORDER], "labels"]].to_csv(tmp_path / "f.csv", index=False)
    cal = tmp_path / "cal.safetensors"
    invoke("fit", tmp_path / "fit.csv", "-m", "svs", "-o", cal)
    one, two = (json.loads(invoke("evaluate", tmp_path / f"{name}.csv", "-c", cal, "--json")) for name in ("fit", "f"))
    assert one["values"] == two["values"]
    outputs = []
    for name in ("fit", "f"):
        invoke("apply", cal, tmp_path / f"{name}.csv", "-o", tmp_path / f"{name}_out.csv")
        outputs.append((tmp_path / f"{name}_out.csv").read_text())
    assert outputs[0] == outputs[1]


def test_an_output_has_labels_by_name_where_its_columns_moved(files):
    cal = rhocal.load(files / "cal.safetensors")
    invoke("apply", files / "cal.safetensors", files / "other.npz", "-o", files / "out.csv")
    table = pd.read_csv(files / "out.csv")
    assert table["labels"].tolist() == NAMES[Y].tolist()
    np.testing.assert_allclose(table[[f"probs_{name}" for name in NAMES]], cal.predict_proba(Z), rtol=1e-6)


def test_calibrators_of_tables_in_different_order(files):
    """They are evaluated together: each has the columns in its own order."""
    table = pd.DataFrame(Z[:, ORDER], columns=NAMES[ORDER]).assign(labels=NAMES[Y])
    table.to_csv(files / "t.csv", index=False)
    invoke("fit", files / "t.csv", "-m", "svs", "-o", files / "other.safetensors")
    several = ("-c", files / "cal.safetensors", "-c", files / "other.safetensors")
    values = json.loads(invoke("evaluate", files / "t.csv", *several, "--metrics", "nll", "--json"))["values"]
    assert values["svs (cal)"]["nll"] == pytest.approx(values["svs (other)"]["nll"], rel=1e-5)


def test_numbers_as_labels_of_a_frame_whose_columns_move():
    frame = pd.DataFrame(Z[:, ORDER], columns=NAMES[ORDER])
    with pytest.raises(InputError, match="unclear which of them labels count; give labels by name"):
        Predictions.from_arrays(frame, Y, spec=InputSpec(classes=NAMES))


@pytest.fixture
def binary():
    rng = np.random.default_rng(0)
    margin = 3 * rng.normal(size=400) + 1
    is_spam = rng.random(400) < 1 / (1 + np.exp(-(margin - 1) / 2))
    return margin, np.where(is_spam, "spam", "ham")


@pytest.mark.parametrize("method", ["temperature", "svs", "beta"])
def test_a_single_column_is_that_of_the_positive_class(binary, method):
    """Also for a calibrator of two columns whose first is the positive class."""
    margin, labels = binary
    two = pd.DataFrame({"spam": margin / 2, "ham": -margin / 2})
    cal = rhocal.calibrator(method).fit(two, labels, positive="spam")
    assert cal.classes_.tolist() == ["spam", "ham"]
    for single in (margin, margin[:, None], pd.Series(margin)):
        np.testing.assert_allclose(cal.predict_proba(single), cal.predict_proba(two), atol=1e-12)
        assert (cal.predict(single) == cal.predict(two)).all()


def test_tables_of_a_single_column(binary, tmp_path):
    """Fitted, evaluated and applied; with a calibrator of two columns too."""
    margin, labels = binary
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    pd.DataFrame({"score": margin, "labels": labels}).to_csv(one, index=False)
    pd.DataFrame({"spam": margin / 2, "ham": -margin / 2, "labels": labels}).to_csv(two, index=False)
    nll = set()
    for fitted in (one, two):
        cal = tmp_path / f"{fitted.stem}.safetensors"
        invoke("fit", fitted, "-m", "svs", "--positive", "spam", "-o", cal)
        for measured in (one, two):
            document = json.loads(invoke("evaluate", measured, "-c", cal, "--metrics", "nll", "--json"))
            nll.add(round(document["values"]["svs"]["nll"], 6))
            assert document["positive"] == "spam"
        invoke("apply", cal, one, "-o", tmp_path / "out.csv")
        out = pd.read_csv(tmp_path / "out.csv")
        assert np.corrcoef(out["probs_spam"], margin)[0, 1] > 0.5
    assert len(nll) == 1


def test_predictions_below_chance_are_suspected():
    """Columns in another order than the sorted labels, and scores of the other class."""
    with pytest.warns(SuspiciousInputWarning, match="where chance gives 33.3 %"):
        rhocal.evaluate(Z[:, ORDER] * 5, Y, kind="logits")
    margin = np.where(Y == 0, -2.0, 2.0)
    with pytest.warns(SuspiciousInputWarning, match="may be that of the other class"):
        rhocal.calibrator("temperature").fit(margin, (Y > 0).astype(int), positive=0)


def nll(path, *options):
    return json.loads(invoke("evaluate", path, "--metrics", "nll", "--json", *options))["values"]["uncalibrated"]["nll"]


def test_the_index_of_pandas_is_no_weight_and_no_group(tmp_path):
    """``to_csv`` writes the index as a column without a name."""
    table = pd.DataFrame(Z, columns=NAMES).assign(labels=NAMES[Y])
    single = pd.DataFrame({"score": Z[:, 0], "labels": np.where(Y == 0, "yes", "no")}).sort_values("score")
    for kind, frame in (("table", table), ("single", single)):
        for suffix, write in ((".csv", frame.to_csv), (".parquet", frame.to_parquet)):
            indexed, plain = tmp_path / f"{kind}_index{suffix}", tmp_path / f"{kind}{suffix}"
            write(indexed, index=True)
            write(plain, index=False)
            assert nll(indexed) == pytest.approx(nll(plain), rel=1e-12)
        invoke("fit", tmp_path / f"{kind}_index.csv", "-m", "temperature", "-o", tmp_path / "cal.safetensors")


def test_a_column_called_classes_is_a_column(tmp_path):
    table = pd.DataFrame(Z, columns=NAMES).assign(labels=NAMES[Y])
    table.to_csv(tmp_path / "plain.csv", index=False)
    for suffix, write in ((".csv", pd.DataFrame.to_csv), (".parquet", pd.DataFrame.to_parquet)):
        write(table.assign(classes=NAMES[(Y + 1) % 3]), tmp_path / f"more{suffix}", index=False)
        assert nll(tmp_path / f"more{suffix}") == pytest.approx(nll(tmp_path / "plain.csv"))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_missing_labels_are_what_the_error_is_about(tmp_path, suffix):
    table = pd.DataFrame(Z, columns=NAMES).assign(labels=pd.Series(NAMES[Y]).mask(np.arange(400) == 7), weight=1)
    path = tmp_path / f"table{suffix}"
    (table.to_csv if suffix == ".csv" else table.to_parquet)(path, index=False)
    result = CliRunner().invoke(app, ["evaluate", str(path)])
    assert isinstance(result.exception, InputError)
    assert "labels hold" in str(result.exception)
    assert "missing" in str(result.exception)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".npz"])
def test_a_single_column_is_split(binary, tmp_path, suffix):
    margin, labels = binary
    pd.DataFrame({"score": margin, "labels": labels}).to_csv(tmp_path / "one.csv")
    invoke("split", tmp_path / "one.csv", "-o", tmp_path / f"half{suffix}")
    fitted, measured = (
        tmp_path / f"half{part}{suffix}" for part in (("", "") if suffix == ".npz" else ("_val", "_test"))
    )
    invoke("fit", fitted, "-m", "temperature", "--positive", "spam", "-o", tmp_path / "cal.safetensors")
    document = json.loads(invoke("evaluate", measured, "-c", tmp_path / "cal.safetensors", "--json"))
    assert (document["n_samples"], document["positive"]) == (200, "spam")
    assert document["values"]["uncalibrated"]["accuracy"] == pytest.approx(
        np.mean((margin > 0) == (labels == "spam")), abs=0.05
    )


def test_a_profile_is_compared_with_temperature_scaling_too(tmp_path):
    np.savez(tmp_path / "z.npz", logits=Z, labels=Y)
    invoke("profile", tmp_path / "z.npz", "-o", tmp_path / "p.safetensors")
    text = invoke("fit", tmp_path / "p.safetensors", "-m", "field", "-o", tmp_path / "cal.safetensors")
    assert "held-out samples NLL" in text.splitlines()[0]


def test_logits_that_are_an_object(tmp_path):
    """A line such as {"logits": {"mole": 1.5, "walrus": 0.2}, "labels": "mole"}."""
    rows = [
        {"logits": dict(zip(NAMES[ORDER].tolist(), row[ORDER].tolist(), strict=True)), "labels": str(name)}
        for row, name in zip(Z, NAMES[Y], strict=True)
    ]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    np.savez(tmp_path / "plain.npz", logits=Z, labels=Y)
    assert nll(path) == pytest.approx(nll(tmp_path / "plain.npz"))


def test_labels_of_minus_one_and_one(tmp_path):
    margin = Z[:, 0] - Z[:, 1]
    np.savez(tmp_path / "svm.npz", logits=margin, labels=np.where(Y == 0, 1, -1))
    np.savez(tmp_path / "plain.npz", logits=margin, labels=(Y == 0).astype(int))
    assert nll(tmp_path / "svm.npz", "--classes", "-1,1") == pytest.approx(nll(tmp_path / "plain.npz"))


def test_a_warning_names_an_option_of_the_command(tmp_path):
    np.savez(tmp_path / "few.npz", logits=Z[:45], labels=Y[:45])
    fit = ("fit", tmp_path / "few.npz", "-m", "beta", "-o", tmp_path / "cal.safetensors")
    assert "Use -O scope=top-capped to map the confidence alone" in run(*fit).stderr
    assert "samples per class" not in run(*fit, "-O", "scope=top-capped").stderr


def test_options_of_a_question_are_recognized(tmp_path):
    """The line says how to try maps of single columns all the same."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(1200, 4))
    np.savez(tmp_path / "z.npz", logits=2 * truth, labels=(truth + rng.gumbel(size=truth.shape)).argmax(axis=1))
    run_fit = ("fit", tmp_path / "z.npz", "-o", tmp_path / "cal.safetensors", "-O", "time_budget=0.01")
    assert "Use -O exchangeable=false to try them" in run(*run_fit).stderr
    assert "exchangeable" not in run(*run_fit, "-O", "exchangeable=false").stderr


def test_a_fit_on_one_column_takes_no_two_others_as_classes(tmp_path):
    """Two columns of numbers are two classes only if their names state it."""
    margin, labels = Z[:, 0] - Z[:, 1], (Y == 0).astype(int)
    pd.DataFrame({"logit": margin, "labels": labels}).to_csv(tmp_path / "fit.csv", index=False)
    pd.DataFrame({"Logit": margin, "zscore_amount": Z[:, 2]}).to_csv(tmp_path / "other.csv", index=False)
    pd.DataFrame({"p_0": -margin / 2, "p_1": margin / 2}).to_csv(tmp_path / "two.csv", index=False)
    cal = tmp_path / "cal.safetensors"
    invoke("fit", tmp_path / "fit.csv", "-m", "temperature", "-o", cal)
    apply = ["apply", str(cal), str(tmp_path / "other.csv"), "-o", str(tmp_path / "out.csv")]
    result = CliRunner().invoke(app, apply)
    assert isinstance(result.exception, InputError)
    assert "the calibrator was fitted on the column 'logit'" in str(result.exception)
    assert result.exception.argument == "columns"
    outputs = []
    for name, options in (("fit", ()), ("other", ("--columns", "Logit")), ("two", ())):
        invoke("apply", cal, tmp_path / f"{name}.csv", "-o", tmp_path / "out.csv", *options)
        outputs.append(pd.read_csv(tmp_path / "out.csv")["probs_1"])
    for probs in outputs[1:]:
        np.testing.assert_allclose(probs, outputs[0])


@pytest.mark.parametrize("kind", [pd.DataFrame, pd.Series])
def test_a_fit_on_one_named_column_of_a_frame(kind):
    margin, labels = Z[:, 0] - Z[:, 1], (Y == 0).astype(int)
    frame = pd.DataFrame({"logit": margin})
    cal = rhocal.TemperatureScaling().fit(frame if kind is pd.DataFrame else frame["logit"], labels)
    other = pd.DataFrame({"Logit": margin, "zscore_amount": Z[:, 2]})
    for refused in (lambda: cal.predict_proba(other), lambda: rhocal.decide(cal, other, labels, target=0.3)):
        with pytest.raises(InputError, match="fitted on the column 'logit'"):
            refused()
    wanted = cal.predict_proba(margin)
    for two in (np.stack([-margin / 2, margin / 2], 1), pd.DataFrame({"p0": -margin / 2, "p1": margin / 2})):
        np.testing.assert_allclose(cal.predict_proba(two), wanted)
    np.testing.assert_allclose(cal.predict_proba(frame), wanted)


@pytest.mark.parametrize("form", ["{}0C", "class_{}", "P(y={})"])
def test_classes_are_named_in_the_order_of_numbered_columns(tmp_path, form):
    """Of the same table fit and apply read the same; where position and number differ both are refused."""
    columns = [form.format(k) for k in (1, 2, 3)]
    table, moved, cal, out = (tmp_path / name for name in ("t.csv", "moved.csv", "cal.safetensors", "out.csv"))
    pd.DataFrame(Z, columns=columns).assign(labels=NAMES[Y]).to_csv(table, index=False)
    pd.DataFrame(Z, columns=columns)[columns[::-1]].assign(labels=NAMES[Y]).to_csv(moved, index=False)
    options = ("-m", "svs", "-o", cal, "--classes", ",".join(NAMES))
    message = run("fit", moved, *options, code=2).stderr
    assert "put the columns in ascending order" in " ".join(message.split())
    invoke("fit", moved, *options, "--columns", ",".join(columns))
    expected = rhocal.load(cal).predict_proba(Z)
    assert rhocal.load(cal).columns_ == tuple(columns)
    for source in (table, moved):
        invoke("apply", cal, source, "-o", out)
        np.testing.assert_allclose(pd.read_csv(out)[[f"probs_{name}" for name in NAMES]], expected, rtol=1e-6)
