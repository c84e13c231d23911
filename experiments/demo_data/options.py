"""Multiple-choice options scored by a small language model: the language-model file of the demo.

    python experiments/demo_data/options.py

The model is a trigram model of words, trained on the docstrings of most of Python's standard library. A question is the
beginning of a sentence from the rest; its four options are the true next words and those of three other sentences. The score of
an option is its log-probability after the beginning minus its log-probability alone, one of the usual scores of options.
Options are shuffled: their position means nothing.
"""

from __future__ import annotations

import argparse
import ast
import re
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np
from shipped_sets import SHIPPED, write_sets

N_QUESTIONS, N_OPTIONS, N_CONTEXT, N_WORDS, SEED = 6_000, 4, 4, 3, 0
SHARE_OF_TRAINING = 0.6
ORDER_WEIGHTS = (0.1, 0.3, 0.6)
"""Of the frequencies of a word alone, after one word, and after two."""


def sentences(path: Path) -> list[list[str]]:
    """The sentences of a module's docstrings, as words in lower case."""
    tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, nodes)]
    parts = [part for text in texts for part in re.split(r"[.:;!?]\s|\n\s*\n", text)]
    return [words for part in parts if len(words := re.findall(r"[a-z']+", part.lower())) >= N_CONTEXT + N_WORDS]


class Trigrams:
    """Interpolated frequencies of words after the two before them."""

    def __init__(self, texts: list[list[str]]) -> None:
        self.counts: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(4)]
        for words in texts:
            for n in range(1, 4):
                self.counts[n].update(tuple(words[k : k + n]) for k in range(len(words) - n + 1))
        self.n_words = self.counts[1].total()

    def evidence(self, context: list[str], option: list[str]) -> float:
        """Log-probability of an option after a context, minus its log-probability without one."""
        return self._log_probability(context, option) - self._log_probability([], option)

    def _log_probability(self, context: list[str], option: list[str]) -> float:
        words = context + option
        return sum(self._log_next(words[max(k - 2, 0) : k], words[k]) for k in range(len(context), len(words)))

    def _log_next(self, before: list[str], word: str) -> float:
        p = ORDER_WEIGHTS[0] * max(self.counts[1][word,], 0.5) / self.n_words  # never seen: as half a time
        for n in range(1, len(before) + 1):
            seen = self.counts[n][tuple(before[-n:])]
            p += ORDER_WEIGHTS[n] * self.counts[n + 1][(*before[-n:], word)] / max(seen, 1)
        return float(np.log(p))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=SHIPPED / "options.npz")
    args = parser.parse_args()
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(path for path in library.rglob("*.py") if not {"site-packages", "test", "tests"} & set(path.parts))
    rng = np.random.default_rng(SEED)
    is_training = rng.random(len(paths)) < SHARE_OF_TRAINING
    model = Trigrams([s for path, known in zip(paths, is_training, strict=True) if known for s in sentences(path)])
    others = [s for path, known in zip(paths, is_training, strict=True) if not known for s in sentences(path)]
    unique = list({tuple(s[: N_CONTEXT + N_WORDS]): s for s in others}.values())
    chosen = [unique[k] for k in rng.permutation(len(unique))[:N_QUESTIONS]]
    scores, labels = np.empty((len(chosen), N_OPTIONS)), np.empty(len(chosen), np.int64)
    for row, words in enumerate(chosen):
        wrong = rng.choice(len(unique), N_OPTIONS - 1, replace=False)
        ends = [unique[k][N_CONTEXT : N_CONTEXT + N_WORDS] for k in wrong]
        labels[row] = rng.integers(N_OPTIONS)
        ends.insert(int(labels[row]), words[N_CONTEXT : N_CONTEXT + N_WORDS])
        scores[row] = [model.evidence(words[:N_CONTEXT], end) for end in ends]
    print(f"{len(paths)} modules, {model.n_words:,} words of training, {len(unique):,} sentences to ask about")
    write_sets(args.output, scores, labels, [*"ABCD"], seed=SEED)


if __name__ == "__main__":
    main()
