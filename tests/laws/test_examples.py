"""The examples run as they stand, and say what they should."""

import os
import re
import subprocess
import sys

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
def test_example(name, tmp_path):
    if name == "lightning_callback":
        pytest.importorskip("lightning")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = re.search(EXAMPLES[name], done.stdout)
    assert found, done.stdout
    if "before" in found.groupdict():
        assert float(found["after"]) < 0.6 * float(found["before"])


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
