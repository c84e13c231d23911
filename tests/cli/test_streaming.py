"""The command line on files that are read block by block."""

import itertools
import json

import numpy as np
import pytest

import rhocal
from helpers import as_parquet, run, uneven
from rhocal.data import sampling


def test_fit_evaluate_and_profile_block_by_block(tmp_path):
    logits, labels = uneven(1500, 100, np.float16)
    as_parquet(tmp_path / "a.parquet", logits[:800].astype(np.float32), labels[:800])
    as_parquet(tmp_path / "b.parquet", logits[800:].astype(np.float32), labels[800:])
    file = tmp_path / "whole" / "z.npz"  # not beside the Parquet files, of which all data of a folder is read
    file.parent.mkdir()
    np.savez(file, logits=logits, labels=labels)
    cal = tmp_path / "cal.safetensors"
    said = json.loads(run("fit", tmp_path, "-m", "rho-norm", "-o", cal, "--json").stdout)
    same = json.loads(run("fit", file, "-m", "rho-norm", "-o", cal, "--json").stdout)
    assert said["parameters"] == same["parameters"]  # a pilot has room for all rows
    assert (said["n_samples"], said["bytes_read"]) == (1500, logits.size * 4)
    blocks = json.loads(run("evaluate", tmp_path / "*.parquet", "-c", cal, "--json").stdout)
    whole = json.loads(run("evaluate", file, "-c", cal, "--json").stdout)
    for who in ("uncalibrated", "rho-norm"):
        assert blocks["values"][who] == pytest.approx(whole["values"][who], rel=1e-5)
        assert blocks["evaluation"][who]["verdict"] == whole["evaluation"][who]["verdict"]
        mine, theirs = (found["evaluation"][who]["values"] for found in (blocks, whole))
        assert list(mine) == list(theirs)
        for metric, name in itertools.product(theirs, ("value", "low", "high", "floor", "p_value")):
            assert mine[metric][name] == pytest.approx(theirs[metric][name], rel=1e-4, abs=1e-6), (who, metric, name)
    for name in ("value", "low", "high"):
        ours, same_here = (found["differences"]["rho-norm"]["ece"][name] for found in (blocks, whole))
        assert ours == pytest.approx(same_here, rel=1e-4, abs=1e-6)
    text = run("evaluate", tmp_path / "*.parquet", "-c", cal).stdout
    assert "verdict: " in text
    assert "on the same samples" in text
    added = json.loads(run("evaluate", tmp_path / "*.parquet", "--metrics", "rmsce", "--json").stdout)  # has no floor
    assert added["values"]["uncalibrated"]["rmsce"] == pytest.approx(
        rhocal.metrics.rmsce(logits, labels, kind="logits"), rel=1e-5
    )
    assert 0 < added["ece_floor"]["uncalibrated"] < 0.1
    profile = tmp_path / "p.safetensors"
    run("profile", file, "--stream", "-o", profile)
    again = json.loads(run("fit", profile, "-m", "rho-norm", "-o", cal, "--json").stdout)
    assert again["parameters"]["gamma"] == pytest.approx(same["parameters"]["gamma"], rel=1e-3)
    assert "class-axis" in run("fit", tmp_path, "--class-axis", "1", "-o", cal, code=2).stderr


def test_more_rows_than_a_pilot_has(tmp_path):
    """The fit is that of profiles of the blocks, which no longer have the logits."""
    logits, labels = uneven(900, 10_000, np.float16)
    assert len(logits) > sampling.pilot_size(logits)
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    cal = tmp_path / "cal.safetensors"
    said = json.loads(run("fit", tmp_path / "z.npz", "--stream", "-m", "temperature", "-o", cal, "--json").stdout)
    same = json.loads(run("fit", tmp_path / "z.npz", "-m", "temperature", "-o", cal, "--json").stdout)
    assert (said["n_samples"], said["n_classes"], said["bytes_read"]) == (900, 10_000, logits.nbytes)
    found, expected = said["parameters"]["temperature"], same["parameters"]["temperature"]
    assert found != expected
    assert found == pytest.approx(expected, rel=2e-5)
