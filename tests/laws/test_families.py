"""Laws of how a family is declared: shallow inheritance, options and fitted numbers in one place."""

import dataclasses
import inspect
from abc import ABC

import numpy as np
import pytest

import rhocal
from helpers import quick, synthetic
from rhocal.calibrators import CALIBRATORS, Calibrator
from rhocal.calibrators.fitting import log_center
from rhocal.calibrators.options import Fitted, options_of, validate_options
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError, NotFittedError
from rhocal.profile.curve_table import tabulate
from rhocal.profile.passes import FEW_CLASSES
from rhocal.profile.plan import PassPlan
from rhocal.profile.profile import Profile

FAMILIES = {method.class_name: method.family for method in CALIBRATORS.values()}
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@each_family
def test_inheritance_is_at_most_two_deep(family):
    ancestors = [base for base in family.__mro__ if base not in {object, ABC, family}]
    assert ancestors[-1] is Calibrator
    assert len(ancestors) <= 2
    assert all(len(base.__bases__) == 1 for base in (family, *ancestors))


@each_family
def test_options_are_the_fields_of_a_dataclass(family):
    assert "__dataclass_fields__" in vars(family)
    assert not family.__dataclass_params__.eq
    names = [option.name for option in options_of(family)]
    assert list(inspect.signature(family).parameters) == names
    assert [item.name for item in dataclasses.fields(family) if item.init] == names


@pytest.mark.parametrize("name", CALIBRATORS)
def test_defaults_and_presets_are_allowed(name):
    calibrator = rhocal.calibrator(name)
    validate_options(calibrator)
    for option in options_of(type(calibrator)):
        assert option.values
        assert option.default is dataclasses.MISSING or option.accepts(option.default)


@each_family
def test_every_option_is_documented(family):
    documented = inspect.getdoc(family)
    for option in options_of(family):
        assert option.name in documented, f"{family.__name__} does not explain {option.name}"


class Strange:
    """What no option accepts."""


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_bad_value_of_any_option_is_explained(name):
    data = synthetic(30, 3)
    calibrator = rhocal.calibrator(name)
    for option in options_of(type(calibrator)):
        bad = rhocal.calibrator(name, **{option.name: Strange()}) if not option.is_stage else None
        if bad is not None:
            with pytest.raises(InputError, match=rf"^{option.name} is .*; got <.*Strange"):
                bad.fit(*data)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_fitted_attributes_are_declared(name):
    family = CALIBRATORS[name].family
    calibrator = rhocal.calibrator(name)
    declared = [*family.parameters, *family.string_attributes, *family.children]
    assert all(isinstance(getattr(family, attribute), Fitted) for attribute in declared)
    for attribute in declared:
        assert not hasattr(calibrator, attribute)
        with pytest.raises(NotFittedError, match=f"not fitted yet: it has no {attribute}"):
            getattr(calibrator, attribute)


def test_limits_and_choices():
    bad = {
        "rho": (0.5, np.inf, "best", True, None),
        "grid": ((), (0.5,), "2", 2.0),
        "alpha": (-1, float("nan"), "big"),
        "center": (1, "yes"),
        "n_bins": (0, 2.5, "ten"),
        "learning_rate": (0, -1.0),
    }
    for name, values in bad.items():
        for value in values:
            with pytest.raises(InputError, match=f"^{name} is "):
                validate_options(rhocal.RhoNormScaling(**{name: value}))
    good = {"rho": np.float32(2), "grid": np.array([1.0, 2.0]), "n_bins": np.int64(5), "center": np.bool_(True)}
    validate_options(rhocal.RhoNormScaling(**good))


PROFILED = [name for name in CALIBRATORS if rhocal.calibrator(name).fits_on == "profile"]


@pytest.mark.parametrize("name", PROFILED)
def test_families_that_fit_on_a_profile_need_no_logits(name):
    logits, labels = synthetic(600, FEW_CLASSES + 1, dtype=np.float32)
    data = Predictions.from_arrays(
        logits, labels, groups=np.arange(600) % 3 if CALIBRATORS[name].family.takes_groups else None
    )
    profile = Profile.from_predictions(data)
    plan = PassPlan(log_center(profile))
    profile.read(plan.names)
    released = tabulate(profile, plan)
    assert released.passes is None
    want, got = (quick(name).fit_profile(part).map_.probs(data) for part in (profile, released))
    np.testing.assert_allclose(got, want, atol=1e-2 if name == "pts" else 1e-4)  # a network has several close optima
