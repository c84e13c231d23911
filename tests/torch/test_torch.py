"""PyTorch: modules, losses, metrics in one and two processes."""

import io
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import rhocal
from helpers import PATIENCE, synthetic
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, RhocalWarning
from rhocal.metrics import METRICS
from rhocal.objectives import OBJECTIVES
from rhocal.profile.passes import FIVE, ArrayPasses
from rhocal.profile.profile import Profile
from rhocal.torch import CalibrationLoss
from rhocal.torch.device import on_device
from rhocal.torch.metrics import CalibrationMetric
from rhocal.torch.passes import TensorPasses

STREAMS = [name for name, metric in METRICS.items() if metric.streams == "exactly"]


@pytest.fixture(scope="module")
def data():
    logits, labels = synthetic(600, 5, seed=1)
    return logits.astype(np.float32), labels


@pytest.fixture(scope="module")
def cal(data):
    return rhocal.RhoNormScaling().fit(*data)


# Modules --------------------------------------------------------------------------------------------------------------


def test_the_state_holds_the_fitted_numbers(cal, data):
    module = cal.to_torch()
    assert {name: float(value) for name, value in module.state_dict().items()} == pytest.approx(
        {"rho": cal.rho_, "gamma": cal.gamma_, "beta": cal.beta_}
    )
    other = rhocal.RhoNormScaling(rho=1.0).fit(data[0][:200], data[1][:200]).to_torch(output="probs")
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    np.testing.assert_allclose(other(torch.tensor(data[0])), cal.predict_proba(data[0]), atol=1e-6)
    assert "5 classes" in repr(module)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_in_and_out(cal, data, dtype):
    z = torch.tensor(data[0]).to(dtype)
    module, probs = (cal.to_torch(output=output).to(dtype) for output in ("logits", "probs"))
    assert module(z).dtype == dtype
    assert probs(z).dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert module.rho.dtype == torch.float64  # the model's precision is not the numbers'
    np.testing.assert_allclose(probs(z).numpy(), cal.predict_proba(z), atol=1e-6)
    assert (module(z).argmax(-1) == z.argmax(-1)).all()


