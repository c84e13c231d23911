"""Export to files: checked by ONNX, proved with onnxruntime, and only then written."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper

from rhocal.calibrators.exporting import exported_map, single_column, wants_probs
from rhocal.data.storage.atomic import check_output, permissions, sync, writing
from rhocal.errors import FileError, InputError, RhocalWarning, warn
from rhocal.onnx import parity
from rhocal.onnx.attach import LARGEST_FILE, OLDEST_OPSET, about, attach, check_model, decision_outputs
from rhocal.onnx.consumers import check_selections
from rhocal.onnx.graph import OPSET, GraphSpec, standalone

if TYPE_CHECKING:
    from os import PathLike

    from rhocal.calibrators import Calibrator
    from rhocal.onnx.attach import Place

STANDARD = {"", "ai.onnx", "ai.onnx.ml"}


@dataclass(frozen=True)
class Exported:
    """What was written, and how it was proved."""

    output: str
    """The output that is calibrated now."""
    holds: str
    """``logits``, ``probs`` or ``log_probs``."""
    replaced: str
    """The final node that was replaced, such as Softmax, or nothing."""
    opset: int
    difference: float
    """Largest difference in probability between the calibrator's graph in onnxruntime and the calibrator."""
    whole_model: float | None
    """The same for the whole model on random inputs; None if inputs could not be generated."""
    has_decisions: bool = False
    """Whether outputs ``decided`` and ``action`` hold the decisions of the policy."""
    has_sets: bool = False
    """Whether an output ``set`` holds prediction sets."""
    label: str = ""
    """The output that holds the predicted class, which is decided from calibrated scores now, or nothing."""
    chosen: tuple[str, ...] = ()
    """Other outputs that are chosen from the calibrated scores now: the largest ones, or their classes."""
    stale: tuple[str, ...] = ()
    """Outputs that are still computed from scores that are not calibrated."""


def save_model(
    cal: Calibrator, path: str | PathLike[str], *, output: str = "probs", opset: int | None = None
) -> Exported:
    """Write a calibrator as a model of its own: ``logits`` (or ``probs``) in, ``probs`` or ``calibrated_logits`` out."""
    gives_probs = wants_probs(output)
    if opset is not None and opset < OLDEST_OPSET:
        raise InputError(f"opset must be {OLDEST_OPSET} or newer; got {opset}")
    spec = GraphSpec(output, opset=opset or OPSET)
    names = cal.kind_, "calibrated_probs" if gives_probs else "calibrated_logits"
    model = standalone(exported_map(cal), spec, names=names, about=about(cal), decisions=decision_outputs(cal))
    check_model(model, full_check=True)
    worst = parity.prove(cal, model, spec)
    write_model(model, path)
    return Exported(names[1], output, "", spec.opset, worst, None, cal.policy_ is not None, has_sets(cal))


def export(
    cal: Calibrator,
    model: str | PathLike[str] | onnx.ModelProto,
    path: str | PathLike[str],
    *,
    scores: str | None = None,
    write: str = "same",
    class_axis: int = -1,
) -> Exported:
    """Write a user's ONNX model with the calibrator behind it; see ``attach`` for the options.

    The model, a file or what a converter returned, is not changed.
    """
    is_file = not isinstance(model, onnx.ModelProto)
    for target in (Path(path), _data_path(path)):
        check_output(target, _files_of(model) if is_file else ())
    original = read_model(model) if is_file else model
    new, place = attach(original, cal, scores, write=write, class_axis=class_axis)
    check_model(new, full_check={entry.domain for entry in new.opset_import} <= STANDARD)
    decisions = decision_outputs(cal)
    alone = standalone(exported_map(cal), place.spec, names=("scores", "calibrated"), about={}, decisions=decisions)
    worst = parity.prove(cal, alone, place.spec)
    whole = _whole(cal, new, place, class_axis)
    write_model(new, path)
    label = "" if place.label is None else place.label.value.name
    decides = cal.policy_ is not None
    if place.stale:
        warn(f"outputs that are still computed from uncalibrated scores: {', '.join(place.stale)}", RhocalWarning)
    return Exported(
        place.name, place.spec.output, place.replaces, place.spec.opset, worst, whole, decides, has_sets(cal), label,
        place.chosen, place.stale,
    )  # fmt: skip


