"""Calibrated classifiers of scikit-learn as ONNX models: a converter for skl2onnx, which knows the classifiers."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from rhocal.calibrators.exporting import exported_map
from rhocal.errors import InputError, MissingExtraError, one_line
from rhocal.onnx.export import write_model
from rhocal.onnx.graph import OPSET, GraphSpec, emit
from rhocal.onnx.ops import Builder, Node, OnnxOps
from rhocal.onnx.parity import ParityError, session

try:
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes
except ImportError as error:
    raise MissingExtraError("skl2onnx", "skl2onnx", "a classifier of scikit-learn as ONNX") from error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

ML_OPSET = 3
"""Of the operators of trees and linear models, that belongs to ``OPSET``."""

SMALLEST_SINGLE = float(np.finfo(np.float32).tiny)
"""Classifiers give single precision: smaller probabilities are 0."""

N_PROOF_ROWS = 64
TOLERANCE, MIN_SHARE = 1e-4, 0.95
"""Share of rows that must agree in probability: thresholds of trees in single precision move a few rows."""

BOOSTERS = {
    "lightgbm": ("LGBMClassifier", "onnxmltools.convert.lightgbm.operator_converters.LightGbm", "convert_lightgbm"),
    "xgboost": ("XGBClassifier", "onnxmltools.convert.xgboost.operator_converters.XGBoost", "convert_xgboost"),
}
"""Library → its classifier, and the converter that onnxmltools has for it."""

OPTIONS = {"zipmap": [True, False, "columns"], "nocl": [True, False], "output_class_labels": [False, True]}


def save_classifier(model: Any, path: str | PathLike[str], X: Any = None, *, opset: int | None = None) -> float:  # noqa: N803
    """Write a fitted ``CalibratedClassifier`` as one ONNX model: features in, ``label`` and ``probabilities`` out.

    ``X`` has rows to read the types of the columns from, and to prove the model with; by default all features are numbers, in
    one matrix of single precision. Returns the largest difference in probability between the model in onnxruntime and Python,
    on the rows that agree.
    """
    register(type(model))
    given = {"initial_types": [("X", FloatTensorType([None, model.n_features_in_]))]} if X is None else {"X": X[:1]}
    try:
        exported = skl2onnx.to_onnx(
            model,
            **given,
            options={id(model): {"zipmap": False}},
            target_opset={"": opset or OPSET, "ai.onnx.ml": ML_OPSET},
        )
    except InputError:
        raise
    except Exception as error:  # converters raise errors of many types
        raise InputError(f"skl2onnx cannot convert this classifier: {one_line(error)}") from error
    worst = _prove(model, exported, X)
    write_model(exported, path)
    return worst


def register(kind: type) -> None:
    """Teach skl2onnx the class of calibrated classifiers, and boosters whose library is imported."""
    skl2onnx.update_registered_converter(kind, "RhocalCalibratedClassifier", _set_shapes, _convert, options=OPTIONS)
    for library, (name, module, function) in BOOSTERS.items():
        if library not in sys.modules:
            continue
        try:
            converter = getattr(importlib.import_module(module), function)
        except ImportError as error:
            raise MissingExtraError("onnxmltools", "skl2onnx", f"classifiers of {library} as ONNX") from error
        skl2onnx.update_registered_converter(
            getattr(sys.modules[library], name), f"Rhocal{name}", calculate_linear_classifier_output_shapes,
            partial(_convert_booster, converter), options=OPTIONS | {"raw_scores": [True, False]},
        )  # fmt: skip


def _convert_booster(converter: Any, scope: Any, operator: Any, container: Any) -> None:
    """The nodes of a booster; with ``raw_scores`` its trees end without a softmax or a logistic function."""
    is_raw = container.get_options(operator.raw_operator, {"raw_scores": False})["raw_scores"]
    n_before = len(container.nodes)
    converter(scope, operator, container)
    for node in container.nodes[n_before:] if is_raw else ():
        for attribute in node.attribute:
            if attribute.name == "post_transform":
                attribute.s = b"NONE"


def _set_shapes(operator: Any) -> None:
    """The types of label and probabilities."""
    classes = operator.raw_operator.classes_
    n_samples = operator.inputs[0].get_first_dimension()
    label = Int64TensorType if classes.dtype.kind in "iub" else StringTensorType
    operator.outputs[0].set_type(label([n_samples]))
    operator.outputs[1].set_type(FloatTensorType([n_samples, len(classes)]))


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """The nodes of a calibrated classifier: those of its members, their calibrators, the mean, and the label."""
    model = operator.raw_operator
    prefix = scope.get_unique_variable_name("rhocal_calibrated") + "_"
    builder = Builder(prefix, container.target_opset_any_domain(""), np.float64)
    probs: list[Node] = []
    for k, member in enumerate(model.calibrated_classifiers_):
        if len(member.calibrator.classes_) != len(model.classes_):
            raise InputError("to_onnx: a fold has not seen every class; use StratifiedKFold, or fewer folds")
        is_raw = _gives_decisions(container, member.estimator)
        scores = _scores_of(scope, container, operator.inputs, member.estimator, is_raw=is_raw)
        logits = _logits(builder, scores, len(model.classes_), None if is_raw else member.smallest)
        target = f"{prefix}member_{k}"
        spec = GraphSpec("probs", TensorProto.DOUBLE, builder.opset)
        exported = emit(exported_map(member.calibrator), logits.name, target, spec, f"{prefix}{k}_")
        builder.nodes += exported.nodes
        builder.initializers += exported.initializers
        probs.append(Node(builder, target, "f"))
    mean = probs[0]
    for other in probs[1:]:
        mean = mean + other
    mean = mean * (1.0 / len(probs))
    label, scores = operator.outputs[0].onnx_name, operator.outputs[1].onnx_name
    builder.nodes.append(helper.make_node("Cast", [mean.name], [scores], f"{prefix}probs_node", to=TensorProto.FLOAT))
    _label(builder, mean, label, model.classes_)
    container.nodes.extend(builder.nodes)
    container.initializers.extend(builder.initializers)
    container.node_domain_version_pair_sets.add(("", builder.opset))


def _gives_decisions(container: Any, estimator: Any) -> bool:
    """Whether the converter of a classifier can give its decision values, which calibration reads where there are some."""
    if not hasattr(estimator, "decision_function"):
        return False
    return container.has_options(estimator, "raw_scores") or not hasattr(estimator, "predict_proba")


def _scores_of(scope: Any, container: Any, inputs: Sequence[Any], estimator: Any, *, is_raw: bool) -> str:
    """The name of the decision values or probabilities of a classifier."""
    from skl2onnx._parse import _parse_sklearn  # noqa: PLC0415 - what skl2onnx's own meta-estimators use

    options = {"zipmap": False, "raw_scores": is_raw}
    options = {name: value for name, value in options.items() if container.has_options(estimator, name)}
    for holder in (scope, container):
        holder.add_options(id(estimator), options)
    outputs = _parse_sklearn(scope, estimator, list(inputs))
    return str(outputs[1].onnx_name)


def _logits(builder: Builder, scores: str, n_classes: int, smallest: float | None) -> Node:
    """As ``rhocal.sklearn.scores.logits_of``: of decision values, or of probabilities with the smallest that counts."""
    ops = OnnxOps(builder, n_classes)
    x = builder.cast(Node(builder, scores, "f"), TensorProto.DOUBLE)
    if smallest is not None:
        x = ops.log(ops.maximum(x, max(smallest, SMALLEST_SINGLE)))
    if n_classes > 2:
        return x
    margin = ops.column(x, -1) if smallest is None else ops.column(x, 1) - ops.column(x, 0)
    return ops.concat([margin * -0.5, margin * 0.5])


def _label(builder: Builder, probs: Node, target: str, classes: Any) -> None:
    """The class of the largest probability."""
    index = builder.node("ArgMax", probs, kind="i", axis=-1, keepdims=0)
    name = f"{builder.prefix}classes"
    if classes.dtype.kind in "iub":
        builder.initializers.append(numpy_helper.from_array(classes.astype(np.int64), name))
    else:
        texts: Any = [str(one).encode() for one in classes]
        builder.initializers.append(helper.make_tensor(name, TensorProto.STRING, [len(texts)], texts))
    builder.nodes.append(helper.make_node("Gather", [name, index.name], [target], f"{builder.prefix}label_node"))


def _prove(model: Any, exported: Any, X: Any) -> float:  # noqa: N803
    """Compare the model in onnxruntime with Python; an error unless all but a few rows agree."""
    if X is None:
        rows = np.random.default_rng(0).normal(size=(N_PROOF_ROWS, model.n_features_in_)).astype(np.float32)
        feed: dict[str, Any] = {exported.graph.input[0].name: rows}
    else:
        rows = X[:N_PROOF_ROWS]
        names = [value.name for value in exported.graph.input]
        kinds = {
            value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            for value in exported.graph.input
        }
        columns = {name: rows if len(names) == 1 else rows[name] for name in names}
        feed = {name: np.asarray(part).astype(kinds[name]) for name, part in columns.items()}
        feed = {name: part[:, None] if part.ndim == 1 else part for name, part in feed.items()}
    probs_of_onnx = session(exported).run(None, feed)[1]
    away = np.abs(probs_of_onnx - model.predict_proba(rows)).max(axis=1)
    agree = away <= TOLERANCE
    if agree.mean() < MIN_SHARE:
        raise ParityError(
            f"nothing was written: {int((~agree).sum())} of {len(agree)} rows differ between ONNX and Python, by up to "
            f"{away.max():.2g} in probability; the converter of {type(model.calibrated_classifiers_[0].estimator).__name__} "
            "does not give what it gives in Python. Export the classifier by itself, and then rhocal.onnx.export"
        )
    return float(away[agree].max())
