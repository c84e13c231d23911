"""A label of a masked class: refused where it is certainly one, whatever large negative number the mask is."""

import re
import warnings

import numpy as np
import pytest

import rhocal
from helpers import fit_map
from rhocal.errors import InputError, RhocalWarning, SuspiciousInputWarning


def in_blocks(logits, labels, n=600):
    return rhocal.stream([(logits[k : k + n], labels[k : k + n]) for k in range(0, len(logits), n)])


def with_masked_label(low, n=1200):
    rng = np.random.default_rng(3)
    logits = 2 * rng.normal(size=(n, 3))
    labels = (0.6 * logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    logits[7, labels[7]] = low
    return logits, labels


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("low", [-1e6, -1e9, -1e30, -np.finfo(np.float32).max, -np.inf])
@pytest.mark.parametrize("factor", [1.0, 1e8])
def test_a_masked_label_is_an_error_at_any_depth(low, factor):
    """Temperature scaling became uniform, with a warning of another cause, and ρ-norm scaling without one."""
    logits, labels = with_masked_label(low)
    logits = logits * factor
    message = rf"the label of row 7 is a class whose logit is -.*, a masked one: class {labels[7]}\. Correct"
    measures = (rhocal.measure, rhocal.evaluate) if low == -np.inf else ()  # other masks are known by comparison alone
    for fit in (rhocal.RhoNormScaling().fit, rhocal.TemperatureScaling().fit, *measures):
        spec = {"kind": "logits"} if fit is rhocal.evaluate else {}
        for data in ((logits, labels), (in_blocks(logits, labels),)):
            with pytest.raises(InputError, match=message):
                fit(*data, **spec)
    weights = (np.arange(1200) != 7).astype(float)
    if low > -np.inf:
        fit_map(rhocal.TemperatureScaling(), logits, labels, weights)
    ignored = np.r_[labels[:3], 255, labels[4:]]
    with pytest.raises(InputError, match="row 7"):
        rhocal.TemperatureScaling().fit(logits, ignored, ignore_index=255)


@pytest.mark.parametrize(("low", "dtype"), [(-1e4, np.float32), (-65504, np.float16)])
def test_a_label_at_the_one_number_of_all_masks_is_an_error(low, dtype):
    logits, labels = with_masked_label(0.0)
    wide = np.full((1200, 5), low, dtype)
    columns = labels + np.arange(1200) % 3
    for k in range(3):
        wide[k::3, k : k + 3] = logits[k::3]
    wide[9, columns[9]] = low
    with pytest.raises(InputError, match=r"row 9 is a class whose logit is -.*, a masked one"):
        rhocal.TemperatureScaling().fit(wide, columns)


@pytest.mark.usefixtures("few_rows")
def test_a_label_that_may_be_masked_or_far_behind_is_a_warning():
    """A depth of 10,000 in one row is a mask, or a classifier that is very wrong: comparison cannot tell."""
    logits, labels = with_masked_label(-1e4)
    for data in ((logits, labels), (in_blocks(logits, labels),)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rhocal.TemperatureScaling().fit(*data)
        (told,) = [str(one.message) for one in caught if one.category is SuspiciousInputWarning]
        assert re.search(r"row 7, class \d, lies 1e\+04 below .* dominates the fit", told)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 300.0, 1e8])
@pytest.mark.parametrize("form", ["wrong", "heavy tails", "outlier"])
def test_a_classifier_that_is_far_off_is_not_refused(form, factor):
    logits, labels = with_masked_label(0.0)
    if form == "wrong":
        logits[:200] *= 500
    elif form == "heavy tails":
        logits = np.random.default_rng(0).standard_cauchy(size=logits.shape) * 5
    else:
        logits[7] *= 1e9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        rhocal.TemperatureScaling().fit(factor * logits, labels)
        rhocal.measure(factor * logits, labels)
        for row in range(20):
            rhocal.measure(factor * logits[row : row + 1], labels[row : row + 1], classes=[0, 1, 2])
