"""The command line, as people run it: a process of its own."""

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import as_parquet, run, synthetic
from rhocal.calibrators import CALIBRATORS
from rhocal.cli import app
from rhocal.cli.demo import LESSONS, SHOWN, TITLES
from rhocal.errors import FileError, MissingExtraError
from rhocal.metrics import CORE, METRICS
from rhocal.reporting import tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    logits, labels = synthetic(400, 4, dtype=np.float32)
    np.savez(folder / "one.npz", logits=logits, labels=labels)
    np.savez(
        folder / "two.npz",
        logits_val=logits[:200],
        labels_val=labels[:200],
        logits_test=logits[200:],
        labels_test=labels[200:],
        classes=np.array(["ant", "bee", "cow", "dog"]),
    )
    return folder


def test_version_and_help():
    assert run("--version").stdout == f"rhocal {rhocal.__version__}\n"
    help_text = run("--help").stdout
    commands = "split fit profile apply evaluate compare report plot methods metrics power shift export card demo"
    for command in commands.split():
        assert command in help_text
        assert "Usage" in run(command, "--help").stdout


def test_methods():
    shown = run("methods").stdout
    assert all(name in shown for name in CALIBRATORS)
    listed = json.loads(run("methods", "--json").stdout)["methods"]
    assert [line["method"] for line in listed] == list(CALIBRATORS)


def test_the_options_of_a_method():
    shown = run("methods", "rho-norm").stdout
    assert "'expected' or 'sgd'" in shown
    (method,) = json.loads(run("methods", "sms:field", "--json").stdout)["methods"]
    assert method["options"]["n_folds"] == {"default": "10", "values": "a whole number of at least 2"}
    assert method["options"]["second__ridge"]["values"] == "'cv' or a number of at least 0"
    done = run("methods", "rho-nrom", code=2)
    assert "did you mean 'rho-norm'?" in done.stderr


def test_metrics():
    text = run("metrics").stdout
    assert all(name in text for name in METRICS)
    listed = json.loads(run("metrics", "--json").stdout)["metrics"]
    assert [line["metric"] for line in listed] == list(METRICS)
    for line in listed:
        assert line["reference"]
        assert line["streams"] in {"exactly", "sketch", "no"}
        assert line["no_sums_reason"] or line["streams"] == "exactly"
    assert listed[1]["range"] == [0, 1]
    assert next(line for line in listed if line["metric"] == "nll")["range"] == [0, None]  # no end


def test_fit_apply_evaluate(folder):
    cal = folder / "cal.safetensors"
    text = run("fit", folder / "two.npz", "-m", "rho-norm", "-o", cal).stdout
    assert "gamma" in text
    assert "saved" in text
    out = folder / "out.npz"
    run("apply", cal, folder / "two.npz", "-o", out)
    with np.load(folder / "two.npz") as source, np.load(out) as written:
        loaded = rhocal.load(cal)
        np.testing.assert_array_equal(written["probs"], loaded.predict_proba(source["logits_test"]))
        np.testing.assert_array_equal(written["predicted"], source["classes"][source["logits_test"].argmax(1)])
        np.testing.assert_array_equal(written["confidence"], written["probs"].max(1))
        np.testing.assert_array_equal(written["labels"], source["classes"][source["labels_test"]])
        expected = rhocal.metrics.ece(written["probs"], source["labels_test"])
    figures = json.loads(run("evaluate", folder / "two.npz", "-c", cal, "--json").stdout)["values"]
    assert set(figures["rho-norm"]) == set(CORE)
    assert np.isclose(figures["rho-norm"]["ece"], expected, atol=1e-6)
    assert figures["rho-norm"]["nll"] < figures["uncalibrated"]["nll"]
    assert "ECE" in run("evaluate", folder / "one.npz").stdout


def test_fit_takes_options_and_says_what_it_found(folder):
    done = run(
        *("fit", folder / "one.npz", "-m", "rho-norm", "-O", "rho=2", "-O", "objective=nll", "-O", "center=false"),
        *("-o", folder / "x.safetensors", "--json"),
    )
    document = json.loads(done.stdout)
    assert document["parameters"]["rho"] == 2
    assert document["objective"] == "nll"
    assert document["converged"]
    values = document["calibration_set"]
    assert values["rho-norm"]["nll"] < values["uncalibrated"]["nll"]
    cal = rhocal.load(folder / "x.safetensors")
    assert cal.center is False


