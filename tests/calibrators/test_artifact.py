"""An artifact may come from anybody: whatever it holds is compared with what its method declares."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import rhocal
from helpers import quick, run, synthetic
from rhocal.calibrators import CALIBRATORS
from rhocal.calibrators.options import declarations
from rhocal.calibrators.policies.policy import Certificate, Policy
from rhocal.data.storage.container import checksum
from rhocal.errors import FileError, InputError

Z, Y = synthetic(150, 3)
pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")


def read(path):
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["rhocal"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write(path, card, tensors):
    """Write an artifact as an attacker would: with a checksum that fits."""
    tensors = {name: np.array(value, order="C") for name, value in tensors.items()}
    card = {**card, "checksum": checksum(card, tensors)}
    save_file(tensors, path, metadata={"rhocal": json.dumps(card)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artifacts")
    for name in CALIBRATORS:
        groups = {"groups": np.array(["a", "b", "c"])[np.arange(len(Y)) % 3]} if name == "multi-domain" else {}
        quick(name).fit(Z, Y, **groups).save(folder / f"{name}.safetensors")
    return folder


@pytest.fixture
def saved(folder, tmp_path):
    """A method's card and tensors, and a function that loads a changed copy of them."""

    def open_(name):
        card, tensors = read(folder / f"{name}.safetensors")

        def load(card=card, tensors=tensors):
            path = tmp_path / "changed.safetensors"
            write(path, card, tensors)
            return rhocal.load(path)

        return card, tensors, load

    return open_


METHODS = pytest.mark.parametrize("method", CALIBRATORS)
FLOATS = {
    "NaN": lambda a: np.full_like(a, np.nan),
    "infinite": lambda a: np.full_like(a, -np.inf),
    "enormous": lambda a: np.full_like(a, -1e300),
    "one dimension more": lambda a: a[None],
    "one dimension more at the end": lambda a: a[..., None],
    "empty": lambda a: np.zeros((0,) * max(a.ndim, 1)),
    "longer": lambda a: np.concatenate([np.atleast_1d(a)] * 2),
    "integers": lambda a: np.zeros(a.shape, np.int64),
    "bits of another type": lambda a: np.ascontiguousarray(a).view(np.int64),
    "texts": lambda a: np.full(a.shape, 65, np.uint8),
}


@METHODS
def test_every_fitted_number_is_compared_with_its_declaration(saved, method):
    """Whatever tensor of whatever method is changed, also of calibrators inside it, loading raises."""
    _, tensors, load = saved(method)
    load()
    for name, value in tensors.items():
        for what, change in FLOATS.items():
            changed = change(value) if value.dtype.kind == "f" else value + 0.5  # a flag or a code as a fraction
            if np.array_equal(changed, value, equal_nan=changed.dtype.kind == "f"):
                continue  # no class is absent: NaN is what stands there
            with pytest.raises(FileError, match="damaged"):
                print(method, name, what, load(tensors={**tensors, name: changed}).predict_proba(Z)[:1])


@METHODS
def test_a_missing_and_an_unknown_tensor_are_refused(saved, method):
    _, tensors, load = saved(method)
    for name in tensors:
        with pytest.raises(FileError, match="damaged"):
            load(tensors={other: value for other, value in tensors.items() if other != name})
    with pytest.raises(FileError, match="no parameters: extra_"):
        load(tensors={**tensors, "extra_": np.zeros(1)})


@METHODS
def test_a_flipped_bit_is_found(folder, tmp_path, method):
    """But for one in the last digit of a decimal number that stands for the same double."""
    content = (folder / f"{method}.safetensors").read_bytes()
    probs = rhocal.load(folder / f"{method}.safetensors").predict_proba(Z)
    n_refused = 0
    for at in np.random.default_rng(0).integers(len(content), size=40):
        damaged = bytearray(content)
        damaged[at] ^= 1
        path = tmp_path / "damaged.safetensors"
        path.write_bytes(damaged)
        try:
            np.testing.assert_array_equal(rhocal.load(path).predict_proba(Z), probs)
        except FileError:
            n_refused += 1
    assert n_refused >= 36


