"""Sentences under a comparison."""

from rhocal.evaluation.best import DifferenceToBest
from rhocal.evaluation.ties import class_note


def line(method, ece, classwise):
    return {"method": method, "nll": 0.5, "ece_debiased": ece, "classwise_ece": classwise}


def test_the_best_ece_may_be_wrong_for_single_classes():
    rows = [line("identity", 0.001, 0.24), line("beta", 0.004, 0.01), line("failed", float("nan"), float("nan"))]
    rows[2]["nll"] = float("nan")
    (sentence,) = class_note(rows, {})
    assert sentence.startswith(
        "the ECE looks at the predicted class alone: identity has the best ECE or ties with it, but a classwise ECE of 0.24"
    )
    assert sentence.endswith("that of beta is 0.0100")
    assert not class_note(rows[1:], {})
    assert not class_note([line("a", 0.001, float("nan"))], {})


def test_methods_with_the_same_ece_are_all_named():
    (sentence,) = class_note([line("field", 0.0, 0.21), line("auto", 0.0, 0.002), line("binning", 0.00001, 0.24)], {})
    assert (
        "field, binning have the best ECE or tie with it, but a classwise ECE of up to 0.2400; that of auto is 0.0020"
        in sentence
    )


def test_methods_that_tie_are_named_too():
    """The prevalence of a class is beyond repair for a temperature, whose ECE may still tie with the best."""
    rows = [line("temperature", 0.0084, 0.28), line("isotonic", 0.0046, 0.01)]
    assert not class_note(rows, {"temperature": DifferenceToBest("isotonic", 0.02, 0.01, 0.03)})
    (sentence,) = class_note(rows, {"temperature": DifferenceToBest("isotonic", 0.004, -0.01, 0.03)})
    assert "temperature has the best ECE or ties with it, but a classwise ECE of 0.2800" in sentence