def test_chains_are_written_with_a_colon(folder):
    cal = folder / "chain.safetensors"
    done = run(
        *("fit", folder / "one.npz", "-m", "svs:temperature", "-O", "first__ridge_diagonal=2", "-o", cal, "--json")
    )
    document = json.loads(done.stdout)
    assert document["objective"] == "nll, then nll"
    assert document["parameters"]["second.temperature"] == rhocal.load(cal).second_.temperature_
    assert rhocal.load(cal).first_.ridge_diagonal == 2
    done = run("compare", folder / "one.npz", "--methods", "svs,svs:temperature", "--seeds", 1, "--json")
    assert [line["method"] for line in json.loads(done.stdout)["summary"]] == ["svs", "svs:temperature"]
    assert "did you mean 'svs'" in run("fit", folder / "one.npz", "-m", "svss:field", "-o", cal, code=2).stderr


def test_apply_writes_logits_and_csv(folder):
    cal = folder / "t.safetensors"
    run("fit", folder / "one.npz", "-m", "temperature", "-o", cal)
    run("apply", cal, folder / "one.npz", "-o", folder / "out.csv")
    assert (
        (folder / "out.csv")
        .read_text(encoding="utf-8")
        .startswith("probs_0,probs_1,probs_2,probs_3,predicted,confidence,labels\n")
    )
    run("apply", cal, folder / "one.npz", "-o", folder / "out.npy", "--write", "logits")
    with np.load(folder / "one.npz") as source:
        np.testing.assert_array_equal(np.load(folder / "out.npy"), rhocal.load(cal).transform(source["logits"]))


def test_compare(folder):
    rows_file = folder / "rows.csv"
    done = run(
        *("compare", folder / "one.npz", folder / "two.npz", "--methods", "identity,temperature,vector", "--seeds", 2),
        *("-o", rows_file, "--json"),
    )
    document = json.loads(done.stdout)
    assert [line["method"] for line in document["summary"]] == ["identity", "temperature", "vector"]
    splits = [(row["network"], row["split"]) for row in document["rows"][::3]]
    assert splits == [("one", "seed 0"), ("one", "seed 1"), ("two", "own")]
    assert len(rows_file.read_text(encoding="utf-8").splitlines()) == 1 + 9
    nll = {line["method"]: line["nll"] for line in document["summary"]}
    assert nll["temperature"] < nll["identity"]
    by_hand = [
        np.mean([r["nll"] for r in document["rows"] if (r["network"], r["method"]) == (n, "vector")])
        for n in ("one", "two")
    ]
    assert np.isclose(nll["vector"], np.mean(by_hand))
    text = run(
        "compare", folder / "one.npz", folder / "two.npz", "--methods", "identity,temperature", "--per-network"
    ).stdout
    assert "mean over 2 networks" in text


def test_compare_has_a_default_set_of_methods(folder):
    common = ["identity", "temperature", "rho-norm", "field", "svs", "svs:field", "cascade"]
    logits, labels = synthetic(300, 2)
    np.savez(folder / "binary.npz", logits=logits, labels=labels)
    (folder / "parts").mkdir()
    as_parquet(folder / "parts" / "a.parquet", logits, labels)

    def methods(*arguments):
        document = json.loads(run("compare", *arguments, "--seeds", 1, "--json").stdout)
        return [line["method"] for line in document["summary"]]

    assert methods(folder / "one.npz") == common
    both = [*common, "quadratic", "beta", "centered-isotonic", "venn-abers"]
    assert methods(folder / "binary.npz") == methods(folder / "parts") == both
    assert methods(folder / "binary.npz", folder / "two.npz") == common  # what all files have in common


