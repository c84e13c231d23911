"""Losses of training, each against its formula by hand (plain Python, one sample at a time)."""

import math

import pytest
import torch

import rhocal
from rhocal.errors import InputError
from rhocal_paper.train import LOSSES, Recipe, loss
from rhocal_paper.train.losses import mixed

Z = [[2.0, 1.0, -1.0], [0.5, 0.0, 3.0], [1.0, 1.5, 0.0], [4.0, -2.0, 0.0]]
Y = [0, 1, 1, 0]


def softmax(z):
    total = sum(math.exp(v) for v in z)
    return [math.exp(v) / total for v in z]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


P = [softmax(z) for z in Z]


def by_hand_cross_entropy():
    return mean(-math.log(p[y]) for p, y in zip(P, Y, strict=True))


def by_hand_label_smoothing(eps=0.05):
    return mean(
        -sum(((1 - eps) * (k == y) + eps / 3) * math.log(p[k]) for k in range(3)) for p, y in zip(P, Y, strict=True)
    )


def by_hand_focal(gamma=3):
    return mean(-((1 - p[y]) ** gamma) * math.log(p[y]) for p, y in zip(P, Y, strict=True))


def by_hand_flsd53():
    return mean(-((1 - p[y]) ** (5 if p[y] < 0.2 else 3)) * math.log(p[y]) for p, y in zip(P, Y, strict=True))


def by_hand_dual_focal(gamma=5):
    return mean(
        -((1 - p[y] + max([v for v in p if v < p[y]], default=0)) ** gamma) * math.log(p[y])
        for p, y in zip(P, Y, strict=True)
    )


def by_hand_mmce(weight=2, width=0.4):
    c = [max(p) for p in P]
    d = [(p.index(max(p)) == y) - max(p) for p, y in zip(P, Y, strict=True)]
    square = sum(d[i] * d[j] * math.exp(-abs(c[i] - c[j]) / width) for i in range(4) for j in range(4))
    return by_hand_cross_entropy() + weight * math.sqrt(square) / 4


def by_hand_logit_norm(tau=0.04):
    def one(z, y):
        norm = math.sqrt(sum(v * v for v in z))
        return -math.log(softmax([v / (tau * norm) for v in z])[y])

    return mean(one(z, y) for z, y in zip(Z, Y, strict=True))


def by_hand_margin_smoothing(margin=10, weight=0.1):
    return by_hand_cross_entropy() + weight * mean(max(0, max(z) - v - margin) for z in Z for v in z)


CASES = [
    ("cross-entropy", by_hand_cross_entropy()),
    ("label-smoothing", by_hand_label_smoothing()),
    ("label-smoothing:smoothing=0.3", by_hand_label_smoothing(0.3)),
    ("focal", by_hand_focal()),
    ("focal:gamma=1", by_hand_focal(1)),
    ("flsd53", by_hand_flsd53()),
    ("dual-focal", by_hand_dual_focal()),
    ("dual-focal:gamma=2", by_hand_dual_focal(2)),
    ("mmce", by_hand_mmce()),
    ("mmce:weight=1,width=0.2", by_hand_mmce(1, 0.2)),
    ("logit-norm", by_hand_logit_norm()),
    ("logit-norm:temperature=1", by_hand_logit_norm(1)),
    ("margin-smoothing", by_hand_cross_entropy()),  # no logit is 10 below the largest
    ("margin-smoothing:margin=2,weight=0.5", by_hand_margin_smoothing(2, 0.5)),
]


@pytest.mark.parametrize(("text", "value"), CASES)
def test_by_hand(text, value):
    logits = torch.tensor(Z, dtype=torch.float64)
    assert loss(text)(logits, torch.tensor(Y)).item() == pytest.approx(value, rel=1e-6)


def test_every_loss_has_a_value_by_hand():
    assert {text.partition(":")[0] for text, _ in CASES} == set(LOSSES)


def test_the_cases_reach_both_sides():
    """FLSD-53 changes its exponent in them, and dual focal meets a label without a class below."""
    assert any(p[y] < 0.2 for p, y in zip(P, Y, strict=True))
    assert any(p[y] >= 0.2 for p, y in zip(P, Y, strict=True))
    assert any(p[y] == min(p) for p, y in zip(P, Y, strict=True))


def test_mmce_is_the_metric_of_the_core():
    logits, labels = torch.tensor(Z, dtype=torch.float64), torch.tensor(Y)
    term = (loss("mmce:weight=1")(logits, labels) - loss("cross-entropy")(logits, labels)).item()
    assert term == pytest.approx(rhocal.metrics.mmce(Z, Y, kind="logits"), rel=1e-9)


@pytest.mark.parametrize("text", LOSSES)
def test_slopes(text):
    """Finite differences, by torch's own check; and finite where a network is sure of every sample."""
    logits = torch.tensor(Z, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor(Y)
    assert torch.autograd.gradcheck(lambda z: loss(text)(z, labels), (logits,))
    sure = (1000 * torch.nn.functional.one_hot(labels, 3)).float().requires_grad_()
    loss(text)(sure, labels).backward()
    assert torch.isfinite(sure.grad).all()


def test_mixup_blends_the_losses_of_both_labels():
    logits, labels = torch.tensor(Z, dtype=torch.float64), torch.tensor(Y)
    partners = torch.tensor([1, 0, 2, 2])
    by_hand = 0.3 * by_hand_cross_entropy() + 0.7 * mean(
        -math.log(p[y]) for p, y in zip(P, partners.tolist(), strict=True)
    )
    assert mixed(loss("cross-entropy"), logits, labels, partners, 0.3).item() == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hinge", "there are cross-entropy"),
        ("focal:beta=1", "no option 'beta'; it has gamma"),
        ("focal:gamma=high", "must be a number"),
        ("flsd53:gamma=1", "it has none"),
    ],
)
def test_refused(text, says):
    with pytest.raises(InputError, match=says):
        Recipe(loss=text)
