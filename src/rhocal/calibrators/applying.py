"""Apply a calibrator to a source and write the results, block by block; an interrupted run is continued."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.policies.policy import AUTOMATE
from rhocal.data.arrays import restore_shape
from rhocal.data.formats.questions import NO_OPTION
from rhocal.data.predictions import SMALLEST_PROB
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec
from rhocal.data.storage.atomic import check_output
from rhocal.data.storage.writers import Arrays, open_writer
from rhocal.errors import InputError
from rhocal.numerics.special import row_max

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.bootstrap.replicates import Replicates
    from rhocal.data.blocks import BlockRef
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source

WRITE = ("probs", "logits")
OUTPUT_METHODS = {"probs": "predict_proba", "logits": "transform", "predicted": "predict"}
"""What is computed → the method of a calibrator that computes it."""


def apply(
    calibrator: Calibrator, scores: Any, output: Path, *, write: str = "probs", kind: Any = None, restart: bool = False
) -> dict[str, Any]:
    """Write calibrated probabilities (or logits), predicted classes, confidences and, where the input has them, labels.

    ``scores`` is a ``rhocal.stream`` or an array. Interrupted, even by a kill, the same call continues after the last
    complete block. With other arguments it raises an error, unless ``restart`` discards what is there.
    """
    spec = InputSpec(kind or calibrator.kind_)
    return apply_source(calibrator, as_source(scores, spec=spec), output, write=write, restart=restart)


def apply_source(
    calibrator: Calibrator, source: Source, output: Path, *, write: str = "probs", restart: bool = False,
    beside: Mapping[str, Any] | None = None, replicates: Replicates | None = None, level: float = 0.95,
) -> dict[str, Any]:  # fmt: skip
    """The same for a source; the numbers of rows and blocks that were written.

    ``beside`` are further arrays with one value a row, for a resident source: identifiers, say. With ``replicates`` intervals
    of the probabilities are written too.
    """
    if write not in WRITE:
        raise InputError(f"write is probs or logits; got {write!r}")
    if not source.is_rereadable or source.n_rows is None:
        raise InputError("an iterator does not state how many rows it has; apply to a file")
    if source.log.skip_bad and not source.resident:
        raise InputError("skip_bad would shift the rows of the output; repair the file, or leave it out")
    if not source.n_rows:
        raise InputError("the source has no samples")
    blocks: Sequence[BlockRef] = list(source.blocks)
    check_output(output, {path for block in blocks if (path := _file_of(block)) is not None})
    fingerprint = (
        ""
        if source.resident
        else _fingerprint(calibrator, source, [write, None if replicates is None else [level, *replicates.describe()]])
    )
    progress = source.progress
    source = replace(source, needs_labels=False, progress=None)  # progress counts rows that are written
    work = partial(calibrate_block, calibrator=calibrator, write=write, replicates=replicates, level=level)
    with open_writer(
        output, None if source.resident else source.sizes, fingerprint, calibrator.classes_, restart=restart
    ) as writer:
        first_block, first_row = writer.n_blocks, writer.n_rows
        names: list[str] = []
        for block, arrays in zip(blocks[first_block:], source.skip(first_block).map(work), strict=True):
            if "action" in arrays and output.suffix == ".safetensors":  # which holds numbers; 1: automate, as in ONNX
                arrays["action"] = (arrays["action"] == AUTOMATE).astype(np.int64)
            if source.resident:
                arrays = _with_others(_in_shape(arrays, source), beside or {})  # noqa: PLW2901
            writer.append(arrays)
            names = list(arrays)
            if progress is not None:
                progress(block.n_rows)
    return {"rows": source.n_rows, "resumed_at": first_row, "blocks": len(blocks) - first_block, "arrays": names}


def calibrate_block(
    data: Predictions, calibrator: Calibrator, write: str, replicates: Replicates | None = None, level: float = 0.95
) -> Arrays:
    """The arrays that are written of a block: always ``probs`` or ``logits``, ``predicted``, ``confidence``, ``labels``.

    Of a calibrator with a policy also ``decided``, the class that is decided, ``action``, and ``set``, if it has
    prediction sets. With replicates ``probs_low`` and ``probs_high``, the intervals of the probabilities.
    """
    if data.n_classes != len(calibrator.classes_):
        raise InputError(f"{data.n_classes} classes, but the calibrator was fitted with {len(calibrator.classes_)}")
    data = data.in_order_of(calibrator.classes_)[0]
    probs = calibrator.map_.probs(data)
    if data.kind == "logits" and isinstance(data.scores, np.ndarray):
        # An option that a question does not have, unless all logits are so large; the scalar has a type of its own, as it is
        # beyond half precision.
        is_absent = np.less_equal(data.scores, np.float32(NO_OPTION / 2)) & (probs < SMALLEST_PROB)
        probs = np.where(is_absent, 0.0, probs) if is_absent.any() else probs
    predicted = calibrator.classes_[calibrator.map_.predicted(data)]
    arrays = {
        write: probs if write == "probs" else calibrator.map_.logits(data),
        "predicted": _plain(predicted),
        "confidence": row_max(probs),
    }
    if replicates is not None:
        arrays["probs_low"], arrays["probs_high"] = replicates.bounds(data, level)
    if calibrator.policy_ is not None:
        decisions = calibrator.policy_.decide(probs, calibrator.classes_)
        arrays |= {"decided": _plain(decisions.label), "action": decisions.action}
        if decisions.sets is not None:
            arrays["set"] = decisions.sets
    if data.stored_labels is not None:
        arrays["labels"] = _plain(np.asarray(data.stored_labels))
    return arrays


def _plain(values: Any) -> Any:
    """Whole numbers as int64 and texts as texts, however they were stored."""
    if values.dtype.kind in "iu":
        return values.astype(np.int64, copy=False)
    return values.astype(str) if values.dtype.kind == "O" else values


def _with_others(arrays: Arrays, others: Mapping[str, Any]) -> Arrays:
    """The arrays with others beside them; an error where a name or a length does not fit."""
    if taken := sorted(set(arrays) & set(others)):
        raise InputError(
            f"the output has {', '.join(taken)} of its own; leave out that column of the input, or rename it"
        )
    n_rows = len(next(iter(arrays.values())))
    for name, values in others.items():
        if np.shape(values)[:1] != (n_rows,):
            raise InputError(
                f"{name} of shape {np.shape(values)} does not have a value for each of the {n_rows:,} rows"
            )
    return {**arrays, **others}


def _in_shape(arrays: Arrays, source: Source) -> Arrays:
    """The arrays of a resident block in the shape of its scores: (N, C, H, W) gives (N, C, H, W) and (N, H, W)."""
    (block,) = source.blocks
    scores, axis = block.read().scores, source.spec.class_axis
    shape = np.shape(scores)
    if len(shape) <= 2:
        return arrays
    rest = [n for k, n in enumerate(shape) if k != axis % len(shape)]
    return {
        name: restore_shape(array, scores, axis) if array.ndim == 2 else array.reshape(rest)
        for name, array in arrays.items()
    }


def _fingerprint(calibrator: Calibrator, source: Source, write: Any) -> str:
    """Changes with the calibrator, the input, the blocks and what is written."""
    digest = hashlib.sha256()
    spec = source.spec
    names = None if spec.classes is None else spec.classes.tolist()
    stated = [spec.kind, names, spec.columns, spec.ignore_index, spec.class_axis, spec.positive]
    digest.update(json.dumps([_description(calibrator), write, stated], default=str).encode())
    for block in source.blocks:
        digest.update(f"{block.location}|{block.n_rows}|{getattr(block, 'arrays_read', '')}".encode())
        path = _file_of(block)
        if path is not None:
            status = path.stat()  # the time of the last change cannot be set, as the modification time can
            digest.update(f"|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}|{status.st_ctime_ns}".encode())
    return digest.hexdigest()


def _description(calibrator: Calibrator) -> list[Any]:
    numbers = {name: np.asarray(getattr(calibrator, name)).tolist() for name in calibrator.parameters}
    members = []
    for name in calibrator.children:
        child = getattr(calibrator, name)
        members += [_description(member) for member in (child if isinstance(child, list) else [child])]
    policy = calibrator.policy_
    decided = None
    if policy is not None:
        digests = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in policy.arrays.items()}
        sets = policy.sets and [policy.sets.score, policy.sets.per_class, policy.sets.penalty, policy.sets.n_free]
        decided = [policy.rule, policy.positive, policy.otherwise, digests, sets]
    limits = [calibrator.mask_gap_, calibrator.smallest_prob_]
    return [
        calibrator.name,
        str(calibrator.get_params()),
        numbers,
        calibrator.classes_.tolist(),
        members,
        decided,
        limits,
    ]


def _file_of(block: BlockRef) -> Path | None:
    path = Path(str(getattr(block, "path", getattr(block, "file", ""))))
    return path if path.is_file() else None