def test_a_report_that_cannot_be_written_is_an_error_before_the_work(folder, monkeypatch):
    def never(*_, **__):
        raise AssertionError("work has begun")

    monkeypatch.setattr("rhocal.cli.execution.ExecutionOptions.open", never)
    monkeypatch.setitem(sys.modules, "plotly", None)
    source, target = str(folder / "two.npz"), str(folder / "late.safetensors")
    for arguments in (["compare", source], ["fit", source, "-o", target]):
        with pytest.raises(MissingExtraError, match=r"needs plotly.*rhocal\[report\]"):
            CliRunner().invoke(app, [*arguments, "--report", "page.html"], catch_exceptions=False)
        with pytest.raises(FileError, match=r"page\.pdf: .* end in \.html"):
            CliRunner().invoke(app, [*arguments, "--report", "page.pdf"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "missing.npz", "-o", "x.safetensors"), "missing.npz: no such file"),
        (("fit", "one.npz", "-m", "temprature", "-o", "x.safetensors"), "did you mean 'temperature'?"),
        (("fit", "one.npz", "-o", "no/x.safetensors"), "the folder no does not exist"),
        (("fit", "one.npz", "-O", "rho", "-o", "x.safetensors"), "-O takes NAME=VALUE"),
        (("fit", "one.npz", "-m", "rho-norm", "-O", "rho=0", "-o", "x.safetensors"), "at least 1"),
        (("fit", "one.npz", "--kind", "probs", "-o", "x.safetensors"), "Use --kind logits to"),
        (("fit", "one.npz", "--kind", "logit", "-o", "x.safetensors"), "kind is one of"),
        (("apply", "one.npz", "one.npz", "-o", "x.npz"), "not a safetensors file"),
        (("evaluate", "one.npz", "--logits-name", "scores"), "found logits (400, 4)"),
        (("evaluate", "one.npz", "--metrics", "eec"), "there is no metric 'eec'"),
        (("compare", "one.npz", "--methods", "temperature,magic"), "there is no method 'magic'"),
        (("compare",), "Missing argument"),
        (("evaluate", "one.npz", "--bins", "3"), "No such option"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, arguments, message):
    done = run(*arguments, code=2, cwd=folder)
    assert message in done.stderr
    assert done.stdout == ""
    if done.stderr.startswith("error:"):
        assert len(done.stderr.splitlines()) == 1


def test_warnings_are_one_line(tmp_path):
    logits, _ = synthetic(50, 3)
    np.savez(tmp_path / "right.npz", logits=logits, labels=logits.argmax(1))
    done = run("fit", tmp_path / "right.npz", "-m", "temperature", "-o", tmp_path / "x.safetensors")
    assert done.stderr.startswith("warning: all calibration samples are predicted correctly")
    assert len(done.stderr.splitlines()) == 1


def test_demo(tmp_path):
    """An over-confident network, rare positives and options: each is wrong before, and not shown to be wrong after."""
    text = run("demo", cwd=tmp_path).stdout
    assert all(name in text for name in SHOWN)
    folder = tmp_path / "rhocal-demo"
    page = (folder / "report.html").read_text(encoding="utf-8")
    for name, title in TITLES.items():
        assert title in text
        assert title in page
        assert f'href="{name}.html"' in page
        cal = rhocal.load(folder / f"{name}.safetensors")
        logits, labels = rhocal.demo_logits("test", name)
        before, after = (
            rhocal.evaluate(logits, labels, kind="logits"),
            rhocal.evaluate(cal.predict_proba(logits), labels),
        )
        assert (before.state, after.distinguishable) == ("beyond", False)
        assert after.state == ("undecided" if name == "options" else "within")  # as the lessons say
        assert LESSONS[name] in text
        assert LESSONS[name] in page
        assert after.verdict.replace("class 1", "class fraud") in text
    assert rhocal.evaluate(*rhocal.demo_logits("test"), kind="logits")["ece"].value > 0.08
    *_, title, first, second, third = text.splitlines()
    assert title == "three commands to try next:"
    for command in (first, second, third):
        assert command.startswith("  rhocal ")
    run(*first.split()[1:], cwd=tmp_path)
    run(*third.split()[1:], cwd=tmp_path)


