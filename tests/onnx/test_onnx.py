"""ONNX: a calibrator behind real exported models, proved before it is written."""

import json
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import rhocal
from helpers import run, synthetic
from onnx_models import M, answer, graph, node, saved
from rhocal.errors import FileError, InputError, RhocalWarning
from rhocal.numerics.special import softmax
from rhocal.onnx import attach, export, parity, save_model
from rhocal_paper.train.networks import network


@pytest.fixture(scope="module")
def data():
    logits, labels = synthetic(600, M, seed=1)
    return logits.astype(np.float32), labels


@pytest.fixture(scope="module")
def cal(data):
    return rhocal.RhoNormScaling().fit(*data)


# What a model looks like ----------------------------------------------------------------------------------------------


def test_logits_stay_logits_and_everything_else_stays(cal, data, tmp_path):
    model = graph(
        node("Neg", "x", "n"), node("Neg", "n", "logits"), node("Exp", "logits", "other"), outputs=["logits", "other"]
    )
    with pytest.warns(RhocalWarning, match="still computed from uncalibrated scores: other"):
        done = export(cal, saved(model, tmp_path), tmp_path / "out.onnx", scores="logits")
    assert (done.output, done.holds, done.replaced) == ("logits", "logits", "")
    assert done.difference < 1e-5
    assert done.whole_model < 1e-5
    new = onnx.load(tmp_path / "out.onnx")
    assert [value.name for value in new.graph.output] == ["logits", "other"]
    assert new.graph.output[0] == model.graph.output[0]  # type, shape and the name of the batch axis
    assert new.opset_import == model.opset_import
    assert new.producer_name == "somebody"
    props = {prop.key: prop.value for prop in new.metadata_props}
    assert props["author"] == "me"
    assert props["rhocal.method"] == "rho-norm"
    got, other = answer(tmp_path / "out.onnx", data[0])
    np.testing.assert_allclose(softmax(got), cal.predict_proba(data[0]), atol=1e-6)
    np.testing.assert_allclose(other, np.exp(data[0]), rtol=1e-5)  # what was made from the logits still is
    (one,) = answer(tmp_path / "out.onnx", data[0][:1], "logits")
    assert one.shape == (1, M)


