"""What `auto` believes and what is true, with 8 answers of each of 300 questions: without and with `clusters=`.

Scores of a question's answers are nearly the same, and so are their labels. New questions are the truth.
"""

import warnings

import numpy as np

import rhocal
from rhocal.errors import RhocalWarning

N_QUESTIONS, N_ANSWERS, N_NEW, N_OPTIONS, N_SEEDS = 300, 8, 4000, 4, 10


def questions(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are over-confident by a factor of 1.5, and labels."""
    logits = 1.5 * rng.normal(size=(n, N_OPTIONS))
    probs = np.exp(logits / 1.5)
    shares = np.cumsum(probs / probs.sum(axis=1, keepdims=True), axis=1)
    return logits, (rng.random(n)[:, None] > shares).sum(axis=1).clip(max=N_OPTIONS - 1)


def main() -> None:
    """Print a row for each of the two fits: NLL above temperature scaling, as held-out answers and new questions show it."""
    rows: dict[str, list[tuple[float, float, str]]] = {"without clusters": [], "with clusters": []}
    for seed in range(N_SEEDS):
        rng = np.random.default_rng(seed)
        logits, labels = questions(rng, N_QUESTIONS)
        clusters = np.repeat(np.arange(N_QUESTIONS), N_ANSWERS)
        answers = logits[clusters] + 0.3 * rng.normal(size=(len(clusters), N_OPTIONS))
        new, new_labels = questions(rng, N_NEW)
        single = rhocal.TemperatureScaling().fit(answers, labels[clusters])
        baseline = rhocal.metrics.nll(single.predict_proba(new), new_labels)
        for name, stated in (("without clusters", None), ("with clusters", clusters)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RhocalWarning)
                cal = rhocal.AutoCalibrator().fit(answers, labels[clusters], clusters=stated)
            held_out = cal.solution_.held_out
            true = rhocal.metrics.nll(cal.predict_proba(new), new_labels) - baseline
            rows[name].append((0.0 if held_out is None else held_out.above["nll"], true, cal.chosen_.label))
    print(f"{'':18}{'held out':>10}{'true':>8}{'worst':>8}  chosen")
    for name, values in rows.items():
        believed, above = (np.array([value[k] for value in values]) for k in (0, 1))
        chosen = sorted({value[2] for value in values}, key=[value[2] for value in values].count, reverse=True)
        print(f"{name:18}{believed.mean():10.3f}{above.mean():8.3f}{above.max():8.3f}  {', '.join(chosen)}")


if __name__ == "__main__":
    main()
