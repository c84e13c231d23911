"""The examples run as they stand, and say what they should."""

import re
import runpy
import sys
import warnings

import pytest

from helpers import ROOT, run

EXAMPLES = {
    "pytorch": r"as trained: ECE (?P<before>[\d.]+)\ncalibrated: ECE (?P<after>[\d.]+)\nexported: ",
    "scikit_learn": r"naive Bayes: ECE (?P<before>[\d.]+).*\ncalibrated: ECE (?P<after>[\d.]+).*\nbest by NLL: ",
    "onnx_model": r"in the place of its Softmax.*\nas it was: ECE (?P<before>[\d.]+)\ncalibrated: ECE (?P<after>[\d.]+)",
    "plain_function": r"largest difference from predict_proba: \de-0[6-9]",
    "lightning_callback": r"temperature [\d.]+\nprobabilities of shape \(3, 4\)",
}


def test_every_example_is_here():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} >= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path, monkeypatch, capsys):
    """In this process: importing the frameworks once more takes longer than the examples do."""
    if name == "lightning_callback":
        pytest.importorskip("lightning")
    path = str(ROOT / "examples" / f"{name}.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [path])
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(path, run_name="__main__")
    printed = capsys.readouterr().out
    match = re.search(EXAMPLES[name], printed)
    assert match, printed
    if "before" in match.groupdict():
        assert float(match["after"]) < 0.6 * float(match["before"])


def test_the_card_says_what_was_fitted_and_what_it_did(tmp_path):
    import numpy as np

    import rhocal

    rhocal.RhoNormScaling().fit(*rhocal.demo_logits("cal")).save(tmp_path / "cal.safetensors")
    logits, labels = rhocal.demo_logits("test")
    np.savez(tmp_path / "test.npz", logits=logits[:2000], labels=labels[:2000])
    short = run("card", tmp_path / "cal.safetensors").stdout
    assert "- method: rho-norm, `RhoNormScaling()`" in short
    assert re.search(r"- parameters: rho = [\d.]+; gamma = [\d.]+; beta = [\d.]+", short)
    assert re.search(r"- date: \d{4}-\d\d-\d\d\n- versions: rhocal ", short)
    assert "ECE" not in short
    long = run("card", tmp_path / "cal.safetensors", "--on", tmp_path / "test.npz").stdout
    assert "Measured on 2,000 samples of test.npz" in long
    row = re.search(
        r"\| ECE \| ([\d.]+) \(([\d.]+) to ([\d.]+)\) \| ([\d.]+) \(([\d.]+) to ([\d.]+)\) \| ([\d.]+) \|", long
    )
    before, low, high, after, *_ = (float(number) for number in row.groups())
    assert low <= before <= high
    assert after < before
    assert before == pytest.approx(rhocal.metrics.ece(logits[:2000], labels[:2000], kind="logits"), abs=1e-4)
