"""Files of the k best classes in `rhocal compare`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rhocal.cli.options import Arrays, SpecOptions
from rhocal.cli.top_k import top_k_of
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from rhocal.cli.execution import ExecutionOptions
    from rhocal.cli.top_k import TopKInput
    from rhocal.evaluation.models import ModelAnswers
    from rhocal.evaluation.rows import Row
    from rhocal.profile.top_k import LabeledTopK


@dataclass(frozen=True)
class TopKNetwork:
    """A file of the k best classes, and how it is read."""

    path: Path
    network: str
    """How rows call it."""
    arrays: Arrays
    execution: ExecutionOptions
    clusters: str | None = None
    ignore_index: int | None = None
    streams = False
    holds_options = False
    holds_answers = False

    @cached_property
    def data(self) -> TopKInput:
        """What the file holds."""
        data = top_k_of(self.path, self.arrays, SpecOptions(ignore_index=self.ignore_index), self.execution)
        assert data is not None
        return data.with_clusters(self.clusters)

    @cached_property
    def samples(self) -> LabeledTopK:
        """The samples that have a label."""
        return self.data.labeled(self.data.top, self.data.classes)

    @property
    def n_bytes(self) -> int:
        """Its size."""
        return self.path.stat().st_size

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.samples.data.n_classes

    @cached_property
    def key(self) -> str:
        """Changes with its bytes, and with what is stated about them."""
        from rhocal.data.storage.content import content_key

        labels = [] if self.arrays.labels is None else [self.arrays.labels]
        stated = [self.arrays.labels_name, self.arrays.weights, self.clusters]
        return content_key(self.path, labels, [*stated, *([] if self.ignore_index is None else [self.ignore_index])])

    @property
    def answers(self) -> ModelAnswers | None:
        """Whether the best classes are right, to be compared with those of another model."""
        from rhocal.evaluation.models import ModelAnswers

        has_ids = "question_id" in self.data.file.arrays
        ids = self.data.beside("question_id", self.samples) if has_ids else None
        return ModelAnswers(replace(self.samples.answers, rows=self.samples.rows), ids, is_correctness=True)

    def tasks(
        self, names: list[str], seeds: int, done: Collection[tuple[str, str, str]], *, has_keys: bool
    ) -> list[TopKTask]:
        """What is left to do, one task per split."""
        missing = {
            seed: tuple(name for name in names if (self.network, f"seed {seed}", name) not in done)
            for seed in range(seeds)
        }
        return [TopKTask(self, seed, left, self.key if has_keys else "") for seed, left in missing.items() if left]


@dataclass(frozen=True)
class TopKTask:
    """Methods on one split of a file."""

    file: TopKNetwork
    seed: int
    names: tuple[str, ...]
    key: str = ""

    @property
    def n_fits(self) -> int:
        """Number of rows."""
        return len(self.names)

    def rows(self) -> Iterator[Row]:
        """Fit and measure."""
        from rhocal.calibrators import calibrator
        from rhocal.evaluation.top_k import compare_top_k

        methods = {name: calibrator(name) for name in self.names}
        yield from compare_top_k(self.file.network, self.file.samples, methods, self.seed, self.key)
