"""Training-time methods with a state, ensembles, and the epoch that is kept: values by hand, and that runs resume."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from rhocal.errors import InputError
from rhocal.evaluation.rows import read_rows
from rhocal.metrics import nll
from rhocal_paper.train import Images, Model, Recipe, train
from rhocal_paper.train.adaptive import AdaFocal, ClassAdaptive, CorrectnessRanking, criterion
from rhocal_paper.train.data.dataset import dataset
from rhocal_paper.train.ensembles import RankOne, predict, with_dropout

THIN = Model("resnet18", width=2)


def logits_of(*confidences):
    """Two classes; the first has this probability."""
    p = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([torch.log(p), torch.log1p(-p)], 1)


# Losses that adapt ----------------------------------------------------------------------------------------------------


def test_adafocal_by_hand():
    """Two bins of two samples: confidences .6, .7 (one right) and .8, .9 (both right). E = .65 − .5 and .85 − 1."""
    loss = AdaFocal(2, 4, n_bins=2)
    loss.after_epoch(logits_of(0.7, 0.9, 0.8, 0.6), torch.tensor([1, 0, 0, 0]))
    assert loss.gamma.tolist() == pytest.approx([math.exp(0.15), math.exp(-0.15)], rel=1e-5)
    assert loss.edges.tolist() == pytest.approx([0.7])  # the largest confidence of the first bin
    value = loss(logits_of(0.65, 0.95), torch.tensor([0, 0]), torch.tensor([0, 1]))
    one = -(0.35 ** math.exp(0.15)) * math.log(0.65)
    other = -(0.05 ** math.exp(-0.15)) * math.log(0.95)
    assert value.item() == pytest.approx((one + other) / 2, rel=1e-5)


def test_adafocal_changes_sign_when_gamma_is_small():
    """Under-confident by .4: γ falls from .25 to .1676 < .2, so it becomes −.2; the loss is then the inverse focal one."""
    loss = AdaFocal(2, 4, n_bins=1)
    loss.gamma.fill_(0.25)
    loss.after_epoch(logits_of(0.6, 0.6), torch.tensor([0, 0]))
    assert loss.gamma.tolist() == pytest.approx([-0.2])
    value = loss(logits_of(0.6), torch.tensor([0]), torch.tensor([0]))
    assert value.item() == pytest.approx(-(1.6**0.2) * math.log(0.6), rel=1e-5)
    loss.after_epoch(logits_of(0.6, 0.6), torch.tensor([0, 0]))  # still: |γ| grows by exp(0.4)
    assert loss.gamma.tolist() == pytest.approx([-0.2 * math.exp(0.4)])
    loss.gamma.fill_(-0.21)
    loss.after_epoch(logits_of(0.9, 0.9), torch.tensor([1, 0]))  # over-confident by .4: back to a positive γ
    assert loss.gamma.tolist() == pytest.approx([0.2])


def test_adafocal_needs_as_many_samples_as_bins():
    with pytest.raises(InputError, match="2 calibration images are fewer than 15 bins; set n_bins="):
        AdaFocal(2, 4).after_epoch(logits_of(0.6, 0.7), torch.tensor([0, 0]))


def test_correctness_ranking_by_hand():
    """Confidences .8 and .6; the first was right in 1 of 4 epochs, the second in 3 of 4: both pairs are in the wrong order."""
    loss = CorrectnessRanking(2, 5, weight=2.0)
    loss.n_right[:2], loss.n_seen[:2] = torch.tensor([1.0, 3.0]), 4.0
    rows, labels = torch.tensor([0, 1]), torch.tensor([0, 1])
    value = loss(logits_of(0.8, 0.6), labels, rows)
    entropy = -(math.log(0.8) + math.log(0.4)) / 2
    assert value.item() == pytest.approx(entropy + 2 * (0.5 + 0.2), rel=1e-5)  # |c_i − c_j| + (κ_i − κ_j), twice
    assert loss.n_right.tolist() == [2.0, 3.0, 0, 0, 0]  # the first was right now, the second wrong
    assert loss.n_seen.tolist() == [5.0, 5.0, 0, 0, 0]
    fresh = CorrectnessRanking(2, 5)
    assert fresh(logits_of(0.8, 0.6), labels, rows).item() == pytest.approx(entropy, rel=1e-5)  # no past, no ranking


def test_class_adaptive_by_hand():
    """Logits (3, 0) with a margin of 2: y = −1 and 0.5. λ + ρy is negative for the first class."""
    loss = ClassAdaptive(2, 4, margin=2.0, multiplier=0.5, penalty=1.0)
    logits, labels = torch.tensor([[3.0, 0.0]]), torch.tensor([0])
    value = loss(logits, labels, torch.tensor([0]))
    penalty = (-(0.5**2) / 2 + 0.5 * 0.5 + 0.5**2 / 2) / 2
    assert value.item() == pytest.approx(math.log1p(math.exp(-3)) + penalty, rel=1e-5)
    loss.after_epoch(torch.tensor([[3.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 1]))
    assert loss.multiplier.tolist() == pytest.approx([(0 + 1.5) / 2, (1.0 + 0) / 2])  # means of max(0, λ + ρy)


def test_class_adaptive_penalties_grow_where_nothing_improved():
    """y of class 0 is −1, of class 1 it is the logit of class 0 minus 1: 2, or 1 where the margin is nearly kept."""
    loss, improving = ClassAdaptive(2, 4, margin=1.0), ClassAdaptive(2, 4, margin=1.0)
    for epoch in range(ClassAdaptive.PERIOD):
        assert loss.penalty.tolist() == [1.0, 1.0]
        loss.after_epoch(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))
        improving.after_epoch(torch.tensor([[4.0 * 0.8**epoch, 0.0]]), torch.tensor([0]))
    assert loss.penalty.tolist() == pytest.approx([1.0, 1.2])
    assert improving.penalty.tolist() == [1.0, 1.0]
    for _ in range(20 * ClassAdaptive.PERIOD):
        loss.after_epoch(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))
    assert loss.penalty.tolist() == pytest.approx([1.0, ClassAdaptive.LARGEST_PENALTY])
    assert loss.multiplier.tolist() == pytest.approx([1e-6, loss.multiplier[1].item()])


def test_losses_by_name():
    assert criterion("crl:weight=0.5", 3, 10).weight == 0.5
    with pytest.raises(InputError, match="loss cals has no option 'rate'; it has margin"):
        criterion("cals:rate=3", 3, 10)
    with pytest.raises(InputError, match="mixup blends images of two labels"):
        Recipe(loss="crl", mixup=0.2)


# Several answers of one network ---------------------------------------------------------------------------------------


def test_batch_ensemble_by_hand():
    """Weight 2, bias 1: y = s·(2·r·x + 1); the first half of a batch belongs to the first member."""
    layer = nn.Linear(1, 1)
    nn.init.constant_(layer.weight, 2.0)
    nn.init.constant_(layer.bias, 1.0)
    members = RankOne(layer, 2)
    assert set(members.inputs.flatten().tolist() + members.outputs.flatten().tolist()) <= {-1.0, 1.0}
    with torch.no_grad():
        members.inputs.copy_(torch.tensor([[1.0], [3.0]]))
        members.outputs.copy_(torch.tensor([[1.0], [-1.0]]))
    out = members(torch.tensor([[1.0], [2.0], [1.0], [2.0]]))
    assert out.flatten().tolist() == [3.0, 5.0, -7.0, -13.0]


def test_members_are_averaged_as_probabilities():
    torch.manual_seed(0)
    net = Model("vgg16", width=2, members=3).build(4, 3).eval()
    images = torch.randn(5, 3, 32, 32)
    with torch.no_grad():
        log_p = predict(net, images, n_members=3)
        each = net(torch.cat([images] * 3)).softmax(1).view(3, 5, 4)
    assert torch.allclose(log_p.exp(), each.mean(0), atol=1e-6)
    assert (each[0] - each[1]).abs().max() > 1e-3  # members differ


def test_dropout_at_prediction():
    """Passes differ, their mean probability is the prediction, and batch normalization stays as it is for predictions."""
    torch.manual_seed(0)
    net = with_dropout(Model("resnet18", width=2).build(4, 3), 0.5).eval()
    images = torch.randn(6, 3, 16, 16)
    with torch.no_grad():
        plain = predict(net, images)
        assert torch.equal(plain, net(images))
        torch.manual_seed(1)
        mean = predict(net, images, n_passes=7).exp()
        torch.manual_seed(1)
        each = torch.stack([functional.softmax(net(images), 1) for _ in range(7)])  # dropout is still on
    assert torch.allclose(mean, each.mean(0), atol=1e-6)
    assert (each[0] - each[1]).abs().max() > 1e-3
    assert not any(module.training for module in net.modules() if isinstance(module, nn.BatchNorm2d))
    assert sum(isinstance(module, nn.Dropout) for module in net.modules()) == 9  # eight blocks, and the last layer


@pytest.mark.parametrize(
    ("option", "says"), [({"dropout": 1.0}, "below 1"), ({"members": 0}, "members"), ({"passes": 0}, "passes")]
)
def test_models_refused(option, says):
    with pytest.raises(InputError, match=says):
        Model("vgg16", **option)


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    pixels = rng.integers(0, 150, (60, 16, 16, 3)) + 60 * labels[:, None, None, None]
    images = Images(pixels.astype(np.uint8), labels)
    return dataset("shades", images, images, ("dark", "light"), tune=images)


def test_early_stopping_keeps_the_epoch_of_the_lowest_nll(data, tmp_path):
    recipe = Recipe(epochs=4, batch_size=16, keep="nll", learning_rate=0.5, milestones=())
    train(data, THIN, recipe, tmp_path, device="cpu")
    values = [float(row["nll"]) for row in read_rows(tmp_path / "log.csv")]
    best = int(np.argmin(values))
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["kept_epoch"] == best + 1
    with np.load(tmp_path / "logits.npz") as file:
        assert nll(file["logits_val"], file["labels_val"], kind="logits") == pytest.approx(values[best], rel=1e-4)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (THIN, {"loss": "adafocal:n_bins=3"}),
        (THIN, {"loss": "crl", "keep": "ece"}),
        (THIN, {"loss": "cals:margin=1"}),
        (Model("resnet18", width=2, dropout=0.2, passes=2), {}),
        (Model("resnet18", width=2, members=2), {}),
    ],
    ids=["adafocal", "crl", "cals", "dropout", "ensemble"],
)
def test_interrupted_runs_end_as_others(data, tmp_path, model, options):
    recipe = Recipe(epochs=3, batch_size=16, **options)

    def interrupt(row):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(data, model, recipe, tmp_path / "one", device="cpu", after_epoch=interrupt)
    train(data, model, recipe, tmp_path / "one", device="cpu", resume=True)
    train(data, model, recipe, tmp_path / "two", device="cpu")
    with np.load(tmp_path / "one" / "logits.npz") as one, np.load(tmp_path / "two" / "logits.npz") as two:
        assert np.array_equal(one["logits_test"], two["logits_test"])
        assert np.isfinite(one["logits_test"]).all()
