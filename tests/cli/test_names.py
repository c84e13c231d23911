"""A calibrator keeps the name of its method in everything that commands print and write."""

import json
import re

import numpy as np
import pytest

import rhocal
from helpers import as_parquet, card_of, run, synthetic
from rhocal.calibrators import CALIBRATORS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    logits, labels = synthetic(800, 3, dtype=np.float32)
    logits += np.array([2, 0, -2], dtype=np.float32)  # one temperature is not enough: no chain falls back to it
    np.savez(
        folder / "two.npz", logits_val=logits[:400], labels_val=labels[:400], logits_test=logits[400:],
        labels_test=labels[400:],
    )  # fmt: skip
    (folder / "stream").mkdir()
    as_parquet(folder / "stream" / "a.parquet", logits[:200], labels[:200])
    run("fit", folder / "two.npz", "-m", "svs:temperature", "-o", folder / "cal.safetensors")
    return folder


COMMANDS = {
    "fit": ("fit", "two.npz", "-m", "svs:temperature", "-o", "again.safetensors", "--report", "fit.html"),
    "apply": ("apply", "cal.safetensors", "two.npz", "-o", "out.csv"),
    "evaluate": ("evaluate", "two.npz", "-c", "cal.safetensors"),
    "export": ("export", "cal.safetensors", "-o", "cal.onnx"),
    "report": ("report", "two.npz", "-c", "cal.safetensors", "-o", "page.html", "--json-output", "page.json"),
    "compare": (
        "compare",
        "two.npz",
        "--methods",
        "identity,svs:temperature",
        "-o",
        "rows.csv",
        "--report",
        "cmp.html",
    ),
    "card": ("card", "cal.safetensors", "--on", "two.npz"),
    "plot": ("plot", "risk-coverage", "two.npz", "-c", "cal.safetensors", "-o", "plot.svg"),
    "monitor": ("monitor", "stream", "-c", "cal.safetensors", "-s", "state.json"),
}
NAMELESS = {"plot", "monitor"}
"""Commands that print no name of a calibrator; ``report`` prints it with --json."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_chain_keeps_its_name(folder, command):
    before = set(folder.iterdir())
    arguments = COMMANDS[command]
    as_json = [] if command in {"card", "plot"} else [[*arguments, "--json"]]
    texts = [run(*one, cwd=folder).stdout for one in (arguments, *as_json)]
    assert command in NAMELESS or "svs:temperature" in texts[-1]
    written = set(folder.iterdir()) - before
    assert written or command in {"evaluate", "card"}
    texts += [path.read_bytes().decode("utf-8", "ignore") for path in written if path.is_file()]
    for text in texts:
        assert not re.search(r"\bchain\b", re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL))


def test_the_page_and_the_model_card_name_stages_and_evidence(folder):
    run(*COMMANDS["report"], cwd=folder)
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "Options (svs:temperature)" in page
    assert "component: first (svs)" in page
    fit = json.loads((folder / "page.json").read_text(encoding="utf-8"))["methods"][1]["fit"]
    assert (fit["method"], fit["children"]["first"]["method"]) == ("svs:temperature", "svs")
    line = rhocal.load(folder / "cal.safetensors").solution_.held_out.summary
    assert line.startswith("on 400 held-out samples NLL 0.")
    assert line in page
    assert f"- evidence: {line}\n" in run("card", folder / "cal.safetensors").stdout


@pytest.mark.parametrize("method", [*CALIBRATORS, "vector:temperature"])
def test_every_method_keeps_its_name_in_an_artifact(tmp_path, method):
    logits, labels = synthetic(60, 3)
    calibrator = rhocal.calibrator(method)
    assert calibrator.label == method
    if method in {
        "identity",
        "temperature-avuc",
        "svs",
        "smart",
        "centered-isotonic",
        "dirichlet",
        "vector:temperature",
    }:
        calibrator.fit(logits, labels).save(tmp_path / "cal.safetensors")
        assert card_of(tmp_path / "cal.safetensors")["method"] == method
        assert rhocal.load(tmp_path / "cal.safetensors").label == method


def test_fit_first_prints_what_auto_chose(folder):
    arguments = (
        "fit",
        folder / "two.npz",
        "-O",
        'methods=["temperature","svs:temperature"]',
        "-o",
        folder / "a.safetensors",
    )
    document = json.loads(run(*arguments, "--json").stdout)
    chosen, held_out = document["chosen"], document["held_out"]
    assert chosen["method"] == rhocal.load(folder / "a.safetensors").chosen_.label
    assert (chosen["nll"], chosen["temperature_nll"]) == (held_out["nll"]["auto"], held_out["nll"]["temperature"])
    assert (chosen["brier"], chosen["temperature_brier"]) == (
        held_out["brier"]["auto"],
        held_out["brier"]["temperature"],
    )
    first = run(*arguments).stdout.splitlines()[0]
    assert first == (
        f"auto chose {chosen['method']}: on 400 held-out samples NLL {chosen['nll']:.4f} (temperature "
        f"{chosen['temperature_nll']:.4f}), Brier {chosen['brier']:.4f} (temperature {chosen['temperature_brier']:.4f})"
    )
