"""Fits without the logits: a profile on disk."""

import json

import numpy as np
import pytest

import rhocal
from helpers import real, run, synthetic
from rhocal.data.storage.container import read_tensors, write_tensors
from rhocal.errors import FileError, InputError
from rhocal.profile import saved as saved_profile

METHODS = ["temperature", "temperature-avuc", "rho-norm", "field", "smart", "pts"]


@pytest.mark.parametrize("method", METHODS)
def test_a_fit_on_the_profile_is_the_fit_on_the_logits(method, tmp_path):
    logits, labels, test, _ = real("cifar100_resnet56")
    path = tmp_path / "profile.safetensors"
    rhocal.save_profile(rhocal.profile_logits(logits, labels), path)
    with_logits = rhocal.calibrator(method).fit(logits, labels)
    without = rhocal.calibrator(method).fit_profile(rhocal.load_profile(path))
    away = np.abs(with_logits.predict_proba(test) - without.predict_proba(test)).max()
    assert away < (1e-2 if method == "pts" else 1e-4)  # a network has many optima next to each other
    np.testing.assert_array_equal(without.classes_, np.arange(100))


def test_the_profile_is_smaller_than_the_logits(tmp_path):
    logits, labels = synthetic(500, 1000, dtype=np.float32)
    path = tmp_path / "profile.safetensors"
    rhocal.save_profile(rhocal.profile_logits(logits, labels), path)
    assert path.stat().st_size < 0.15 * logits.nbytes


def test_few_classes_keep_their_logits_and_everything_works(tmp_path):
    logits, labels = synthetic(500, 4)
    weights = np.random.default_rng(0).uniform(0, 2, 500)
    path = tmp_path / "profile.safetensors"
    rhocal.save_profile(rhocal.profile_logits(logits, labels, weights, classes=["a", "b", "c", "d"]), path)
    cal = rhocal.RhoNormScaling(rho="learn").fit_profile(rhocal.load_profile(path))
    same = rhocal.RhoNormScaling(rho="learn").fit(logits, labels, weights)
    assert cal.gamma_ == pytest.approx(same.gamma_, rel=1e-9)
    assert cal.classes_.tolist() == ["a", "b", "c", "d"]


def test_scales_beyond_the_saved_rings_follow_the_tangent(tmp_path):
    logits, labels = synthetic(200, 100)
    path = tmp_path / "profile.safetensors"
    rhocal.save_profile(rhocal.profile_logits(logits, labels), path)
    saved = rhocal.load_profile(path)
    centre = np.exp(saved.table.log_center)
    for factor in (1 / 200, 1 / 20, 1, 5, 50):
        scale = np.full(200, centre * factor)
        h = scale * 1e-4
        at = saved.curve(scale, order=2)
        slope = (saved.curve(scale + h).value - saved.curve(scale - h).value) / (2 * h)
        np.testing.assert_allclose(at.first, slope, rtol=1e-3, atol=1e-4 * np.abs(at.first).max())


def test_what_a_profile_does_not_hold_is_a_clear_error(tmp_path):
    logits, labels = synthetic(200, 100)
    path = tmp_path / "profile.safetensors"
    rhocal.save_profile(rhocal.profile_logits(logits, labels), path)
    saved = rhocal.load_profile(path)
    with pytest.raises(InputError, match=r"saved without its logits, and the norm for rho = 1.1"):
        rhocal.RhoNormScaling(rho=1.1).fit_profile(saved)
    with pytest.raises(InputError, match="learned"):
        rhocal.RhoNormScaling(rho="learn").fit_profile(saved)
    with pytest.raises(FileError, match="not a calibrator"):
        rhocal.load(path)
    cal = tmp_path / "cal.safetensors"
    rhocal.TemperatureScaling().fit(logits, labels).save(cal)
    with pytest.raises(FileError, match="not a profile"):
        rhocal.load_profile(cal)
    with pytest.raises(InputError, match="labels are missing"):
        rhocal.profile_logits(logits, None)


@pytest.mark.parametrize(("schema", "said"), [(1, "Make the profile again"), (99, "Upgrade rhocal")])
def test_a_profile_of_another_schema_is_refused(tmp_path, monkeypatch, schema, said):
    path = tmp_path / "profile.safetensors"
    monkeypatch.setattr(saved_profile, "SCHEMA", schema)
    rhocal.save_profile(rhocal.profile_logits(*synthetic(200, 100)), path)
    monkeypatch.undo()
    with pytest.raises(FileError, match=said):
        rhocal.load_profile(path)


def test_command_line(tmp_path):
    logits, labels = synthetic(400, 100)
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    profile, cal = tmp_path / "p.safetensors", tmp_path / "c.safetensors"
    said = json.loads(run("profile", tmp_path / "z.npz", "-o", profile, "--json").stdout)
    assert (said["n_samples"], said["n_classes"]) == (400, 100)
    fitted = json.loads(run("fit", profile, "-m", "rho-norm", "-o", cal, "--json").stdout)
    same = json.loads(run("fit", tmp_path / "z.npz", "-m", "rho-norm", "-o", cal, "--json").stdout)
    assert fitted["parameters"]["beta"] == pytest.approx(same["parameters"]["beta"], rel=1e-4)
    assert "vector needs the logits" in run("fit", profile, "-m", "vector", "-o", cal, code=2).stderr


@pytest.mark.parametrize("n_classes", [5, 100])
def test_a_changed_profile_is_refused(tmp_path, n_classes):
    path = tmp_path / "profile.safetensors"
    rhocal.save_profile(rhocal.profile_logits(*synthetic(60, n_classes)), path)
    card, tensors = read_tensors(path, saved_profile.FORMAT, saved_profile.SCHEMA, "profile")
    changes = (
        lambda a: np.full(a.shape, np.nan),
        lambda a: a[..., :-1],
        lambda a: a[None],
        lambda a: a - 1000 if a.dtype.kind == "i" else a.astype(np.int64),
        lambda a: a[:0],
    )
    for name, value in tensors.items():
        for change in changes:
            write_tensors(path, saved_profile.FORMAT, saved_profile.SCHEMA, card, {**tensors, name: change(value)})
            with pytest.raises(FileError, match="damaged"):
                rhocal.load_profile(path)
    write_tensors(path, saved_profile.FORMAT, saved_profile.SCHEMA, card, tensors)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match="damaged"):
        rhocal.load_profile(path)
