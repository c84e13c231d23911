"""Fits, figures and profiles of streams: every byte of logits is read once, and memory does not grow with the classes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rhocal.blocks import SLICE_ENTRIES, Plan, plan_for, plan_to_save, profile_block
from rhocal.calibrators import Calibrator, ScaleCalibrator
from rhocal.errors import InputError, RhocalError, RhocalWarning, SubsampleWarning, SuspiciousInputWarning
from rhocal.metrics import CORE, METRICS, Scored
from rhocal.predictions import Predictions, predictions
from rhocal.profile import Profile
from rhocal.threads import in_threads, row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rhocal.special import Vector
    from rhocal.stored import Chunk
    from rhocal.streams import Stream

PILOT_ENTRIES = 1 << 23
"""Logits of the pilot: a fit on them finds the neighbourhood of the optimum."""

PILOT_SAMPLES = 400
"""A pilot has at least this many samples, however many classes there are."""

PILOT_PLACES = 8
"""Places of a file that the pilot comes from, so that an order of the samples does not matter."""

SUBSAMPLE_ENTRIES = 1 << 24
"""Logits that are kept in memory for methods that cannot stream: 64 MB in single precision, and several times that in a fit."""

FAR = 0.5
"""Octaves around a sample's expected scale within which its curve is good to 1e−4."""

EDGE = 2.5
"""Octaves around the expected scale that a wide table safely holds; it ends at three."""

FEW = 0.02
"""Share of the samples that may end farther away than that before the stream is read a second time."""

WHY_NOT = "it needs the logits of all samples at once"

State = TypeVar("State")


def told_of(stream: Stream, said: Mapping[str, Any] | None) -> dict[str, Any]:
    """What ``rhocal.predictions`` is told of every block; classes that stand in the file count if none were said."""
    told = {"kind": "logits", "classes": None, "ignore_index": None} | dict(said or {})
    if told["classes"] is None:
        told["classes"] = stream.classes
    return told


def fit(
    calibrator: Calibrator,
    stream: Stream,
    said: Mapping[str, Any] | None = None,
    step: Callable[[Chunk], None] | None = None,
) -> Profile | None:
    """Fit on a stream; the profile it was fitted on, or None where a subsample of the logits was used.

    Families that multiply a sample's logits are fitted on the profile of all samples. Others are fitted on as many
    samples, drawn with a fixed seed, as ``SUBSAMPLE_ENTRIES`` allows.
    """
    told = told_of(stream, said)
    if calibrator.takes_groups:
        raise InputError(f"{calibrator.name} needs groups, which a stream does not carry; fit on arrays")
    if not isinstance(calibrator, ScaleCalibrator):
        _fit_subsample(calibrator, stream, told, step, WHY_NOT)
        return None
    reader = Reader(stream, step)
    pilot = reader.pilot(told)
    try:
        plan = plan_for(calibrator, pilot, told)
    except InputError as error:
        if "fit on the logits" not in str(error):
            raise
        _fit_subsample(calibrator, reader.rewound(), told, step, str(error))
        return None
    if not stream.again:  # there is no second chance: a wide table for all
        plan = replace(plan, guide=None)
    profile = reader.profile(plan)
    said_by_fit = fit_quietly(calibrator, profile)
    if plan.guide is not None and strayed(calibrator, profile, FAR) > FEW:
        late = pilot_of(reader.seen, told)  # from every block this time
        profile = Reader(stream, step).profile(plan_for(calibrator, late, told))
        said_by_fit = fit_quietly(calibrator, profile)
    elif calibrator.guided and strayed(calibrator, profile, EDGE) > FEW:
        raise InputError(
            f"the first blocks misled: samples ended more than {EDGE:g} octaves from the scale that they let expect, where "
            "nothing is known of their curves. An iterator cannot be read again: put its blocks in random order, or write "
            "them to a file"
        )
    for warning in said_by_fit:
        warnings.warn(str(warning.message), warning.category, stacklevel=4)
    return profile


