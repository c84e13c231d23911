"""Maps of single classes: which methods have them, and what that means for options and for classes without samples."""

import numpy as np
import pytest

import rhocal
from helpers import fit_map, quick, synthetic
from rhocal.calibrators import CALIBRATORS
from rhocal.errors import FewSamplesWarning, InputError

logits, labels = synthetic(600, 4)


@pytest.mark.parametrize("method", [name for name in CALIBRATORS if name not in {"auto", "multi-domain"}])
@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
def test_a_method_without_class_maps_treats_columns_alike(method):
    order = [2, 0, 3, 1]
    biased = logits + np.array([1.5, 0, 0, -1.5])
    cal = fit_map(quick(method), biased, labels)
    is_alike = np.allclose(cal.predict_proba(biased)[:, order], cal.predict_proba(biased[:, order]), atol=1e-5)
    assert cal.has_class_maps == (not is_alike)
    assert quick(method).has_class_maps >= cal.has_class_maps


def test_exchangeable_leaves_out_maps_of_classes():
    biased = logits + np.array([1.5, 0, 0, -1.5])
    cal = rhocal.AutoCalibrator(["svs", "temperature", "svs:field"], exchangeable=True).fit(biased, labels)
    assert cal.chosen_.label == "temperature"
    assert [row["method"] for row in cal.solution_.trials if "maps of single classes" in row.get("skipped", "")] == [
        "svs",
        "svs:field",
    ]
    with pytest.raises(InputError, match="exchangeable: each of the methods svs has maps of single classes"):
        rhocal.AutoCalibrator(["svs"], exchangeable=True).fit(biased, labels)


@pytest.mark.parametrize("method", ["auto", "cascade", "svs", "matrix", "isotonic", "svs:field"])
@pytest.mark.filterwarnings("ignore::rhocal.errors.GuardWarning")
def test_classes_without_samples_are_named(method):
    scores, truth = synthetic(1200, 4, scale=1.5)
    seen = truth != 2
    names = np.array(["ant", "bee", "cat", "dog"])
    with pytest.warns(FewSamplesWarning, match=r"without a calibration sample: cat \(1 of 4\)\. .* are guesses"):
        quick(method).fit(scores[seen], names[truth[seen]], classes=names)


def test_a_method_that_treats_classes_alike_does_not_warn(recwarn):
    seen = labels != 2
    rhocal.FieldScaling().fit(logits[seen], labels[seen])
    assert not [one for one in recwarn if issubclass(one.category, FewSamplesWarning)]
