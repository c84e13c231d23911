"""Proof before anything is written: the exported graph in onnxruntime beside the calibrator itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from onnx import TensorProto, helper

from rhocal.calibrators.exporting import single_column
from rhocal.errors import RhocalError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.onnx.graph import GraphSpec

TOLERANCE: dict[int, float] = {
    TensorProto.FLOAT: 1e-5,
    TensorProto.DOUBLE: 1e-9,
    TensorProto.FLOAT16: 2e-3,
    TensorProto.BFLOAT16: 2e-2,
}
"""Largest difference in probability: far more than rounding makes, far less than any mistake would."""

FLOATS: dict[int, Any] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16,
}


class ParityError(RhocalError):
    """The exported graph and the calibrator disagree."""


def session(model: Any) -> Any:
    """A model ready to run, one thread, no chatter."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def hard_logits(n_classes: int, dtype: Any) -> NDArray[Any]:
    """Random and extreme logits: large, small, shifted, tied, equal."""
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(64, n_classes))
    large = 1e3 if dtype != np.float16 else 1e2
    rows = [z, large * z[:16], 1e-3 * z[:16], z[:16] + 100, np.round(z[:16]), np.zeros((2, n_classes))]
    return np.concatenate(rows).astype(dtype)


def hard_scores(n_classes: int, dtype: Any, kind: str) -> NDArray[Any]:
    """The same as the calibrator takes them."""
    z = hard_logits(n_classes, np.float64)
    if kind == "logits":
        return hard_logits(n_classes, dtype)
    log_p = z - np.logaddexp.reduce(z, axis=1, keepdims=True)
    scores = np.exp(log_p) if kind == "probs" else np.maximum(log_p, -1e4)
    return scores.astype(dtype)


def prove(cal: Calibrator, model: Any, spec: GraphSpec) -> float:
    """The largest difference in probability between a graph that is the calibrator alone and the calibrator itself."""
    dtype = FLOATS.get(spec.element)
    if dtype is None:
        return float("nan")  # NumPy has no such type to feed it with
    m = len(cal.classes_)
    scores = hard_scores(m, dtype, cal.kind_)
    want = cal.predict_proba(scores.astype(np.float32) if dtype == np.float16 else scores)
    fed = scores
    if spec.one_score:
        column = single_column(cal)
        fed = scores[:, column] - scores[:, 1 - column] if cal.kind_ == "logits" else scores[:, column]
        both = cal.predict_proba(fed.astype(np.float64))
        want = both[:, [column]]
        fed = fed if spec.flat else fed[:, None]
    elif spec.perm:
        inverse = np.argsort(spec.perm)
        fed = fed.reshape(len(fed), *[1] * (len(spec.perm) - 2), m).transpose(inverse)
    outputs = session(model).run(None, {model.graph.input[0].name: fed})
    got = outputs[0].astype(np.float64)
    if cal.policy_ is not None:
        check_decisions(cal, both if spec.one_score else want, spec, *outputs[1:])
    if spec.perm:
        got = got.transpose(spec.perm)
    got = as_probs(got.reshape(want.shape), spec)
    return checked(got, want, spec, "random and extreme scores")


def check_decisions(
    cal: Calibrator,
    probs: NDArray[Any],
    spec: GraphSpec,
    decided: NDArray[Any],
    action: NDArray[Any],
    *sets: NDArray[Any],
) -> None:
    """Raise an error if a decision that rounding cannot change differs from that of the calibrator."""
    assert cal.policy_ is not None
    want = cal.policy_.decide(probs, cal.classes_)
    clear = cal.policy_.margin(probs) > TOLERANCE[spec.element]
    if cal.policy_.sets is not None and want.sets is not None:
        is_clear = cal.policy_.sets.is_clear(probs, TOLERANCE[spec.element])
        included = sets[0].transpose(spec.perm) if spec.perm else sets[0]
        _refuse("prediction sets", int((included.reshape(want.sets.shape) != want.sets)[is_clear].sum()))
        if cal.policy_.rule == "sets":
            clear &= is_clear.all(axis=1)
    same = (decided.reshape(-1) == want.label) & (action.reshape(-1) == want.automated)
    _refuse("decisions", int((~same[clear]).sum()))


def _refuse(what: str, n_different: int) -> None:
    if n_different:
        raise ParityError(
            f"nothing was written: {n_different} {what} of the exported graph differ from those of the calibrator; please "
            "report this with the calibrator"
        )


def as_probs(out: NDArray[np.float64], spec: GraphSpec) -> NDArray[np.float64]:
    """Probabilities of what a graph wrote."""
    if spec.output == "probs":
        return out
    if spec.output == "log_probs":
        return np.exp(out)
    if spec.one_score:
        return 1 / (1 + np.exp(-np.clip(out, -700, 700)))
    e = np.exp(out - out.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def checked(got: NDArray[np.float64], want: NDArray[Any], spec: GraphSpec, what: str) -> float:
    """The largest difference, if it is small."""
    worst = float(np.abs(got - want).max())
    if not worst <= TOLERANCE[spec.element]:
        raise ParityError(
            f"nothing was written: on {what} the exported graph differs from the calibrator by {worst:.2g} in probability "
            f"(at most {TOLERANCE[spec.element]:g} is rounding); please report this with the calibrator"
        )
    return worst


def random_inputs(model: Any) -> dict[str, NDArray[Any]] | None:
    """Inputs to run a whole model with, or None if they could not be generated."""
    rng = np.random.default_rng(0)
    known = {one.name for one in model.graph.initializer}
    inputs = {}
    for value in model.graph.input:
        if value.name in known:
            continue
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
            return None
        shape = [d.dim_value if d.dim_value > 0 else 4 for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind not in "fiu":
            return None
        draws = rng.normal(size=shape) if dtype.kind == "f" else np.ones(shape)
        inputs[value.name] = draws.astype(dtype)
    return inputs
