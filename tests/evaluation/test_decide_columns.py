"""Decisions where columns, classes and costs stand in another order, or the positive class is not the second."""

import numpy as np
import pandas as pd
import pytest

import rhocal
from helpers import synthetic
from rhocal.evaluation.decide import decide

Z, Y = synthetic(6000, 3, seed=1)
pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")


@pytest.mark.parametrize(("risk", "target"), [("fpr", 0.2), ("fnr", 0.2), ("precision", 0.8), ("recall", 0.8)])
@pytest.mark.parametrize("classes", [None, ["well", "sick"]])
def test_with_a_calibrator_positive_is_whose_risk_and_not_what_a_column_holds(risk, target, classes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=6000) * 2
    y = np.where(rng.random(6000) < 1 / (1 + np.exp(-x)), "sick", "well")
    cal = rhocal.TemperatureScaling().fit(-x[:2000], y[:2000])  # scores of well
    for positive in ("sick", "well", 0 if classes is None else 1):
        found = decide(cal, -x[2000:], y[2000:], risk=risk, target=target, positive=positive, classes=classes)
        cal.policy_ = found.policy
        name = "sick" if positive in (0, 1) else positive
        label, truth = cal.decide(-x[2000:]).label == name, y[2000:] == name
        rates = {
            "fpr": label[~truth].mean(),
            "fnr": 1 - label[truth].mean(),
            "precision": truth[label].mean(),
            "recall": label[truth].mean(),
        }
        assert found.positive == name
        assert found.policy.certificate.observed == pytest.approx(rates[risk])
        assert abs(rates[risk] - target) < 0.04
    costs = [[0, 10], [1, 0]] if classes is None else [[0, 1], [10, 0]]
    cheap = rhocal.minimize_cost(cal, -x[2000:], y[2000:], costs=costs, positive="sick", classes=classes)
    paid = np.array([[0, 10], [1, 0]])[(y[2000:] == "well").astype(int), cheap_columns(cal, cheap, -x[2000:])]
    assert cheap.cost.value == pytest.approx(paid.mean())
    assert paid.mean() < 0.5


def cheap_columns(cal, found, scores):
    """The columns that a decision of least cost decides."""
    cal.policy_ = found.policy
    return cal.decide(scores).column