@pytest.mark.parametrize("method", ["rho-norm", "pts", "sms"])
def test_autocast_changes_nothing(data, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        module = rhocal.calibrator(method).fit(*data).to_torch(output="probs")
    z = torch.tensor(data[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = module(z)
    torch.testing.assert_close(inside, module(z), atol=1e-7, rtol=0)


@pytest.mark.filterwarnings("ignore:Guards may run slower")  # torch's advice to users of Python 3.13.0
@pytest.mark.parametrize("method", ["rho-norm", "field", "isotonic", "svs:field"])
def test_torch_compile(data, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        module = rhocal.calibrator(method).fit(*data).to_torch(output="probs")
    z = torch.tensor(data[0])
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(z), module(z), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "method", ["temperature", "rho-norm", "field", "pts", "ets", "iop", "polynomial", "vector", "sms", "beta"]
)
def test_gradients_are_those_of_the_map(data, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        module = rhocal.calibrator(method).fit(*data).to_torch(output="probs")
    z = torch.tensor(data[0][:5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, (z,), atol=1e-6)
    zero = torch.zeros(2, 5, dtype=torch.float64, requires_grad=True)
    module(zero)[:, 0].sum().backward()
    assert torch.isfinite(zero.grad).all()


def test_any_leading_axes_and_the_class_axis(cal, data):
    z = torch.tensor(data[0]).reshape(2, 10, 30, 5)
    want = torch.tensor(cal.predict_proba(data[0])).reshape(2, 10, 30, 5)
    torch.testing.assert_close(cal.to_torch(output="probs")(z), want, atol=1e-6, rtol=0)
    image = cal.to_torch(output="probs", class_axis=1)(z.movedim(-1, 1))
    torch.testing.assert_close(image, want.movedim(-1, 1), atol=1e-6, rtol=0)
    with pytest.raises(InputError, match=r"have 30 classes on axis -1, .* fitted with 5.*class_axis"):
        cal.to_torch()(z.movedim(-1, 1))


def test_one_score_for_two_classes():
    logits, labels = synthetic(300, 2)
    score = logits[:, 1] - logits[:, 0]
    cal = rhocal.PlattScaling().fit(score, labels)
    module = cal.to_torch(output="probs")
    for shape in ((300,), (300, 1)):
        out = module(torch.tensor(score).reshape(shape))
        np.testing.assert_allclose(out, cal.predict_proba(score), atol=1e-9)


# Tensors in, tensors out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["rho-norm", "isotonic", "multi-domain"])
def test_a_tensor_gives_a_tensor_on_its_device(data, method):
    cal = rhocal.calibrator(method).fit(torch.tensor(data[0]), torch.tensor(data[1]))
    z = torch.tensor(data[0], requires_grad=True)
    for out, want in ((cal.predict_proba(z), cal.predict_proba(data[0])), (cal.transform(z), cal.transform(data[0]))):
        assert isinstance(out, torch.Tensor)
        assert out.device == z.device
        np.testing.assert_array_equal(out.numpy(), want)
    assert isinstance(cal.predict_proba(z.detach().numpy()), np.ndarray)
    assert cal.predict_proba(z.bfloat16()).dtype == torch.float32


def test_the_path_of_other_devices(cal, data):
    z = torch.tensor(data[0])
    out = on_device(cal, z.half(), "probs", "logits", -1)
    assert out.dtype == torch.float32
    np.testing.assert_allclose(out, cal.predict_proba(z.half()).numpy(), atol=1e-6)
    images = z.reshape(2, 300, 5).movedim(-1, 1)
    np.testing.assert_allclose(
        on_device(cal, images, "probs", "logits", 1), cal.predict_proba(images.numpy(), class_axis=1), atol=1e-6
    )
    z[0, 0] = torch.nan
    with pytest.raises(InputError, match="1 entries are NaN"):
        on_device(cal, z, "probs", "logits", -1)


@pytest.mark.parametrize("method", ["temperature", "rho-norm", "field", "smart", "pts", "identity"])
@pytest.mark.parametrize("m", [5, 100])
def test_a_fit_where_the_logits_are(method, m, monkeypatch):
    """What other devices do, made to happen on this one."""
    logits, labels = synthetic(800, m, seed=2)
    logits, weight = logits.astype(np.float32), np.random.default_rng(0).integers(1, 3, 800)
    want = rhocal.calibrator(method).fit(logits, labels, weight)
    monkeypatch.setattr("rhocal.data.arrays.HOST_DEVICES", set())
    monkeypatch.setattr("rhocal.torch.device.TensorScores.to_host", None)  # no row is copied to the host
    cal = rhocal.calibrator(method).fit(torch.tensor(logits), torch.tensor(labels), weight)
    np.testing.assert_allclose(cal.predict_proba(logits), want.predict_proba(logits), atol=2e-5)
    np.testing.assert_array_equal(cal.classes_, want.classes_)


def test_passes_over_tensors_read_what_passes_over_arrays_read(data):
    arrays, tensors = ArrayPasses(data[0]), TensorPasses(torch.tensor(data[0]))
    top, scale = data[0].max(1).astype(np.float64), np.linspace(0.1, 3, 600)
    np.testing.assert_allclose(tensors.means(), arrays.means(), atol=1e-5)
    np.testing.assert_allclose(tensors.largest(9), arrays.largest(9), atol=1e-6)
    for center in (True, False):
        np.testing.assert_allclose(
            tensors.norms([1.0, 1.3, 3.0], center=center), arrays.norms([1.0, 1.3, 3.0], center=center), rtol=1e-5
        )
        np.testing.assert_allclose(
            tensors.norm_slope(1.7, center=center), arrays.norm_slope(1.7, center=center), atol=1e-5
        )
    np.testing.assert_allclose(tensors.curve(top, scale, 3), arrays.curve(top, scale, 3), atol=1e-6)
    scales = 0.1 * np.array(FIVE)
    np.testing.assert_allclose(tensors.moments(top, scales), arrays.moments(top, scales), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["vector", "isotonic", "iop", "multi-domain"])
def test_families_that_read_rows_copy_them_from_the_device(method, data, monkeypatch):
    groups = np.arange(600) % 3 if method == "multi-domain" else None
    want = rhocal.calibrator(method).fit(*data, groups=groups)
    monkeypatch.setattr("rhocal.data.arrays.HOST_DEVICES", set())
    cal = rhocal.calibrator(method).fit(*map(torch.tensor, data), groups=groups)
    np.testing.assert_array_equal(cal.predict_proba(data[0], groups=groups), want.predict_proba(data[0], groups=groups))


def test_scores_on_a_device_are_validated_there(data, monkeypatch):
    monkeypatch.setattr("rhocal.data.arrays.HOST_DEVICES", set())

    def profile_of(scores, labels, **spec):
        return Profile.from_predictions(Predictions.from_arrays(scores, labels, spec=InputSpec(**spec)))

    images, marks = (
        torch.tensor(data[0]).reshape(6, 100, 5).movedim(-1, 1),
        torch.tensor(data[1]).reshape(6, 100).clone(),
    )
    marks[:, 0] = -100
    profile = profile_of(images, marks, class_axis=1, ignore_index=-100)
    kept = (marks != -100).reshape(-1).numpy()
    want = rhocal.TemperatureScaling().fit(data[0][kept], data[1][kept]).temperature_
    assert rhocal.TemperatureScaling().fit_profile(profile).temperature_ == pytest.approx(want, rel=1e-6)
    probs = torch.tensor(data[0]).softmax(-1)
    of_probs = rhocal.TemperatureScaling().fit_profile(profile_of(probs, data[1], kind="probs"))
    assert of_probs.temperature_ == pytest.approx(rhocal.TemperatureScaling().fit(*data).temperature_, rel=1e-4)
    assert of_probs.kind_ == "probs"
    images[0, 0, 0] = torch.inf
    with pytest.raises(InputError, match="1 entry in 1 row is NaN or infinite, the first is inf in row 0"):
        profile_of(images, marks.clamp(min=0), class_axis=1)
    with pytest.raises(InputError, match="labels must be column numbers"):
        profile_of(torch.tensor(data[0]), data[1] + 3)
    for kind, scores in (("probs", 2 * probs), ("log_probs", probs)):
        with pytest.raises(InputError, match=r"must sum to 1|which is no (log-)?probability"):
            profile_of(scores, data[1], kind=kind)
    of_logs = profile_of(probs.log(), data[1], kind="log_probs")
    np.testing.assert_allclose(of_logs.top, probs.log().max(dim=1).values, rtol=1e-6)
    np.testing.assert_array_equal(profile_of(torch.tensor(data[0][:, 1]), data[1] % 2).n_classes, 2)


# Losses ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*OBJECTIVES, "sce + 0.01*kl", "nll + sb-ece"])
def test_losses_have_the_slope_of_their_value(text, data):
    loss = CalibrationLoss(text)
    z = torch.tensor(data[0][:40], dtype=torch.float64, requires_grad=True)
    labels, base = torch.tensor(data[1][:40]), torch.tensor(data[0][:40] * 0.7, dtype=torch.float64)
    given = "threshold" in {f for _, t in loss.objective.terms() for f in vars(t)}
    if given or "soft-ece" in text:  # what is taken from the data of each batch must not move with it here
        loss.objective = rhocal.objective({"avuc": "avuc(threshold=0.7)", "soft-ece": "soft-ece(width=0.1)"}[text])
    assert torch.autograd.gradcheck(lambda z: loss(z, labels, base), (z,), atol=1e-5)


def test_losses_by_hand_and_in_training(data):
    z, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0]]), torch.tensor([0, 0, -100])
    p = torch.softmax(z[:2], -1).amax(-1)
    by_hand = ((torch.tensor([1.0, 0.0]) - p).mean()) ** 2  # one bin, the third sample is not there
    assert CalibrationLoss("sce")(z, labels).item() == pytest.approx(by_hand.item())
    with pytest.raises(InputError, match="pass base="):
        CalibrationLoss("sce + kl")(z, labels)
    logits, targets = torch.tensor(data[0]), torch.tensor(data[1])
    log_scale = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.Adam([log_scale], lr=0.05)
    loss = CalibrationLoss("sb-ece")
    before = loss(logits, targets).item()
    for _ in range(60):
        optimizer.zero_grad()
        loss(log_scale.exp() * logits, targets).backward()
        optimizer.step()
    assert loss(log_scale.exp() * logits, targets).item() < 0.5 * before


# Metrics --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
def test_metrics_are_those_of_the_table(name, data):
    logits, labels = (torch.tensor(array) for array in data)
    metric = CalibrationMetric(name, num_classes=5)
    for z, y in zip(logits.split(130), labels.split(130), strict=True):
        metric.update(z, y)
    size = metric.sums.numel()
    assert size < 30_000  # whatever the number of samples
    assert metric.compute().item() == pytest.approx(METRICS[name](data[0], data[1], kind="logits"), rel=1e-5, abs=1e-6)
    metric.reset()
    assert not metric.sums.any()


def test_a_confidence_of_exactly_one_is_in_the_last_bin():
    metric = CalibrationMetric("ece", num_classes=2, kind="probs", n_bins=10)
    metric.update(torch.tensor([[0.05, 0.95], [0.0, 1.0]]), torch.tensor([1, 0]))
    assert metric.compute().item() == pytest.approx(0.475)  # by hand; bins of their own for 1.0 say .525
    assert metric.half().compute().item() == pytest.approx(0.475)


def test_metrics_of_images_and_bad_names():
    logits, labels = synthetic(240, 3)
    images = torch.tensor(logits).reshape(2, 10, 12, 3).movedim(-1, 1)
    marks = torch.tensor(labels).reshape(2, 10, 12).clone()
    marks[0, 0] = -100
    metric = CalibrationMetric("nll", num_classes=3, class_axis=1)
    metric.update(images, marks)
    kept = (marks != -100).reshape(-1).numpy()
    assert metric.compute().item() == pytest.approx(rhocal.metrics.nll(logits[kept], labels[kept], kind="logits"))
    with pytest.raises(InputError, match=r"target has shape \(2, 12, 10\).*transpose target"):
        metric.update(images, marks.movedim(1, 2))
    with pytest.raises(InputError, match="transpose labels"):
        CalibrationLoss("nll")(images.movedim(1, -1), marks.movedim(1, 2))
    with pytest.raises(InputError, match="no metric 'eec'"):
        CalibrationMetric("eec", num_classes=3)
    with pytest.raises(InputError, match="cannot be added up"):
        CalibrationMetric("adaptive_ece", num_classes=3)
    assert CalibrationMetric("adaptive_ece", num_classes=3, sketch=True).compute is not None


DDP = """
import sys, torch, numpy as np
import torch.distributed as dist
from rhocal.torch.metrics import CalibrationMetric
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
logits, labels = torch.load(sys.argv[3], weights_only=True)
mine = slice(0, 150) if rank == 0 else slice(150, None)  # parts of different size
metrics = [CalibrationMetric(name, num_classes=5) for name in ("ece", "classwise_ece", "nll")]
for metric in metrics:
    metric.update(logits[mine], labels[mine])
print(*[metric.compute().item() for metric in metrics])
dist.destroy_process_group()
"""


def test_two_processes_agree_with_one(tmp_path, data):
    torch.save(tuple(torch.tensor(array) for array in data), tmp_path / "data.pt")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", DDP, str(rank), str(tmp_path / "store"), str(tmp_path / "data.pt")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    out = [process.communicate(timeout=PATIENCE) for process in started]
    want = [METRICS[name](*data, kind="logits") for name in ("ece", "classwise_ece", "nll")]
    for (printed, errors), process in zip(out, started, strict=True):
        assert process.returncode == 0, errors
        assert [float(x) for x in printed.split()[-3:]] == pytest.approx(want, rel=1e-5)


def test_moments_of_tensors_are_those_of_arrays():
    logits, labels = synthetic(200, 80)
    profile = rhocal.profile_logits(logits, labels)
    scale = np.random.default_rng(0).uniform(0.2, 0.8, 200)
    there = TensorPasses(torch.from_numpy(logits))
    np.testing.assert_allclose(
        there.moments_at(profile.top, scale), profile.passes.moments_at(profile.top, scale), rtol=1e-9
    )
    scales = 0.1 * np.array(FIVE)
    np.testing.assert_allclose(
        there.moments(profile.top, scales), profile.passes.moments(profile.top, scales), rtol=1e-9
    )


@pytest.mark.parametrize("method", ["temperature", "rho-norm", "field", "svs:field"])
@pytest.mark.parametrize("output", ["logits", "probs"])
def test_a_few_rows_give_what_many_rows_give(data, method, output):
    cal = rhocal.calibrator(method).fit(*data)
    module = cal.to_torch(output=output)
    rows = torch.tensor(np.concatenate([data[0][:200], np.round(data[0][:20]), np.zeros((2, 5)), data[0][:4] * 200]))
    many = module(rows)  # by the operations of torch
    few = torch.cat([module(rows[k : k + 1]) for k in range(len(rows))])
    torch.testing.assert_close(few, many, rtol=1e-5, atol=2e-6)
    assert few.dtype == many.dtype
    assert (few.argmax(1) == rows.argmax(1)).all() == (method != "svs:field")
    masked = rows[:1].clone()
    masked[0, 2] = -torch.inf
    assert module(masked).argmax() != 2
    torch.testing.assert_close(module(masked), module(masked.repeat(100, 1))[:1], rtol=1e-5, atol=2e-6)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.func.jvp uses it
def test_a_few_rows_follow_the_buffers_and_have_gradients(data):
    cal = rhocal.TemperatureScaling().fit(*data)
    module, z = cal.to_torch(output="probs"), torch.tensor(data[0][:3])
    before = module(z)
    state = {name: 3 * value for name, value in module.state_dict().items()}
    module.load_state_dict(state)
    want = torch.softmax(z / (3 * cal.temperature_), dim=-1)
    torch.testing.assert_close(module(z), want, rtol=1e-5, atol=1e-6)
    module.temperature = torch.tensor(cal.temperature_, dtype=torch.float64)
    torch.testing.assert_close(module(z), before)
    x = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(module(x)[:, 0].sum(), x)
    torch.testing.assert_close(torch.func.grad(lambda x: module(x)[:, 0].sum())(z), slope)
    torch.testing.assert_close(torch.func.vmap(lambda x: module(x[None])[0])(z), before, rtol=1e-5, atol=1e-6)
    _, along = torch.func.jvp(lambda x: module(x)[:, 0].sum(), (z,), (torch.ones_like(z) * z,))
    torch.testing.assert_close(along, (slope * z).sum(), rtol=1e-4, atol=1e-6)
    with torch.inference_mode():
        torch.testing.assert_close(module(z.clone()), before)
