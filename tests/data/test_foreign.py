"""Input of types that cannot be used is an error of ours, in every function that takes it."""

import warnings

import numpy as np
import pytest
import torch

import rhocal
from helpers import synthetic
from rhocal.errors import InputError, RhocalError

Z, Y = synthetic(60, 3)
T = torch.from_numpy(Z)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch says that nested tensors are a prototype
    NESTED = torch.nested.nested_tensor([T[:2], T[:3]])
TENSORS = {
    "meta": T.to("meta"),
    "sparse": T.to_sparse(),
    "float8": T.to(torch.float8_e4m3fn),
    "complex": T.to(torch.complex64),
    "nested": NESTED,
    "conjugate": T.to(torch.complex64).conj(),
}


@pytest.fixture(scope="module")
def cal():
    return rhocal.TemperatureScaling().fit(Z, Y)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_without_numbers(cal, name):
    tensor = TENSORS[name]
    for call in (
        lambda: rhocal.TemperatureScaling().fit(tensor, Y),
        lambda: cal.predict_proba(tensor),
        lambda: cal.predict(tensor),
        lambda: rhocal.metrics.ece(tensor, Y, kind="logits"),
        lambda: rhocal.TemperatureScaling().fit(Z, tensor),
        lambda: rhocal.TemperatureScaling().fit(Z, Y, tensor),
    ):
        with pytest.raises(InputError):
            call()


@pytest.mark.parametrize("name", ["sparse", "complex", "nested"])
def test_a_module_takes_dense_real_tensors(cal, name):
    with pytest.raises(InputError):
        cal.to_torch()(TENSORS[name])


def test_a_negated_view_is_read(cal):
    np.testing.assert_array_equal(cal.predict_proba(torch._neg_view(-T)).numpy(), cal.predict_proba(T).numpy())


@pytest.mark.parametrize(
    "call",
    [
        lambda: rhocal.TemperatureScaling().fit(Z[:2], [[1, 2], [3]]),
        lambda: rhocal.TemperatureScaling().fit([[10**400, 1]], [0]),
        lambda: rhocal.TemperatureScaling().fit(Z, Y, classes=[None, 1, 2]),
        lambda: rhocal.TemperatureScaling().fit(Z, Y, class_axis="x"),
        lambda: rhocal.TemperatureScaling().fit(Z, Y, class_axis=None),
        lambda: rhocal.TemperatureScaling().fit(Z, Y, ignore_index="a"),
        lambda: rhocal.TemperatureScaling().fit(Z, Y, ignore_index=1.5),
        lambda: rhocal.TemperatureScaling().fit(Z, Y.astype(complex)),
        lambda: rhocal.load(None),
        lambda: rhocal.load("a\0b"),
        lambda: rhocal.TemperatureScaling().fit(Z, Y).save(None),
        lambda: rhocal.TemperatureScaling().fit(Z, Y).save("a\0b"),
        lambda: rhocal.calibrator(None),
        lambda: rhocal.TemperatureScaling(objective="(" * 10_000 + "nll" + ")" * 10_000).fit(Z, Y),
    ],
)
def test_other_types(call):
    with pytest.raises(RhocalError):
        call()
