"""The networks of the paper: parameter counts against the published ones, shapes, and what is refused."""

import pytest
import torch

from rhocal.errors import InputError
from rhocal_paper.train import NETWORKS, n_parameters, network

# 224 px, 1,000 classes: `num_params` in the documentation of torchvision's weights (ResNet*_Weights, VGG16_BN_Weights).
# CIFAR form, 10 classes: github.com/kuangliu/pytorch-cifar, the form that most calibration papers train.
PUBLISHED = {
    ("resnet18", "imagenet", 1000): 11_689_512,
    ("resnet34", "imagenet", 1000): 21_797_672,
    ("resnet50", "imagenet", 1000): 25_557_032,
    ("vgg16", "imagenet", 1000): 138_365_992,
    ("resnet18", "cifar", 10): 11_173_962,
    ("resnet34", "cifar", 10): 21_282_122,
    ("resnet50", "cifar", 10): 23_520_842,
    ("vgg16", "cifar", 10): 14_728_266,
}


@pytest.mark.parametrize(("which", "count"), PUBLISHED.items(), ids=str)
def test_parameters_as_published(which, count):
    name, form, n_classes = which
    with torch.device("meta"):  # shapes without memory: VGG-16 alone is half a gigabyte
        assert n_parameters(network(name, n_classes, form=form)) == count


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("form", "side", "channels"), [("cifar", 32, 3), ("cifar", 64, 1), ("imagenet", 224, 3)])
def test_thin_networks_give_logits(name, form, side, channels):
    torch.manual_seed(0)
    model = network(name, 7, width=2, form=form, channels=channels).eval()
    with torch.inference_mode():
        out = model(torch.randn(2, channels, side, side))
    assert out.shape == (2, 7)
    assert torch.isfinite(out).all()


def test_the_cifar_form_sees_all_pixels_and_halves_three_times():
    """Its last stage looks at an eighth of the side; the 224-px form at a thirty-second."""
    for form, factor in (("cifar", 8), ("imagenet", 32)):
        model = network("resnet18", 10, width=2, form=form)
        with torch.inference_mode():
            assert model[:-3](torch.randn(1, 3, 64, 64)).shape[2:] == (64 // factor, 64 // factor)


def test_the_seed_makes_the_weights():
    def first(seed):
        torch.manual_seed(seed)
        return next(network("resnet18", 10, width=2).parameters())

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "resnet19", "n_classes": 10}, "resnet19.*there are resnet18"),
        ({"name": "resnet18", "n_classes": 10, "form": "224"}, "cifar or imagenet"),
        ({"name": "resnet18", "n_classes": 1}, "n_classes must be at least 2"),
        ({"name": "vgg16", "n_classes": 10, "width": 0}, "width must be at least 1"),
    ],
)
def test_refused(arguments, says):
    with pytest.raises(InputError, match=says):
        network(**arguments)