def fit_quietly(calibrator: ScaleCalibrator, profile: Profile) -> list[warnings.WarningMessage]:
    """Fit; what it warned of is returned, for it may be about a fit that is not the last."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RhocalWarning)
        calibrator.fit_profile(profile)
    return [warning for warning in caught if issubclass(warning.category, RhocalWarning)]


def profile(
    stream: Stream, said: Mapping[str, Any] | None = None, step: Callable[[Chunk], None] | None = None
) -> Profile:
    """The profile of a stream, for every family, as ``save_profile`` writes it."""
    told = told_of(stream, said)
    reader = Reader(stream, step)
    return reader.profile(plan_to_save(reader.pilot(told), told))


def strayed(calibrator: ScaleCalibrator, profile: Profile, beyond: float) -> float:
    """Share of the samples whose fitted scale is far from the middle of their table."""
    centre = getattr(profile.table, "log_centre", None)
    if centre is None:
        return 0.0
    octaves = np.abs(np.log(calibrator.scale_of(profile)) - centre) / np.log(2)
    return float(profile.weights @ (octaves > beyond))


def pilot_blocks(n_blocks: int) -> list[int]:
    """Blocks that the pilot comes from: some, from all over."""
    return sorted({round(k) for k in np.linspace(0, n_blocks - 1, min(PILOT_PLACES, n_blocks))})


def pilot_size(chunk: Chunk) -> int:
    """How many samples a pilot has."""
    return max(PILOT_SAMPLES, PILOT_ENTRIES // (np.shape(chunk.logits)[1] if np.ndim(chunk.logits) > 1 else 2))


def pilot_rows(chunk: Chunk, places: int) -> tuple[Any, Any]:
    """What a block gives to a pilot that comes from so many places."""
    if chunk.labels is None:
        raise InputError(f"{chunk.where}: no labels; a fit needs one label for each sample")
    share = min(len(chunk.labels), -(-pilot_size(chunk) // places))
    rows = np.arange(share) * len(chunk.labels) // share
    return np.asarray(chunk.logits)[rows], np.asarray(chunk.labels)[rows]


def pilot_of(taken: Sequence[tuple[Any, Any]], told: Mapping[str, Any]) -> Predictions:
    """The pilot from the parts of its blocks."""
    if not taken:
        raise InputError("the stream is empty: no block could be read")
    logits, labels = (np.concatenate(part) for part in zip(*taken, strict=True))
    return predictions(logits, labels, **told)


class Reader:
    """Reads a stream once: the pilot first, then the rest."""

    def __init__(self, stream: Stream, step: Callable[[Chunk], None] | None) -> None:
        self.stream, self.step = stream, step or (lambda _: None)
        self.held: dict[int, Chunk] = {}
        self.seen: list[tuple[Any, Any]] = []  # a few samples of every block, for a second plan if the first one misled
        self._rest: Iterator[tuple[int, Chunk]] | None = None

    def pilot(self, told: Mapping[str, Any]) -> Predictions:
        """A few samples: of a file from all over it, of an iterator its first blocks."""
        pieces = self.stream.pieces
        if pieces is None:
            self._rest = self.stream.chunks()
            source, places = self._rest, 1
        else:
            chosen = pilot_blocks(len(pieces))
            source, places = self.stream.chunks(chosen), len(chosen)
        taken: list[tuple[Any, Any]] = []
        for k, chunk in source:
            self.held[k] = chunk
            taken.append(pilot_rows(chunk, places))
            if pieces is None and sum(len(labels) for _, labels in taken) >= pilot_size(chunk):
                break
        try:
            return pilot_of(taken, told)
        except InputError:
            for chunk in self.held.values():  # to say it of the block, with its rows
                _named(chunk, lambda chunk: predictions(chunk.logits, chunk.labels, **told))
            raise

    def rewound(self) -> Stream:
        """The stream from its beginning."""
        if self.stream.again:
            return self.stream
        held, rest = list(self.held.values()), self._rest
        assert rest is not None

        def everything() -> Iterator[tuple[Any, Any, Any]]:
            for chunk in (*held, *(chunk for _, chunk in rest)):
                yield chunk.logits, chunk.labels, chunk.sample_weight

        return replace(self.stream, iterator=everything())

    def chunks(self) -> Iterator[tuple[int, Chunk]]:
        """Every block once, those of the pilot first."""
        done = set(self.held)
        for k in sorted(done):
            yield k, self.held.pop(k)
        if self._rest is not None:
            yield from self._rest
        elif self.stream.pieces is None:
            yield from self.stream.chunks()
        else:
            yield from self.stream.chunks([k for k in range(len(self.stream.pieces)) if k not in done])

    def profile(self, plan: Plan) -> Profile:
        """The profile of all samples, in their order."""
        parts: dict[int, Profile] = {}
        for k, chunk in self.chunks():
            part = chunk_profile(chunk, plan)
            if part is not None:
                parts[k] = part
            if self.stream.pieces is not None:
                self.seen.append(pilot_rows(chunk, len(self.stream.pieces)))
            self.step(chunk)
        return joined([parts[k] for k in sorted(parts)])


def chunk_profile(chunk: Chunk, plan: Plan) -> Profile | None:
    """The profile of a block; an error says which block it was."""
    return _named(chunk, lambda chunk: profile_block(chunk.logits, chunk.labels, plan, chunk.sample_weight))


def chunk_sums(
    chunk: Chunk, calibrators: Mapping[str, Calibrator | None], told: Mapping[str, Any], names: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """The sums of a block; an error says which block it was."""
    return _named(
        chunk, lambda chunk: block_sums(chunk.logits, chunk.labels, calibrators, told, names, chunk.sample_weight)
    )


def joined(parts: Sequence[Profile | None]) -> Profile:
    """One profile from those of all blocks."""
    kept = [part for part in parts if part is not None]
    if not kept:
        raise InputError("the stream has no samples: every label is ignore_index, or every weight 0")
    return Profile.concat(kept)


def _named(chunk: Chunk, work: Callable[[Chunk], State]) -> State:
    """Do it; an error says in which block."""
    if chunk.labels is None:
        raise InputError(f"{chunk.where}: no labels; this needs one label for each sample")
    try:
        return work(chunk)
    except RhocalError as error:
        raise type(error)(f"{chunk.where}: {error}") from error


def subsample(
    stream: Stream, told: Mapping[str, Any], step: Callable[[Chunk], None] | None = None, seed: int = 0
) -> tuple[Predictions, int]:
    """As many samples as ``SUBSAMPLE_ENTRIES`` allows, and how many there were.

    Every sample draws a number from a generator seeded with ``seed`` and the number of its block; the smallest numbers
    stay. So each set of that size is equally likely, and the same file gives the same set.
    """
    drawn, logits, labels, weights, n_seen = np.empty(0), [], [], [], 0
    for k, chunk in stream.chunks():
        n_columns = np.shape(chunk.logits)[1] if np.ndim(chunk.logits) > 1 else 2
        room = subsample_size(n_columns)
        numbers = lots(k, len(chunk.labels), seed)
        n_seen += len(numbers)
        logits.append(np.asarray(chunk.logits))
        labels.append(chunk.labels)
        weights.append(np.ones(len(numbers)) if chunk.sample_weight is None else chunk.sample_weight)
        drawn = np.concatenate([drawn, numbers])
        if len(drawn) > room:
            kept = np.sort(np.argpartition(drawn, room)[:room])
            drawn = drawn[kept]
            logits, labels, weights = ([np.concatenate(part)[kept]] for part in (logits, labels, weights))
        if step is not None:
            step(chunk)
    weight = np.concatenate(weights)
    given = None if (weight == 1).all() else weight
    return predictions(np.concatenate(logits), np.concatenate(labels), sample_weight=given, **told), n_seen


def lots(block: int, n: int, seed: int = 0) -> Vector:
    """The number that each sample of a block draws."""
    return np.random.default_rng((seed, block)).random(n)


def subsample_size(n_columns: int) -> int:
    """How many samples are kept for methods that cannot stream."""
    return max(PILOT_SAMPLES, SUBSAMPLE_ENTRIES // n_columns)


def fit_checked(calibrator: Calibrator, data: Predictions, n_seen: int, why: str, stacklevel: int) -> None:
    """Fit on a subsample, and say so if it is one."""
    if data.n_samples + data.n_ignored < n_seen:
        warnings.warn(
            f"{calibrator.name} cannot be fitted block by block ({why}); {data.n_samples:,} of {n_seen:,} samples were "
            "drawn with a fixed seed, and it was fitted on those",
            SubsampleWarning,
            stacklevel=stacklevel + 1,
        )
    calibrator.fit_checked(data, data.kind)


def _fit_subsample(
    calibrator: Calibrator, stream: Stream, told: dict[str, Any], step: Callable[[Chunk], None] | None, why: str
) -> None:
    data, n_seen = subsample(stream, told, step)
    fit_checked(calibrator, data, n_seen, why, stacklevel=5)


def figures(
    stream: Stream,
    calibrators: Mapping[str, Calibrator | None],
    said: Mapping[str, Any] | None = None,
    step: Callable[[Chunk], None] | None = None,
    names: Iterable[str] = tuple(CORE),
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Metrics of a stream under several calibrators (None: as it is), and bounds of the error of those sketched."""
    told = told_of(stream, said)
    names = tuple(names)
    total: dict[str, dict[str, Any]] = {}
    for _, chunk in stream.chunks():
        add(total, chunk_sums(chunk, calibrators, told, names))
        if step is not None:
            step(chunk)
    return read_off(total, names)


