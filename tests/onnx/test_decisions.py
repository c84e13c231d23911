"""A policy in torch and ONNX: the decisions of the calibrator, as extra outputs."""

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

import rhocal
from helpers import synthetic
from rhocal.calibrators.policies.policy import NEVER, Policy
from rhocal.calibrators.policies.prediction_sets import ALWAYS, SET_SCORES, SetRule
from rhocal.onnx import export, save_model

Z, Y = synthetic(400, 3, dtype=np.float32)
NAMES = np.array(["a", "b", "c"])
COSTS = np.array([[0, 1, 4, 0.5], [2, 0, 1, 0.4], [4, 1, 0.0, 0.6]])
POLICIES = {
    "confidence": Policy("confidence", np.array([0.6])),
    "per-class": Policy("per-class", np.array([0.5, 0.7, NEVER])),
    "cost": Policy("cost", costs=COSTS),
    "cost without review": Policy("cost", costs=COSTS[:, :3]),
}
pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def clear(cal, logits):
    """Samples whose decision does not depend on the last digits."""
    return cal.policy_.margin(cal.predict_proba(logits)) > 1e-5


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("method", ["field", "isotonic"])
def test_decisions_of_torch_and_onnx(name, method, tmp_path):
    cal = rhocal.calibrator(method).fit(Z, NAMES[Y], classes=NAMES)
    cal.policy_ = POLICIES[name]
    want, sure = cal.decide(Z), clear(cal, Z)
    assert sure.mean() > 0.9
    out, column, automated = cal.to_torch(output="probs", decide=True)(torch.from_numpy(Z))
    np.testing.assert_allclose(out.numpy(), cal.predict_proba(Z), atol=1e-5)
    assert (column.numpy() == want.column)[sure].all()
    assert (automated.numpy() == want.automated)[sure].all()
    done = save_model(cal, tmp_path / "cal.onnx", output="logits" if method == "field" else "probs")
    assert done.has_decisions
    decided, action = session(tmp_path / "cal.onnx").run(["decided", "action"], {"logits": Z})
    assert (decided == want.label)[sure].all()
    assert (action == want.automated)[sure].all()


def test_of_tied_classes_the_first_is_decided_by_its_threshold(tmp_path):
    cal = rhocal.Identity().fit(Z, Y)
    cal.policy_ = Policy("per-class", np.array([0.4, NEVER, 0.6]))
    tied = np.array([[1, 1, -9], [-9, 2, 2], [2, -9, 2], [0, 0, 0]], np.float32)
    want = cal.decide(tied)
    assert want.automated.tolist() == [True, False, True, False]
    _, column, automated = cal.to_torch(output="probs", decide=True)(torch.from_numpy(tied))
    save_model(cal, tmp_path / "cal.onnx")
    decided, action = session(tmp_path / "cal.onnx").run(["decided", "action"], {"logits": tied})
    for columns, actions in ((column.numpy(), automated.numpy()), (decided, action)):
        assert columns.tolist() == want.column.tolist()
        assert actions.tolist() == want.automated.tolist()


def test_modules_with_other_axes_and_positive_classes(tmp_path):
    cal = rhocal.TemperatureScaling().fit(Z[:, :2], Y % 2)
    cal.policy_ = Policy("positive", np.array([0.3]), positive=0)
    want = cal.decide(Z[:, :2])
    module = cal.to_torch(decide=True, class_axis=1)
    images = torch.from_numpy(Z[:, :2].reshape(4, 10, 10, 2).transpose(0, 3, 1, 2).copy())
    _, column, automated = module(images)
    assert column.shape == (4, 10, 10)
    assert (column.numpy().reshape(-1) == want.column)[clear(cal, Z[:, :2])].all()
    assert automated.all()
    single = torch.from_numpy(Z[:, 1] - Z[:, 0])
    assert (module(single)[1].numpy() == want.column)[clear(cal, Z[:, :2])].all()
    assert cal.to_torch(decide=True).half().state_dict()["policy_thresholds"].item() == 0.3
    save_model(cal, tmp_path / "cal.onnx")
    decided = session(tmp_path / "cal.onnx").run(["decided"], {"logits": Z[:, :2]})[0]
    assert decided.dtype == np.int64
    assert (decided == want.label)[clear(cal, Z[:, :2])].all()