def test_domains_come_from_a_file_of_their_own(folder):
    logits, labels = synthetic(400, 4, dtype=np.float32)
    logits[200:] *= 3
    groups = np.repeat(["day", "night"], 200)
    np.savez(folder / "rooms.npz", logits=logits, labels=labels)
    np.save(folder / "groups.npy", groups)
    (folder / "groups.csv").write_text("\n".join(["groups", *groups]) + "\n", encoding="utf-8")
    target = folder / "rooms.safetensors"
    run("fit", folder / "rooms.npz", "-m", "multi-domain", "--groups", folder / "groups.csv", "-o", target)
    cal = rhocal.load(target)
    assert cal.domains_.tolist() == ["day", "night"]
    run("apply", target, folder / "rooms.npz", "--groups", folder / "groups.npy", "-o", folder / "out.npz")
    expected = cal.predict_proba(logits, groups=groups)
    np.testing.assert_array_equal(np.load(folder / "out.npz")["probs"], expected)
    done = run("evaluate", folder / "rooms.npz", "-c", target, "--groups", folder / "groups.npy", "--json")
    figures = json.loads(done.stdout)["values"]["multi-domain"]
    assert np.isclose(figures["nll"], rhocal.metrics.nll(expected, labels), rtol=1e-5)
    refused = run("fit", folder / "rooms.npz", "-m", "field", "--groups", folder / "groups.npy", "-o", target, code=2)
    assert "does not use groups" in refused.stderr


def test_evaluate_reads_like_a_verdict(folder):
    text = run("evaluate", folder / "one.npz").stdout
    assert "true value (95 %)" in text  # binned errors of a sample may lie above this interval
    assert "if calibrated" in text  # of Accuracy too, where higher is better
    assert "verdict: over-confident by" in text
    cal = folder / "v.safetensors"
    run("fit", folder / "two.npz", "-m", "temperature", "-o", cal)
    text = run("evaluate", folder / "two.npz", "-c", cal).stdout
    assert "temperature against 'uncalibrated', on the same samples: ece -" in text
    assert text.count("verdict:") == 2
    document = json.loads(run("evaluate", folder / "two.npz", "-c", cal, "--json").stdout)
    assert set(document) == {"n_samples", "n_classes", "values", "evaluation", "differences"}
    before = document["evaluation"]["uncalibrated"]
    assert before["values"]["ece"]["value"] == document["values"]["uncalibrated"]["ece"]
    assert before["values"]["ece"]["floor"] > 0
    assert document["differences"]["temperature"]["nll"]["value"] < 0


def test_evaluate_measures_every_calibrator(folder):
    files = [folder / "first.safetensors", folder / "second.safetensors", folder / "third.safetensors"]
    run("fit", folder / "two.npz", "-m", "temperature", "-o", files[0])
    run("fit", folder / "two.npz", "-m", "temperature", "-O", "objective=brier", "-o", files[1])
    run("fit", folder / "two.npz", "-m", "svs:temperature", "-o", files[2])
    arguments = ("evaluate", folder / "two.npz", *(part for file in files for part in ("-c", file)))
    document = json.loads(run(*arguments, "--json").stdout)
    names = ["temperature (first)", "temperature (second)", "svs:temperature"]
    assert list(document["values"]) == list(document["evaluation"]) == ["uncalibrated", *names]
    assert list(document["differences"]) == names
    with np.load(folder / "two.npz") as f:
        for name, file in zip(names, files, strict=True):
            want = rhocal.metrics.nll(rhocal.load(file).predict_proba(f["logits_test"]), f["labels_test"])
            assert document["values"][name]["nll"] == pytest.approx(want, rel=1e-6)
    text = " ".join(run(*arguments).stdout.split())
    assert all(f"{name} against 'uncalibrated', on the same samples" in text for name in names)
    run("fit", folder / "one.npz", "-m", "temperature", "-o", folder / "other.safetensors")
    error = run("evaluate", folder / "two.npz", "-c", files[0], "-c", folder / "other.safetensors", code=2).stderr
    assert "-c: other.safetensors and first.safetensors were fitted on different classes" in error


