"""Decisions of least expected cost: by hand, what they save, and intervals that allow for what has not occurred."""

import numpy as np
import pytest

import rhocal
from rhocal.calibrators.policies.policy import Policy
from rhocal.data.cost_files import read_costs
from rhocal.errors import FileError, InputError
from rhocal.evaluation.costs import binary_costs, minimize_cost
from rhocal.metrics.inference.cost_interval import mean_cost
from rhocal.numerics.numpy_ops import NUMPY


def rare(rng, n):
    """Log-odds that are twice too large, and labels: 6 % positives."""
    p = rng.beta(0.2, 3, n)
    return 2 * np.log(p / (1 - p)), (rng.random(n) < p).astype(int), p


def test_by_hand():
    """Review costs 1: below a probability of 1/50 decide 0, above 4/5 decide 1 (a false positive costs 5), else review."""
    probs = np.array([0.01, 0.019, 0.021, 0.5, 0.79, 0.81, 0.99])
    labels = np.array([0, 1, 0, 1, 1, 1, 0])
    found = minimize_cost(None, probs, labels, kind="probs", costs=binary_costs(5, 50, 1), review=1)
    decisions = found.policy.decide(np.stack([1 - probs, probs], axis=1), np.array([0, 1]))
    assert decisions.action.tolist() == ["automate", "automate", "review", "review", "review", "automate", "automate"]
    assert decisions.label[decisions.automated].tolist() == [0, 0, 1, 1]
    assert found.cost.value == pytest.approx((0 + 50 + 1 + 1 + 1 + 0 + 5) / 7)
    assert found.today.value == pytest.approx((0 + 50 + 0 + 50 + 0 + 0 + 5) / 7)  # at 0.5 the first class is predicted
    assert found.saving.value == pytest.approx(found.today.value - found.cost.value)
    assert found.value_of_calibrating.value == 0
    assert found.value_of_calibrating.low <= 0 <= found.value_of_calibrating.high
    assert found.coverage == pytest.approx(4 / 7)


def test_calibrating_has_a_value_and_the_table_may_hold_the_review(tmp_path):
    rng = np.random.default_rng(0)
    z, y, _ = rare(rng, 6000)
    cal = rhocal.TemperatureScaling().fit(z[:3000], y[:3000])
    found = minimize_cost(cal, z[3000:], y[3000:], costs=binary_costs(5, 50, 1), review=1)
    assert found.saving.low > 0
    assert found.value_of_calibrating.low > 0
    assert "; calibrating saves: " in found.verdict
    same = minimize_cost(cal, z[3000:], y[3000:], costs=[[0, 5, 1], [50, 0, 1]])
    assert same.cost == found.cost
    cal.policy_ = found.policy
    cal.save(tmp_path / "cal.safetensors")
    decisions = rhocal.load(tmp_path / "cal.safetensors").decide(z[3000:])
    paid = np.where(decisions.automated, np.array([[0, 5], [50, 0]])[y[3000:], decisions.column], 1)
    assert paid.mean() == pytest.approx(found.cost.value)
    assert found.to_dict()["costs"] == [[0, 5, 1], [50, 0, 1]]
    with pytest.raises(InputError, match="has a column for a review already"):
        minimize_cost(cal, z, y, costs=[[0, 5, 1], [50, 0, 1]], review=1)


def test_intervals_cover_costs_that_are_rare():
    """A cost of 500 in 1 of 1,000 samples: 300 samples rarely show one. Of 100 intervals 86 or fewer would refute 95 %."""
    n_covered = 0
    for trial in range(100):
        rng = np.random.default_rng(trial)
        values = np.where(rng.random(300) < 0.001, 500.0, np.where(rng.random(300) < 0.3, 1.0, 0.0))
        found = mean_cost(values, np.array([0.0, 1, 500]), np.ones(300))
        n_covered += found.low <= 0.001 * 500 + 0.999 * 0.3 <= found.high
    assert n_covered > 86
    none = mean_cost(np.zeros(50), np.array([-1.0, 0, 1]), np.ones(50))
    assert none.low < 0 < none.high


def test_tables_of_costs(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("0,5\n50,0\n")
    assert read_costs(path, ["no", "yes"]).tolist() == [[0, 5], [50, 0]]
    path.write_text("class,review,yes,no\nyes,1,0,50\nno,2,5,0\n")
    assert read_costs(path, ["no", "yes"]).tolist() == [[0, 5, 2], [50, 0, 1]]
    for text, message in (
        ("class,yes,maybe\nyes,0,1\nmaybe,1,0\n", "with the classes no, yes"),
        ("0,x\n1,0\n", "a cost is no number"),
        ("0,1\n1\n", "as many numbers in every row"),
        ("", "as many numbers in every row"),
    ):
        path.write_text(text)
        with pytest.raises(FileError, match=message):
            read_costs(path, ["no", "yes"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"costs": "a"}, "costs must be a table of numbers"),
        ({"costs": [[1, 2], [3]]}, "costs must be a table of numbers"),
        ({"costs": 1 - np.eye(3), "review": "x"}, "review must be a finite cost; got 'x'"),
        ({"costs": 1 - np.eye(3), "seed": -1}, "seed must be a whole number of at least 0; got -1"),
    ],
)
def test_bad_costs(options, message):
    with pytest.raises(InputError, match=message):
        rhocal.minimize_cost(None, 2 * np.eye(3), [0, 1, 2], **options)


def test_costs_of_many_classes_do_not_depend_on_the_batch():
    """300 classes: the table of costs does not fit one block of columns."""
    rng = np.random.default_rng(0)
    probs, costs = rng.dirichlet(np.ones(300), 40), rng.random((300, 300))
    policy = Policy("cost", costs=costs)
    whole = policy.decide(probs, np.arange(300)).column
    assert np.array_equal(whole, (probs @ costs).argmin(axis=1))
    expected = NUMPY.matmul(probs, costs)
    np.testing.assert_allclose(expected, probs @ costs, rtol=1e-13)
    assert np.array_equal(expected[7:9], NUMPY.matmul(probs[7:9], costs))
