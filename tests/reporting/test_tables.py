"""Sentences under tables."""

from rhocal.reporting.tables import class_note


def line(method, ece, classwise):
    return {"method": method, "nll": 0.5, "ece_debiased": ece, "classwise_ece": classwise}


def test_the_best_ece_may_be_wrong_for_single_classes():
    rows = [line("identity", 0.001, 0.24), line("beta", 0.004, 0.01), line("failed", float("nan"), float("nan"))]
    rows[2]["nll"] = float("nan")
    (sentence,) = class_note(rows)
    assert sentence.startswith(
        "the ECE looks at the predicted class alone: identity has the lowest, but a classwise ECE of 0.24"
    )
    assert sentence.endswith("that of beta is 0.0100")
    assert not class_note(rows[1:])
    assert not class_note([line("a", 0.001, float("nan"))])


def test_methods_with_the_same_ece_are_all_named():
    (sentence,) = class_note([line("field", 0.0, 0.21), line("auto", 0.0, 0.002), line("binning", 0.00001, 0.24)])
    assert (
        "field, binning have as low an ECE as any, but a classwise ECE of up to 0.2400; that of auto is 0.0020"
        in sentence
    )
