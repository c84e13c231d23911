"""One score belongs to the positive class, whichever of the two it is: in Python and in every export."""

import json

import duckdb
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from onnx import TensorProto, helper

import rhocal
from helpers import reference_interpreter, synthetic
from rhocal.calibrators.portable import portable_map, to_sql
from rhocal.errors import InputError
from rhocal.onnx import export

RUN = reference_interpreter()
RNG = np.random.default_rng(4)
MARGIN = RNG.normal(size=1200) * 2 + 1
LABELS = np.where(RNG.random(1200) < 1 / (1 + np.exp(-MARGIN / 2)), "p", "q")


def scores(kind):
    """One column, that of p."""
    p = 1 / (1 + np.exp(-MARGIN))
    return {"logits": MARGIN, "probs": p, "log_probs": np.log(p)}[kind]


def fitted(kind, classes, method="platt"):
    own = scores(kind)
    other = np.zeros(1200) if kind == "logits" else 1 - own if kind == "probs" else np.log1p(-np.exp(own))
    table = np.stack([own, other] if classes[0] == "p" else [other, own], axis=1)
    return rhocal.calibrator(method).fit(table, LABELS, kind=kind, classes=classes, positive="p"), table


@pytest.mark.parametrize("classes", [["p", "q"], ["q", "p"]])
@pytest.mark.parametrize("kind", ["logits", "probs", "log_probs"])
def test_every_export_gives_what_two_columns_give(kind, classes):
    cal, table = fitted(kind, classes)
    rows, want = scores(kind)[:40], cal.predict_proba(table[:40])
    np.testing.assert_allclose(cal.predict_proba(rows), want, atol=1e-12)
    np.testing.assert_allclose(cal.compiled()(rows), want, atol=1e-12)
    for tensor in (torch.tensor(rows), torch.tensor(rows)[:, None]):
        np.testing.assert_allclose(cal.to_torch(output="probs")(tensor), want, atol=1e-12)
    query = to_sql(cal, "duckdb", columns=["score"])
    with duckdb.connect() as connection:
        connection.register("predictions", pd.DataFrame({"score": rows}))
        result = connection.execute(query).df()
    np.testing.assert_allclose(result[[f"prob_{name}" for name in classes]], want, atol=1e-9)
    np.testing.assert_array_equal(result["predicted"], cal.predict(rows))
    portable = json.loads(json.dumps(portable_map(cal, is_single_score=True)))
    np.testing.assert_allclose([RUN(portable, [row])[0] for row in rows.tolist()], want, atol=1e-9)


@pytest.mark.parametrize("classes", [["p", "q"], ["q", "p"]])
@pytest.mark.parametrize("last", ["Identity", "Sigmoid"])
@pytest.mark.parametrize("shape", [["n", 1], ["n"]])
def test_onnx_models_with_one_score(last, classes, shape, tmp_path):
    cal, table = fitted("logits", classes)
    node = helper.make_node(last, ["x"], ["score"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "score")]
    model = helper.make_model(
        helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, tmp_path / "one.onnx")
    export(cal, tmp_path / "one.onnx", tmp_path / "calibrated.onnx", write="probs")
    session = onnxruntime.InferenceSession(tmp_path / "calibrated.onnx")
    fed = MARGIN[:40].astype(np.float32).reshape([-1, *shape[1:]])
    (got,) = session.run(None, {"x": fed})
    np.testing.assert_allclose(got.reshape(-1), cal.predict_proba(table[:40])[:, classes.index("p")], atol=1e-6)


def test_one_score_is_for_two_classes():
    cal = rhocal.TemperatureScaling().fit(*synthetic(90, 3))
    with pytest.raises(InputError, match="two classes"):
        portable_map(cal, is_single_score=True)