def has_sets(cal: Calibrator) -> bool:
    """Whether a calibrator has prediction sets."""
    return cal.policy_ is not None and cal.policy_.sets is not None


def read_model(path: str | PathLike[str]) -> Any:
    """An ONNX model from a file."""
    if not Path(path).is_file():
        raise FileError(f"{path}: there is no such file")
    try:
        model = onnx.load(path)
    except (DecodeError, ValueError, OSError) as error:
        raise FileError(f"{path}: cannot be read as an ONNX model: {error}") from error
    if not model.graph.output:
        raise FileError(f"{path}: not an ONNX model, or one without outputs")
    return model


def _whole(cal: Calibrator, model: Any, place: Place, class_axis: int) -> float | None:
    """Run the whole model on random inputs and compare its output with the calibrator on what goes into it."""
    feed = parity.random_inputs(model)
    if feed is None or place.spec.element not in parity.FLOATS or model.ByteSize() >= LARGEST_FILE:
        return None
    seen = onnx.ModelProto()
    seen.CopyFrom(model)
    source = place.source
    if source not in {value.name for value in seen.graph.output}:
        seen.graph.output.append(helper.make_empty_tensor_value_info(source))
    label = [] if place.label is None else [place.label.value.name]
    chosen = [name for node in place.selections for name in node.output if name]
    present = {value.name for value in seen.graph.output}
    seen.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in chosen if name not in present)
    names = [source, place.name, *label, *chosen]
    try:
        values = dict(zip(names, parity.session(seen).run(names, feed), strict=True))
    except Exception:  # noqa: BLE001 - the runtime has many types of errors; made-up inputs may suit no model
        return None
    scores, got = values[source], values[place.name]
    if not np.isfinite(scores).all():
        return None
    if place.label is not None and not place.spec.one_score:
        decided = values[place.label.value.name]
        if (place.label.classes[got.argmax(axis=class_axis)].reshape(decided.shape) != decided).any():
            raise parity.ParityError(
                f"nothing was written: output {label[0]} differs from the class with the largest score"
            )
    check_selections(place.selections, values, got, class_axis)
    scores = scores.astype(np.float64 if place.spec.element != TensorProto.FLOAT else np.float32)
    want = cal.predict_proba(scores, class_axis=class_axis if scores.ndim > 1 else -1)
    if place.spec.one_score:
        want = want[:, single_column(cal)]
    elif class_axis != -1:
        got, want = (np.moveaxis(one, class_axis, -1) for one in (got, want))
    got = parity.as_probs(got.astype(np.float64).reshape(want.shape), place.spec)
    return parity.checked(got, want, place.spec, "random inputs of the whole model")


def _files_of(model: str | PathLike[str]) -> list[Path]:
    """The file of a model, and those beside it that hold its large arrays."""
    path = Path(model)
    try:
        entries = onnx.load(path, load_external_data=False).graph.initializer if path.is_file() else ()
    except (DecodeError, ValueError, OSError):
        return [path]
    places = {pair.value for entry in entries for pair in entry.external_data if pair.key == "location"}
    return [path, *(path.parent / place for place in sorted(places))]


def _data_path(path: str | PathLike[str]) -> Path:
    """Where the arrays of a model go that is too large for one file."""
    return Path(path).with_name(Path(path).name + ".data")


def write_model(model: Any, path: str | PathLike[str]) -> None:
    """Write a model; its arrays go into a file beside it if it is too large for one."""
    if model.ByteSize() < LARGEST_FILE:
        with writing(path) as unfinished:
            unfinished.write_bytes(model.SerializeToString())
        return
    target, data = Path(path), _data_path(path)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.stem}-") as folder:
        unfinished = Path(folder) / target.name
        onnx.save_model(model, str(unfinished), save_as_external_data=True, location=data.name)
        onnx.checker.check_model(str(unfinished))
        for source, name in ((Path(folder) / data.name, data), (unfinished, target)):  # the model last
            source.chmod(permissions(name))
            sync(source)
            source.replace(name)