@pytest.mark.parametrize("taken", [False, True])
def test_a_model_gets_the_outputs_of_the_policy(tmp_path, taken):
    largest = helper.make_node("ReduceMax", ["x"], ["action"], axes=[-1])
    nodes = [helper.make_node("Softmax", ["x"], ["probs"], axis=-1), largest]
    outputs = [("probs", ["n", 3]), ("action", ["n", 1])][: 1 + taken]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph(nodes[: 1 + taken], "net", [x], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    cal.policy_ = POLICIES["confidence"]
    export(cal, tmp_path / "net.onnx", tmp_path / "out.onnx", scores="probs")
    names = ["decided", "rhocal_action" if taken else "action"]
    decided, action = session(tmp_path / "out.onnx").run(names, {"x": Z})
    want, sure = cal.decide(Z), clear(cal, Z)
    assert (decided == want.label)[sure].all()
    assert (action == want.automated)[sure].all()
    assert {value.name for value in session(tmp_path / "out.onnx").get_outputs()} == {*names, *(n for n, _ in outputs)}


@pytest.mark.parametrize("score", SET_SCORES)
@pytest.mark.parametrize("m", [2, 3, 40])
def test_prediction_sets_of_torch_and_onnx(score, m, tmp_path):
    z, y = synthetic(300, m, dtype=np.float32, seed=m)
    cal = rhocal.TemperatureScaling().fit(z, y)
    limits = np.linspace(0.3, 0.9, m) if score != "lac" else -np.linspace(0.5, 0.01, m)
    limits[0] = ALWAYS
    cal.policy_ = Policy("sets", sets=SetRule(score, 0.9, limits, True, 0.05, 1))
    want, probs = cal.decide(z), cal.predict_proba(z)
    sure = cal.policy_.sets.is_clear(probs, 1e-6)
    assert sure.mean() > 0.9
    *_, automated, sets = cal.to_torch(decide=True)(torch.from_numpy(z))
    assert (sets.numpy() == want.sets)[sure].all()
    assert (automated.numpy() == want.automated)[sure.all(axis=1)].all()
    assert save_model(cal, tmp_path / "cal.onnx").has_sets
    decided, sets = session(tmp_path / "cal.onnx").run(["decided", "set"], {"logits": z})
    assert sets.dtype == bool
    assert (sets == want.sets)[sure].all()
    rows = sure.all(axis=1) & (cal.policy_.margin(probs) > 1e-6)
    assert (decided == want.label)[rows].all()


@pytest.mark.parametrize(
    ("element", "dtype", "atol"), [(TensorProto.DOUBLE, np.float64, 1e-9), (TensorProto.FLOAT16, np.float16, 3e-3)]
)
@pytest.mark.parametrize("name", [*POLICIES, *SET_SCORES])
@pytest.mark.parametrize("method", ["field", "isotonic"])
def test_decisions_behind_models_of_other_types(element, dtype, atol, name, method, tmp_path):
    cal = rhocal.calibrator(method).fit(Z, NAMES[Y], classes=NAMES)
    limits = -np.array([0.5, 0.2, 0.1]) if name == "lac" else np.array([0.5, 0.8, 0.95])
    cal.policy_ = POLICIES.get(name) or Policy("sets", sets=SetRule(name, 0.9, limits))
    x, out = (helper.make_tensor_value_info(tensor, element, ["n", 3]) for tensor in ("x", "p"))
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["p"], axis=-1)], "net", [x], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    export(cal, model, tmp_path / "out.onnx")
    z = Z.astype(dtype)
    want, probs = cal.decide(z), cal.predict_proba(z)
    outputs = ["p", "decided", "action", *(["set"] if want.sets is not None else [])]
    p, decided, action, *sets = session(tmp_path / "out.onnx").run(outputs, {"x": z})
    assert p.dtype == dtype
    sure = cal.policy_.margin(probs) > atol
    if sets:
        is_clear = cal.policy_.sets.is_clear(probs, atol)
        assert (sets[0] == want.sets)[is_clear].all()
        sure &= is_clear.all(axis=1)
    assert sure.mean() > 0.8
    assert (decided == want.label)[sure].all()
    assert (action == want.automated)[sure].all()


def test_prediction_sets_keep_the_axis_of_the_classes(tmp_path):
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    cal.policy_ = Policy("confidence", np.array([0.6]), sets=SetRule("aps", 0.9, np.full(3, 0.7)))
    images = Z.reshape(4, 10, 10, 3).transpose(0, 3, 1, 2).copy()
    want = cal.decide(Z).sets.reshape(4, 10, 10, 3).transpose(0, 3, 1, 2)
    assert (cal.to_torch(decide=True, class_axis=1)(torch.from_numpy(images))[3].numpy() == want).mean() > 0.999
    x, out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, 10, 10]) for name in ("x", "p"))
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["p"], axis=1)], "net", [x], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    export(cal, tmp_path / "net.onnx", tmp_path / "out.onnx", class_axis=1)
    (sets,) = session(tmp_path / "out.onnx").run(["set"], {"x": images})
    assert (sets == want).mean() > 0.999
    pair = rhocal.TemperatureScaling().fit(Z[:, :2], Y % 2)
    pair.policy_ = Policy("sets", sets=SetRule("lac", 0.9, np.full(2, -0.3)))
    single = torch.from_numpy(Z[:, 1] - Z[:, 0])
    assert (pair.to_torch(decide=True)(single)[3].numpy() == pair.decide(Z[:, :2]).sets).all()