def test_evaluate_by_group(folder):
    with np.load(folder / "one.npz") as f:
        logits, labels = f["logits"], f["labels"]
    site = np.where(np.arange(400) < 200, "here", "there")
    np.savez(folder / "sites.npz", logits=logits, labels=labels, site=site)
    text = run("evaluate", folder / "sites.npz", "--groups", "site").stdout
    assert "worst group first" in text
    assert "there" in text
    rows = ["a,b,c,d,labels,site"]
    rows += [",".join([*map(str, z), str(y), s]) for z, y, s in zip(logits, labels, site, strict=True)]
    (folder / "sites.csv").write_text("\n".join(rows), encoding="utf-8")
    found = [
        json.loads(run("evaluate", folder / f"sites.{ending}", "--groups", "site", "--json").stdout)
        for ending in ("npz", "csv")
    ]
    for document in found:
        groups = document["evaluation"]["uncalibrated"]["groups"]
        assert {group["group"]: group["n_samples"] for group in groups} == {"here": 200, "there": 200}
    kept = json.loads(run("evaluate", folder / "sites.npz", "--groups", "site", "--ignore-index", 0, "--json").stdout)[
        "evaluation"
    ]["uncalibrated"]["groups"]
    assert sum(group["n_samples"] for group in kept) == int((labels != 0).sum())
    run("fit", folder / "two.npz", "-m", "temperature", "-o", folder / "g.safetensors")
    text = run("evaluate", folder / "two.npz", "-c", folder / "g.safetensors", "--groups", "predicted").stdout
    assert text.count("│ bee") == 4  # rows of the table of groups and that of classes, before and after
    done = run("evaluate", "one.npz", "--groups", "site", code=2, cwd=folder)
    assert "no array or column 'site'" in done.stderr


def test_power(folder):
    text = run("power", folder / "one.npz", "--excess", "0.05,0.1").stdout
    assert "to detect it with 80 % power, with false alarms for 5 % of calibrated models" in text
    assert "samples needed" in text
    document = json.loads(run("power", "--accuracy", "0.9", "--json").stdout)
    sizes = [line["n_samples"] for line in document["needed"]]
    assert sizes == sorted(sizes, reverse=True)
    assert "either a file of logits or --accuracy" in run("power", code=2).stderr
    assert "--excess takes numbers" in run("power", "--accuracy", "0.9", "--excess", "a", code=2).stderr


def test_shift(folder):
    text = run("shift", folder / "two.npz", folder / "two.npz").stdout
    assert "verdict:" in text
    assert "estimated by threshold" in text
    with np.load(folder / "one.npz") as f:
        np.save(folder / "large.npy", 4 * f["logits"])
    done = run("shift", folder / "one.npz", folder / "large.npy", "--json")
    assert done.stderr.startswith("warning: production leaves the range of the calibration set")
    assert len(done.stderr.splitlines()) == 1
    assert json.loads(done.stdout)["outside"]["norm"] > 0.3
    cal = folder / "s.safetensors"
    run("fit", folder / "two.npz", "-m", "temperature", "-o", cal)
    assert (
        json.loads(run("shift", folder / "two.npz", folder / "two.npz", "-c", cal, "--json").stdout)["n_calibration"]
        == 200
    )


def test_split(folder):
    output = folder / "cut.npz"
    said = json.loads(run("split", folder / "one.npz", "--cal", 0.25, "-o", output, "--json").stdout)
    assert (said["n_calibration"], said["n_test"]) == (100, 300)
    with np.load(folder / "one.npz") as whole, np.load(output) as cut:
        both = np.concatenate([cut["logits_val"], cut["logits_test"]])
        np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(whole["logits"], axis=0))
    assert "already" in run("split", output, "-o", folder / "again.npz", code=2).stderr
    assert "both sides" in run("split", folder / "one.npz", "--cal", 1, "-o", output, code=2).stderr


def test_progress_is_printed_as_lines_where_stderr_is_not_a_terminal(capsys, monkeypatch):
    with tables.progress("fitting", 2) as step:
        step("a")
    assert capsys.readouterr().err == ""  # short work
    monkeypatch.setattr(tables, "SECONDS_BETWEEN_LINES", 0.0)
    with tables.progress("fitting", 2) as step:
        step("net, svs")
        step("net, field")
    assert capsys.readouterr().err == "fitting: 1 of 2, net, svs (0 s)\nfitting: 2 of 2, net, field (0 s)\n"
    with tables.row_progress("measuring", None) as count:
        count(1500)
    assert capsys.readouterr().err == "measuring: 1,500 rows (0 s)\n"
