"""Reports from the command line."""

import json

import numpy as np
import pytest

from helpers import run, synthetic


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    logits, labels = synthetic(600, 4, dtype=np.float32)
    np.savez(
        folder / "two.npz", logits_val=logits[:300], labels_val=labels[:300], logits_test=logits[300:],
        labels_test=labels[300:], classes=np.array(["ant", "bee", "cow", "dog"]), room_test=np.repeat(["a", "b"], 150),
    )  # fmt: skip
    np.savez(folder / "one.npz", logits=logits, labels=labels)
    return folder


def test_fit_and_report(folder):
    cal, html = folder / "cal.safetensors", folder / "fit.html"
    assert "fit.html" in run("fit", folder / "two.npz", "-o", cal, "--report", html).stdout
    assert "Same samples" not in html.read_text(encoding="utf-8")
    out, document = folder / "report.html", folder / "report.json"
    run("report", folder / "two.npz", "-c", cal, "-o", out, "--json-output", document, "--groups", "room")
    found = json.loads(document.read_text(encoding="utf-8"))
    assert found["data"]["n_samples"] == 300
    assert {row["slice"] for row in found["slices"]["rows"]} == {"a", "b"}
    assert {row["class"] for row in found["classes"]["rows"]} == {"ant", "bee", "cow", "dog"}
    assert [i["name"] for i in found["reproduce"]["inputs"]] == [str(folder / "two.npz"), str(cal)]
    assert found["reproduce"]["commands"][0].startswith("rhocal report ")
    again = folder / "again.html"
    run("report", document, "-o", again)
    assert again.read_bytes() == out.read_bytes()
    assert json.loads(run("report", document, "-o", again, "--json").stdout) == found  # --json prints, as everywhere


def test_fit_on_one_set_warns_that_it_is_measured_on_itself(folder):
    html = folder / "same.html"
    done = run(
        "fit", folder / "one.npz", "-m", "temperature", "-o", folder / "t.safetensors", "--report", html, "--json"
    )
    assert json.loads(done.stdout)["method"] == "temperature"  # the path of the report does not spoil the JSON
    assert "Same samples." in html.read_text(encoding="utf-8")


def test_compare_writes_a_report(folder):
    html = folder / "compare.html"
    run("compare", folder / "two.npz", "--methods", "identity,temperature,rho-norm", "--report", html)
    assert "With <bdi" in html.read_text(encoding="utf-8")
    done = run("compare", folder / "two.npz", folder / "one.npz", "--report", html, code=2)
    assert "--report is about one file; got 2" in done.stderr


def test_report_refuses(folder):
    assert ".html" in run("report", folder / "one.npz", "-o", folder / "x.pdf", code=2).stderr
    (folder / "bad.json").write_text("[1]", encoding="utf-8")
    assert "not a report" in run("report", folder / "bad.json", "-o", folder / "x.html", code=2).stderr