def test_a_single_column_of_a_fit_on_two():
    """The class that a single column is scores of is that of ``predict_proba`` in prediction sets, too."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000) * 2
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(-x)), "sick", "well")
    cal = rhocal.TemperatureScaling().fit(np.stack([x, 0 * x], axis=1)[:1000], y[:1000], positive="sick")
    found = rhocal.decide_sets(cal, x[1000:], y[1000:], coverage=0.9)
    cal.policy_ = found.policy
    held = cal.decide(x[1000:]).sets[np.arange(2000), (y[1000:] == "well").astype(int)]
    assert held.mean() == found.evidence.observed


def test_costs_are_in_the_order_of_stated_classes():
    names, other = np.array(["a", "b", "c"]), [2, 0, 1]
    cal = rhocal.VectorScaling().fit(Z[:2000], names[Y[:2000]], classes=names)
    costs = np.array([[0, 1, 4, 0.3], [2, 0, 1, 0.3], [9, 3, 0, 0.5]])
    turned = np.hstack([costs[np.ix_(other, other)], costs[other, 3:]])
    same = rhocal.minimize_cost(cal, Z[2000:], names[Y[2000:]], costs=costs)
    moved = rhocal.minimize_cost(cal, Z[2000:, other], names[Y[2000:]], costs=turned, classes=names[other])
    assert moved.cost.value == pytest.approx(same.cost.value)
    assert moved.policy.costs.tolist() == costs.tolist()
    frame = pd.DataFrame(Z[2000:, other], columns=names[other])  # named columns stand in any order
    named = rhocal.minimize_cost(cal, frame, names[Y[2000:]], costs=costs)
    assert named.cost.value == pytest.approx(same.cost.value)
    limits = [
        decide(cal, *held, risk="cost", target=0.4, costs=table, **stated).policy.thresholds[0]
        for held, table, stated in (
            ((Z[2000:], names[Y[2000:]]), costs[:, :3], {}),
            ((Z[2000:, other], names[Y[2000:]]), turned[:, :3], {"classes": names[other]}),
            ((frame, names[Y[2000:]]), costs[:, :3], {}),
        )
    ]
    assert limits == pytest.approx([limits[0]] * 3)


@pytest.mark.parametrize("stated", [None, ["c", "a", "b"]])
def test_costs_in_a_frame_are_matched_by_name(stated):
    names = np.array(["a", "b", "c"])
    cal = rhocal.VectorScaling().fit(pd.DataFrame(Z[:2000], columns=names), names[Y[:2000]])
    frame, held = pd.DataFrame(Z[2000:], columns=names), names[Y[2000:]]
    costs = pd.DataFrame([[0, 1, 4, 0.3], [2, 0, 1, 0.3], [9, 3, 0, 0.5]], names, [*names, "review"])
    same = rhocal.minimize_cost(cal, frame, held, costs=costs.to_numpy())
    for table in (costs, costs.loc[["c", "a", "b"], ["b", "review", "c", "a"]]):
        assert (
            rhocal.minimize_cost(cal, frame, held, costs=table, classes=stated).policy.costs.tolist()
            == costs.to_numpy().tolist()
        )
        assert rhocal.minimize_cost(None, frame, held, costs=table).policy.costs.tolist() == costs.to_numpy().tolist()
    unnamed = [costs.reset_index(drop=True), costs.reset_index(drop=True).set_axis(range(4), axis=1)]
    for table in unnamed:
        assert rhocal.minimize_cost(cal, frame, held, costs=table).cost == same.cost
    for table in (
        unnamed[0][["b", "a", "c", "review"]],
        unnamed[1].set_axis(["c", "a", "b"]),
        costs.rename(columns={"a": "x"}),
    ):
        with pytest.raises(rhocal.errors.InputError, match="name rows"):
            rhocal.minimize_cost(cal, frame, held, costs=table)
    risk = [
        decide(cal, frame, held, risk="cost", target=0.4, costs=table).policy.thresholds[0]
        for table in (costs.to_numpy()[:, :3], costs.loc[["c", "a", "b"], ["b", "c", "a"]])
    ]
    assert risk[0] == risk[1]


def test_columns_of_a_frame_in_another_order():
    """Columns are matched with those of the fit by name; numbers as labels count the columns that they came with."""
    names, moved_names, order = np.array(["u", "v", "w"]), ["w", "u", "v"], [1, 2, 0]
    frame, numbers = pd.DataFrame(Z, columns=names), np.array(order)[Y]
    cal = rhocal.VectorScaling().fit(frame[:2000], names[Y[:2000]])
    costs = np.array([[0, 1, 4], [2, 0, 1], [9, 3, 0]])
    forms = (frame, names[Y]), (frame, Y), (frame[moved_names], names[Y]), (frame[moved_names], numbers)
    found = []
    for part, y in forms:
        fit, test = (part[:2000], y[:2000]), (part[2000:], y[2000:])
        found.append(
            (
                decide(cal, *test, target=0.15, reference=part[:2000]).policy.certificate,
                rhocal.minimize_cost(cal, *test, costs=costs).cost,
                rhocal.decide_sets(cal, *test, coverage=0.9).evidence,
                rhocal.adapt(cal, part[2000:], labeled=fit).priors.round(12).tolist(),
                rhocal.bootstrap(cal, *fit, n_replicates=20).predict_interval(part[:9]).low.round(9).tolist(),
            )
        )
    assert found[1:] == found[:1] * 3


def test_numbers_that_may_count_the_columns_of_the_fit_are_refused():
    """The classes of the fit are texts that columns are not named after: labels may count either."""
    frame, other = pd.DataFrame(Z, columns=["u", "v", "w"]), ["w", "u", "v"]
    cal = rhocal.VectorScaling().fit(frame[:2000], Y[:2000], classes=["a", "b", "c"])
    moved = frame[other]
    for run in (
        lambda: decide(cal, moved, Y, target=0.15),
        lambda: rhocal.minimize_cost(cal, moved, Y, costs=np.ones((3, 3)) - np.eye(3)),
        lambda: rhocal.adapt(cal, moved, labeled=(moved, Y)),
        lambda: rhocal.OnlineCalibration.begin(cal).update(moved, Y),
    ):
        with pytest.raises(rhocal.errors.InputError, match="unclear which of them labels count"):
            run()
    np.testing.assert_allclose(cal.predict_proba(moved), cal.predict_proba(frame))


def test_columns_of_a_frame_and_numbers_in_another_order():
    """Columns are matched with those of the fit by name, classes that are numbers by value."""
    cal, held = rhocal.VectorScaling(), Y[2000:]
    other = ["w", "u", "v"]
    frame = pd.DataFrame(Z, columns=["u", "v", "w"])
    cal.fit(frame[:2000], Y[:2000])
    same = decide(cal, frame[2000:], held, target=0.15, reference=frame[:2000])
    moved = decide(cal, frame[2000:][other], held, target=0.15, reference=frame[:2000][other])
    assert moved.policy.certificate == same.policy.certificate
    costs = np.array([[0, 1, 4], [2, 0, 1], [9, 3, 0]])
    one, two = (rhocal.minimize_cost(cal, part[2000:], held, costs=costs).cost for part in (frame, frame[other]))
    assert one == two
    sets = [rhocal.decide_sets(cal, part[2000:], held, coverage=0.9).evidence for part in (frame, frame[other])]
    assert sets[0] == sets[1]
    shares = [rhocal.adapt(cal, part[2000:], labeled=(part[:2000], Y[:2000])).priors for part in (frame, frame[other])]
    assert shares[0].tolist() == shares[1].tolist()
    bounds = [rhocal.bootstrap(cal, part[:2000], Y[:2000], n_replicates=20).predict_interval(part[:9]) for part in
              (frame, frame[other])]  # fmt: skip
    np.testing.assert_allclose(*bounds)
    plain = rhocal.VectorScaling().fit(Z[:2000], Y[:2000])
    named = decide(plain, Z[2000:, [2, 0, 1]], held, target=0.15, classes=[2, 0, 1], reference=Z[:2000, [2, 0, 1]])
    assert named.policy.certificate == same.policy.certificate