@METHODS
def test_every_vector_declares_its_shape(folder, method):
    """A family that declares nothing can only have numbers."""
    cal = rhocal.load(folder / f"{method}.safetensors")
    for name, declared in declarations(type(cal)).items():
        if declared.kind == "number":
            assert (np.ndim(getattr(cal, name)) > 0) == bool(declared.values.shape)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, 1e-320])
def test_a_temperature_is_positive(saved, value):
    _, tensors, load = saved("temperature")
    with pytest.raises(FileError, match="damaged, temperature_ has a value that is not a number from 2"):
        load(tensors={**tensors, "temperature_": np.array(value)})


@pytest.mark.parametrize(
    "change",
    [
        {"classes": [0, 0, 1]},
        {"classes": [0, 1]},
        {"classes": [0, 1, 2, 3]},
        {"classes": [0, 1, None]},
        {"classes": [0, 1, "2"]},
        {"classes": [0.0, 1.0, float("nan")]},
        {"classes": {"0": 1}},
        {"classes": "012"},
        {"classes": []},
        {"kind": "odds"},
        {"kind": None},
        {"positive": 1},
        {"columns": ["a", "a", "b"]},
        {"columns": [1, 2, 3]},
        {"schema": 3},
        {"schema": 1.5},
        {"schema": True},
        {"schema": "1"},
        {"schema": float("inf")},
        {"method": ["temperature"]},
        {"method": {}},
        {"options": {"objective": 3}},
        {"options": []},
        {"evidence": None},
        {"evidence": {}},
        {"evidence": {"objective": 1, "value": 0.0, "converged": True, "n_evaluations": 1, "trials": []}},
        {"evidence": {"objective": "", "value": 0.0, "converged": True, "n_evaluations": 1, "trials": [1]}},
    ],
    ids=str,
)
def test_a_description_that_no_fit_writes_is_refused(saved, change):
    card, _, load = saved("temperature")
    with pytest.raises(FileError):
        load(card={**card, **change})


@pytest.mark.parametrize("name", ["svs", "auto"])
@pytest.mark.parametrize("scores", ["nll", "brier"])
@pytest.mark.parametrize("kept", [(), ("identity", "temperature"), ("identity", "own")])
def test_held_out_scores_without_the_fit_or_temperature_are_refused(saved, name, scores, kept):
    card, _, load = saved(name)
    held_out = card["evidence"]["held_out"]
    names = {"own": next(key for key in held_out["nll"] if key not in {"identity", "temperature"})}
    held_out[scores] = {key: held_out[scores][key] for key in (names.get(key, key) for key in kept)}
    with pytest.raises(FileError):
        load(card=card)


def test_calibrators_inside_each_other_end_somewhere(saved):
    card, tensors, load = saved("svs:field")
    inside = {key: card[key] for key in ("method", "options", "evidence", "inside")}
    for _ in range(60):
        inside = {**inside, "inside": {**card["inside"], "first_": inside}}
    with pytest.raises(FileError, match="damaged"):
        load(card={**card, **inside})
    with pytest.raises(FileError, match="damaged"):
        load(card={**card, "inside": {"first_": [], "second_": []}})
    card, tensors, load = saved("average")
    with pytest.raises(FileError, match="damaged"):
        load(card={**card, "inside": {"members_": []}}, tensors={"n_classes": tensors["n_classes"]})


def test_an_artifact_without_a_checksum_is_of_the_first_schema(folder, tmp_path):
    card, tensors = read(folder / "temperature.safetensors")
    path = tmp_path / "old.safetensors"
    del card["checksum"]
    save_file(tensors, path, metadata={"rhocal": json.dumps({**card, "schema": 1})})
    np.testing.assert_array_equal(
        rhocal.load(path).predict_proba(Z), rhocal.load(folder / "temperature.safetensors").predict_proba(Z)
    )
    save_file(tensors, path, metadata={"rhocal": json.dumps(card)})
    with pytest.raises(FileError, match="checksum"):
        rhocal.load(path)


