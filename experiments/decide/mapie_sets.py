"""Prediction sets beside MAPIE on the same samples: the same guarantee, coverage and set sizes.

Writes mapie_sets.csv beside this file.

    python experiments/decide/mapie_sets.py --trials 50
"""

from __future__ import annotations

import argparse
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mapie.classification import SplitConformalClassifier
from set_populations import SetPopulation, set_populations
from sklearn.base import BaseEstimator, ClassifierMixin

import rhocal
from rhocal.calibrators.policies.prediction_sets import SET_SCORES
from rhocal.evaluation.rows import write_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Floats

HERE = Path(__file__).parent
SIZES = (200, 1000)
N_TEST = 1000
COVERAGE = 0.9


class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose input are its probabilities."""

    def fit(self, x: Floats, _y: Any = None) -> Given:
        self.classes_, self.fitted_ = np.arange(x.shape[1]), True
        return self

    def predict_proba(self, x: Floats) -> Floats:
        return x

    def predict(self, x: Floats) -> NDArray[np.intp]:
        return self.classes_[x.argmax(axis=1)]


def mapie_sets(
    score: str, probs: Floats, labels: NDArray[np.intp], new: Floats, last: Any, seed: int
) -> NDArray[np.bool_]:
    """The sets of MAPIE; ``last`` is whether the class at which the sum passes the limit is included."""
    model = SplitConformalClassifier(Given().fit(probs), COVERAGE, score, prefit=True, random_state=seed)
    model.conformalize(probs, labels)
    options = {} if score == "lac" else {"include_last_label": last}
    return np.asarray(model.predict_set(new, conformity_score_params=options)[1][:, :, 0], bool)


def rhocal_sets(score: Any, probs: Floats, labels: NDArray[np.intp], new: Floats) -> NDArray[np.bool_]:
    """Ours."""
    found = rhocal.decide_sets(None, probs, labels, coverage=COVERAGE, score=score, kind="probs")
    sets = found.policy.decide(new, np.arange(new.shape[1])).sets
    assert sets is not None
    return sets


def cell(population: SetPopulation, score: Any, n: int, trials: int) -> list[dict[str, Any]]:
    names = ["rhocal", "MAPIE"] + ["MAPIE, randomized"] * (score != "lac")
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for trial in range(trials):
        rng = np.random.default_rng([zlib.crc32(population.name.encode()), n, trial])
        rows, labels = population.draw(rng, n)
        if len(np.unique(labels)) < population.probs.shape[1]:
            continue  # MAPIE refuses labels that lack a class
        test = rng.integers(0, len(population.probs), N_TEST)
        probs, new, truth = population.probs[rows], population.probs[test], population.truth[test]
        found = {"rhocal": rhocal_sets(score, probs, labels, new)}
        for name, last in (("MAPIE", True), ("MAPIE, randomized", "randomized")):
            if name in names:
                found[name] = mapie_sets(score, probs, labels, new, last, trial)
        for name, sets in found.items():
            results[name].append((float((truth * sets).sum(axis=1).mean()), float(sets.sum(axis=1).mean())))
    return [
        {
            "population": population.name, "score": score, "n": n, "library": name, "trials": len(values),
            "coverage": float(np.mean([one[0] for one in values])), "size": float(np.mean([one[1] for one in values])),
        }
        for name, values in results.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for population in set_populations()[:3]:
        for score in SET_SCORES:
            for n in SIZES:
                rows += cell(population, score, n, args.trials)
                print(*rows[-3:], sep="\n", flush=True)
    write_rows(HERE / "mapie_sets.csv", rows)


if __name__ == "__main__":
    main()