def read_off(
    total: Mapping[str, Mapping[str, Any]], names: Iterable[str]
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Values from sums, and bounds of the error of those that are sketched."""
    if not total:
        raise InputError("the stream has no samples")
    values = {who: {name: state.value for name, state in sums.items()} for who, sums in total.items()}
    bounds = {
        name: max(sums[name].error for sums in total.values()) for name in names if METRICS[name].streams == "sketch"
    }
    return values, bounds


def block_sums(
    logits: Any,
    labels: Any,
    calibrators: Mapping[str, Calibrator | None],
    told: Mapping[str, Any],
    names: Iterable[str] = tuple(CORE),
    sample_weight: Any = None,
) -> dict[str, dict[str, Any]]:
    """The sums of one block: calibrator → metric → state. States of blocks add."""
    names = tuple(names)
    _check_streams(names)
    ignored = told.get("ignore_index")

    def part(rows: slice) -> dict[str, dict[str, Any]]:
        if ignored is not None and (np.asarray(labels[rows]) == ignored).all():
            return {}
        weight = None if sample_weight is None else sample_weight[rows]
        if weight is not None and not np.any(weight):
            return {}
        data = predictions(logits[rows], labels[rows], sample_weight=weight, **told)
        found = {}
        for who, cal in calibrators.items():
            seen = data if cal is None else replace(data, scores=cal.transform_checked(data.logits), kind="logits")
            samples = Scored.of(seen)
            found[who] = {name: _state(name, samples) for name in names}
        return found

    total: dict[str, dict[str, Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuspiciousInputWarning)
        for found in in_threads(part, list(row_blocks(len(labels), np.shape(logits)[-1], SLICE_ENTRIES))):
            add(total, found)
    return total


def _check_streams(names: Iterable[str]) -> None:
    for name in names:
        if name not in METRICS:
            raise InputError(f"there is no metric {name!r}; `rhocal metrics` lists them")
        if METRICS[name].streams == "no":
            raise InputError(f"{name} cannot be added up over blocks: {METRICS[name].why_not}")


def _state(name: str, samples: Scored) -> Any:
    metric = METRICS[name]
    make = metric.sums if metric.sums is not None else metric.sketch
    assert make is not None
    return make(samples)


def add(total: dict[str, dict[str, Any]], more: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the sums of a block."""
    for who, sums in more.items():
        mine = total.setdefault(who, {})
        for name, state in sums.items():
            mine[name] = mine[name] + state if name in mine else state


def measure(
    logits: Any,
    labels: Any = None,
    *,
    calibrator: Calibrator | None = None,
    metrics: Iterable[str] = tuple(CORE),
    **said: Any,
) -> dict[str, float]:
    """Metrics of a ``rhocal.stream``, or of Dask arrays with their labels, added up block by block.

    ``calibrator`` is applied first, if given; ``said`` is ``kind``, ``classes`` and ``ignore_index``. Metrics of rank
    (``adaptive_ece``) come from a sketch in fixed memory.
    """
    if type(logits).__module__.split(".")[0] == "dask":
        from rhocal.dask import figures as on_dask  # noqa: PLC0415 - Dask is there if its arrays are

        return on_dask(logits, labels, {"": calibrator}, said, metrics)[0][""]
    if type(logits).__module__ != "rhocal.streams":
        raise InputError("measure takes a rhocal.stream or Dask arrays; of arrays in memory use rhocal.metrics")
    return figures(logits, {"": calibrator}, said, names=metrics)[0][""]