def test_a_model_that_is_no_file_is_not_changed(cal, tmp_path):
    model = graph(node("Identity", "x", "logits"), outputs=["logits"])
    before = model.SerializeToString()
    export(cal, model, tmp_path / "out.onnx")
    assert model.SerializeToString() == before
    export(cal, saved(model, tmp_path), tmp_path / "same.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "same.onnx").read_bytes()


@pytest.mark.parametrize("between", [[], ["Identity"], ["Cast"]])
@pytest.mark.parametrize(("last", "inverse"), [("Softmax", lambda p: p), ("LogSoftmax", np.exp)])
def test_a_final_softmax_is_replaced(cal, data, tmp_path, last, inverse, between):
    cast = {"to": TensorProto.FLOAT} if between == ["Cast"] else {}
    nodes = [node("Identity", "x", "z"), node(last, "z", "p" if between else "probs", axis=-1)]
    nodes += [node(op, "p", "probs", **cast) for op in between]
    done = export(cal, saved(graph(*nodes, outputs=["probs"]), tmp_path), tmp_path / "out.onnx")
    assert done.replaced == last
    assert not {"Softmax", "LogSoftmax"} & {n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node}
    np.testing.assert_allclose(
        inverse(answer(tmp_path / "out.onnx", data[0])[0]), cal.predict_proba(data[0]), atol=1e-6
    )


@pytest.mark.parametrize(("dtype", "np_dtype", "atol"), [("FLOAT16", np.float16, 1e-3), ("DOUBLE", np.float64, 1e-9)])
def test_other_types(cal, data, tmp_path, dtype, np_dtype, atol):
    model = graph(
        node("Identity", "x", "z"), node("Softmax", "z", "p"), outputs=["p"], dtype=getattr(TensorProto, dtype)
    )
    done = export(cal, saved(model, tmp_path), tmp_path / "out.onnx")
    x = data[0].astype(np_dtype)
    (got,) = answer(tmp_path / "out.onnx", x)
    assert got.dtype == np_dtype
    np.testing.assert_allclose(got, cal.predict_proba(x), atol=atol)
    assert done.whole_model <= 2 * atol


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("method", ["field", "sms:field", "spline"])
def test_opsets(data, opset, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        cal = rhocal.calibrator(method).fit(*data)
    new, _ = attach(graph(node("Identity", "x", "z"), outputs=["z"], opset=opset), cal, write="probs")
    assert new.opset_import[0].version == opset
    onnx.checker.check_model(new, full_check=True)
    (got,) = parity.session(new).run(None, {"x": data[0]})
    np.testing.assert_allclose(got, cal.predict_proba(data[0]), atol=1e-6)


def test_images(cal, data, tmp_path):
    z = data[0].reshape(6, 10, 10, M).transpose(0, 3, 1, 2)
    model = graph(node("Identity", "x", "z"), outputs=["z"], shape=("batch", M, "height", "width"))
    export(cal, saved(model, tmp_path), tmp_path / "out.onnx", write="probs", class_axis=1)
    (got,) = answer(tmp_path / "out.onnx", np.ascontiguousarray(z))
    np.testing.assert_allclose(got, cal.predict_proba(z, class_axis=1), atol=1e-6)
    wrong = graph(node("Softmax", "x", "p", axis=1), outputs=["p"], shape=("batch", M, "height", "width"))
    with pytest.raises(InputError, match=r"class_axis=1 to"):
        attach(graph(node("Softmax", "x", "p", axis=1), outputs=["p"], shape=("batch", M, 3, M)), cal)
    assert attach(wrong, cal, class_axis=1)[1].replaces == "Softmax"


@pytest.mark.parametrize("shape", [("n",), ("n", 1)])
@pytest.mark.parametrize("last", ["Identity", "Sigmoid"])
def test_one_score_for_two_classes(tmp_path, shape, last):
    logits, labels = synthetic(300, 2)
    score = (logits[:, 1] - logits[:, 0]).astype(np.float32)
    cal = rhocal.PlattScaling().fit(score, labels)
    model = graph(node("Identity", "x", "z"), node(last, "z", "out"), outputs=["out"], shape=shape)
    done = export(cal, saved(model, tmp_path), tmp_path / "out.onnx")
    (got,) = answer(tmp_path / "out.onnx", score.reshape(-1, *[1] * (len(shape) - 1)))
    p = got if last == "Sigmoid" else 1 / (1 + np.exp(-got))
    assert done.holds == ("probs" if last == "Sigmoid" else "logits")
    np.testing.assert_allclose(p.ravel(), cal.predict_proba(score)[:, 1], atol=1e-6)


def test_a_model_calibrated_twice(cal, data):
    once, _ = attach(graph(node("Identity", "x", "z"), outputs=["z"]), cal)
    twice, _ = attach(once, cal, write="probs")
    onnx.checker.check_model(twice, full_check=True)
    (got,) = parity.session(twice).run(None, {"x": data[0]})
    np.testing.assert_allclose(got, cal.predict_proba(parity.session(once).run(None, {"x": data[0]})[0]), atol=1e-6)


# Errors that help -----------------------------------------------------------------------------------------------------


def test_errors_that_help(cal, tmp_path):
    two = graph(node("Identity", "x", "a"), node("Exp", "x", "b"), outputs=["a", "b"])
    with pytest.raises(InputError, match=r"no output 'logits'; it has a \(float32, \['batch', 5\]\); b \(float32"):
        attach(two, cal, "logits")
    with pytest.raises(InputError, match=r"several outputs: .*scores= to name"):
        attach(two, cal)
    assert attach(graph(node("Identity", "x", "a"), outputs=["a"], opset=12), cal)[1].spec.opset == 17
    hidden = graph(node("Softmax", "x", "p"), node("Flatten", "p", "out"), outputs=["out"])
    with pytest.raises(InputError, match=r"holds probabilities: they come from a Softmax.* kind='probs'"):
        attach(hidden, cal)
    with pytest.raises(InputError, match="has 7 classes on axis -1, but the calibrator was fitted with 5"):
        attach(graph(node("Identity", "x", "a"), outputs=["a"], shape=("n", 7)), cal)
    whole = graph(node("Identity", "x", "a"), outputs=["a"], dtype=TensorProto.INT64)
    with pytest.raises(InputError, match="does not hold floating-point scores"):
        attach(whole, cal)
    with pytest.raises(InputError, match="write is same, probs or logits"):
        attach(two, cal, "a", write="odds")
    with pytest.raises(FileError, match="no such file"):
        export(cal, tmp_path / "none.onnx", tmp_path / "out.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(FileError, match=r"bad.onnx: (cannot be read as|not) an ONNX model"):
        export(cal, tmp_path / "bad.onnx", tmp_path / "out.onnx")
    with pytest.raises(InputError, match="opset must be 13"):
        save_model(cal, tmp_path / "out.onnx", opset=9)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("op", ["Identity", "Cast", "Reshape", "Relu"])
def test_a_graph_with_a_cycle_is_refused(cal, tmp_path, op):
    """Looking for a final Softmax through nodes that change nothing must end."""
    extra = {"Cast": {"to": TensorProto.FLOAT}}.get(op, {})
    cycle = [node(op, "b", "a", **extra), node(op, "a", "b", **extra), node(op, "b", "y", **extra)]
    path = saved(graph(*cycle, outputs=["y"]), tmp_path)
    with pytest.raises(InputError, match="not valid"):
        export(cal, path, tmp_path / "out.onnx")
    with pytest.raises(InputError, match="not valid"):
        attach(onnx.load(path), cal)
    assert not (tmp_path / "out.onnx").exists()


def test_models_that_are_not_valid_are_errors_of_ours(cal, tmp_path):
    for broken in (
        graph(helper.make_node("Identity", [], ["y"]), outputs=["y"]),
        graph(node("Identity", "nothing", "y"), outputs=["y"]),
        graph(node("NoSuchOperator", "x", "y"), outputs=["y"]),
        graph(node("Relu", "x", "y"), node("Relu", "x", "y"), outputs=["y"]),
    ):
        with pytest.raises(InputError, match="not valid"):
            export(cal, saved(broken, tmp_path), tmp_path / "out.onnx")


def test_probabilities_are_taken_as_such(data):
    """A calibrator fitted on probabilities goes behind the Softmax, not in its place."""
    probs = softmax(data[0])
    cal = rhocal.TemperatureScaling().fit(probs, data[1], kind="probs")
    new, place = attach(graph(node("Softmax", "x", "p"), outputs=["p"]), cal)
    assert (place.replaces, place.spec.output) == ("", "probs")
    np.testing.assert_allclose(parity.session(new).run(None, {"x": data[0]})[0], cal.predict_proba(probs), atol=1e-6)


def test_a_graph_that_is_wrong_is_not_written(cal, tmp_path, monkeypatch):
    model = saved(graph(node("Identity", "x", "z"), outputs=["z"]), tmp_path)
    other = rhocal.RhoNormScaling(rho=2.0).fit(*synthetic(300, M, scale=9.0))
    monkeypatch.setattr(
        type(cal), "predict_proba", lambda _, z, **said: other.__class__.__base__.predict_proba(other, z, **said)
    )
    with pytest.raises(parity.ParityError, match="nothing was written"):
        export(cal, model, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


# Real models ----------------------------------------------------------------------------------------------------------


def images(n, seed):
    """Drawn images of four classes: a bright quarter, with noise that leaves doubt."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=n)
    x = rng.normal(size=(n, 3, 12, 12)).astype(np.float32)
    for k, (row, column) in enumerate([(0, 0), (0, 6), (6, 0), (6, 6)]):
        x[labels == k, :, row : row + 6, column : column + 6] += 0.2
    return x, labels


@pytest.fixture(scope="module")
def resnet():
    """A thin ResNet-18, trained on few images until it is over-confident."""
    torch.manual_seed(0)
    net = network("resnet18", 4, width=8)
    x, y = (torch.tensor(array) for array in images(400, 0))
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(12):
        for rows in torch.randperm(400).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
    return net.eval()


@pytest.mark.parametrize("method", ["rho-norm", "field", "isotonic"])
def test_a_real_network_has_the_same_ece_in_onnxruntime(resnet, tmp_path, method):
    tune, tune_labels = images(1500, 1)
    test, labels = images(1500, 2)
    with torch.no_grad():
        logits_tune, logits_test = (resnet(torch.tensor(x)).numpy() for x in (tune, test))
    np.savez(tmp_path / "tune.npz", logits=logits_tune, labels=tune_labels)
    run("fit", tmp_path / "tune.npz", "-m", method, "-o", tmp_path / "cal.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            resnet, (torch.tensor(test[:2]),), tmp_path / "net.onnx", dynamo=False, input_names=["images"],
            output_names=["logits"], dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}}, opset_version=17,
        )  # fmt: skip
    arguments = (
        "export",
        tmp_path / "cal.safetensors",
        tmp_path / "net.onnx",
        "--output",
        tmp_path / "calibrated.onnx",
    )
    printed = json.loads(run(*arguments, "--scores", "logits", "--write", "probs", "--json").stdout)
    assert printed["whole_model"] < 1e-5
    (probs,) = answer(tmp_path / "calibrated.onnx", test)
    cal = rhocal.load(tmp_path / "cal.safetensors")
    raw, want = (rhocal.metrics.ece(p, labels) for p in (softmax(logits_test), cal.predict_proba(logits_test)))
    assert rhocal.metrics.ece(probs, labels) == pytest.approx(want, abs=1e-4)
    assert want < 0.6 * raw  # it was over-confident, and calibration helped


def test_a_scikit_learn_pipeline_through_skl2onnx(tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    X, y = make_classification(2000, 20, n_informative=6, n_classes=3, flip_y=0.2, random_state=0)  # noqa: N806
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=100)).fit(X[:300], y[:300])
    cal = rhocal.RhoNormScaling().fit(pipeline.predict_proba(X[300:1000]), y[300:1000], kind="probs")
    model = skl2onnx.to_onnx(pipeline, X[:1].astype(np.float32), options={"zipmap": False}, target_opset=17)
    onnx.save(model, tmp_path / "pipe.onnx")
    cal.save(tmp_path / "cal.safetensors")
    out = run("export", tmp_path / "cal.safetensors", tmp_path / "pipe.onnx", "-o", tmp_path / "out.onnx").stdout
    assert "probabilities holds probs calibrated with rho-norm" in " ".join(out.split())
    (got,) = answer(tmp_path / "out.onnx", X[1000:].astype(np.float32), "probabilities")
    want = cal.predict_proba(pipeline.predict_proba(X[1000:]))
    assert rhocal.metrics.ece(got, y[1000:]) == pytest.approx(rhocal.metrics.ece(want, y[1000:]), abs=1e-4)
    zipped = skl2onnx.to_onnx(pipeline, X[:1].astype(np.float32), target_opset=17)
    (again,) = answer(
        attach(zipped, cal, "output_probability")[0].SerializeToString(),
        X[1000:].astype(np.float32),
        "output_probability",
    )
    np.testing.assert_array_equal(again, got)


def test_the_command_writes_a_calibrator_of_its_own(cal, data, tmp_path):
    cal.save(tmp_path / "cal.safetensors")
    run("export", tmp_path / "cal.safetensors", "-o", tmp_path / "cal.onnx")
    run("export", tmp_path / "cal.safetensors", "--output", tmp_path / "same.onnx", cwd=tmp_path)  # both mean the file
    assert (tmp_path / "same.onnx").read_bytes() == (tmp_path / "cal.onnx").read_bytes()
    assert not (tmp_path / "calibrated.onnx").exists()
    assert ".onnx" in run("export", tmp_path / "cal.safetensors", "--output", "logits", code=2).stderr
    assert "no MODEL" in run("export", tmp_path / "cal.safetensors", "--scores", "logits", code=2).stderr
    (got,) = answer(tmp_path / "cal.onnx", data[0])
    np.testing.assert_allclose(got, cal.predict_proba(data[0]), atol=1e-6)
    error = run("export", tmp_path / "cal.safetensors", tmp_path / "no.onnx", "-o", tmp_path / "x.onnx", code=2).stderr
    assert error.count("\n") == 1


def test_the_axis_of_a_model_needs_a_model(cal, tmp_path):
    cal.save(tmp_path / "cal.safetensors")
    for name in ("out.onnx", "out.json"):
        result = run("export", tmp_path / "cal.safetensors", "-o", tmp_path / name, "--class-axis", "1", code=2)
        assert "no MODEL is given" in result.stderr
        assert not (tmp_path / name).exists()


def test_the_model_that_is_read_is_not_overwritten(tmp_path):
    cal = rhocal.TemperatureScaling().fit(*synthetic(200, 3))
    model = tmp_path / "m.onnx"
    cal.to_onnx(model)
    before = model.read_bytes()
    (tmp_path / "link.onnx").symlink_to(model)
    for output in (model, tmp_path / "link.onnx"):
        with pytest.raises(FileError, match="this is the input"):
            export(cal, model, output)
    assert model.read_bytes() == before