def test_a_value_that_cannot_be_loaded_is_not_saved(tmp_path):
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    cal.temperature_ = float("nan")
    with pytest.raises(InputError, match="TemperatureScaling cannot be saved: temperature_"):
        cal.save(tmp_path / "cal.safetensors")
    assert not list(tmp_path.iterdir())


def test_the_command_line_refuses_in_one_line(saved, tmp_path):
    card, tensors, _ = saved("pts")
    path = tmp_path / "cal.safetensors"
    write(path, card, {**tensors, "low_": np.zeros(0)})
    np.savez(tmp_path / "data.npz", logits=Z, labels=Y)
    done = run("apply", path, tmp_path / "data.npz", "-o", tmp_path / "out.npz", code=2)
    assert done.stderr.startswith(f"error: {path}: damaged, low_ has shape (0,)")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("n", "m", "dtype"), [(40, 2, np.float32), (300, 12, np.float64), (60, 4, np.float16)])
@METHODS
def test_what_a_fit_gives_can_be_saved_and_loaded(tmp_path, method, n, m, dtype):
    """Also with absent classes, ties, saturated scores and weights."""
    z, y = synthetic(n, m, seed=3, dtype=dtype)
    z[::7] = 0
    z[1::9] *= 20
    y[y == m - 1] = 0
    cal = quick(method).fit(z, y, np.where(np.arange(n) % 5, 0.37, 2.0))
    cal.save(tmp_path / "cal.safetensors")
    np.testing.assert_array_equal(rhocal.load(tmp_path / "cal.safetensors").predict_proba(z), cal.predict_proba(z))


CERTIFICATE = Certificate("error", 0.1, 0.95, 100, 60, 0.02, 0.08, 0.6, 0.5, 0.7)


def with_policy(path, **options):
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    cal.policy_ = Policy(**{"rule": "confidence", "thresholds": np.array([0.5]), "certificate": CERTIFICATE} | options)
    cal.save(path)
    return cal


@pytest.mark.parametrize(
    ("change", "certificate"),
    [
        ({"rule": "guess"}, {}), ({"positive": 1}, {}), ({"positive": "1"}, {}), ({"otherwise": "shrug"}, {}),
        ({"more": 1}, {}), ({}, {"n_samples": -1}), ({}, {"bound": float("nan")}), ({}, {"more": 1}), ({}, {"risk": None}),
    ],
)  # fmt: skip
def test_damaged_policies_are_refused(tmp_path, change, certificate):
    path = tmp_path / "cal.safetensors"
    with_policy(path)
    card, tensors = read(path)
    card["policy"] |= change
    card["policy"]["certificate"] |= certificate
    write(path, card, tensors)
    with pytest.raises(FileError, match="damaged"):
        rhocal.load(path)


def test_a_policy_needs_its_thresholds_and_no_others(tmp_path):
    path = tmp_path / "cal.safetensors"
    assert rhocal.load((with_policy(path), path)[1]).policy_.certificate == CERTIFICATE
    card, tensors = read(path)
    write(path, card, {name: value for name, value in tensors.items() if name != "policy.thresholds"})
    with pytest.raises(FileError, match="the thresholds of its policy are missing"):
        rhocal.load(path)
    write(path, {name: value for name, value in card.items() if name != "policy"}, tensors)
    with pytest.raises(FileError, match="tensors that are no parameters: policy"):
        rhocal.load(path)


@pytest.mark.parametrize("thresholds", [np.zeros(2), np.array([np.nan]), np.array([-1.0]), np.array([1])])
def test_thresholds_that_fit_no_policy(tmp_path, thresholds):
    with pytest.raises(InputError, match="the policy of this TemperatureScaling cannot be saved: thresholds"):
        with_policy(tmp_path / "cal.safetensors", thresholds=thresholds)
