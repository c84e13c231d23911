"""The official files: their names, checksums and homes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Official:
    """A set of images as its makers publish it."""

    title: str
    page: str
    files: dict[str, str]
    """Names and MD5 sums, as the makers or torchvision publish them."""

    def missing(self, root: Path) -> FileError:
        """What to fetch, and where to put it."""
        wanted = "; ".join(f"{name} (MD5 {md5})" for name, md5 in self.files.items())
        return FileError(f"no {self.title} in {root}: put there {wanted}; from {self.page}")


_CIFAR = "www.cs.toronto.edu/~kriz/cifar.html"

OFFICIAL: dict[str, Official] = {
    "cifar10": Official("CIFAR-10", _CIFAR, {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"}),
    "cifar100": Official("CIFAR-100", _CIFAR, {"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"}),
    "svhn": Official(
        "SVHN", "ufldl.stanford.edu/housenumbers",
        {
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
    ),
    "flowers102": Official(
        "Oxford 102 Flowers", "www.robots.ox.ac.uk/~vgg/data/flowers/102",
        {
            "102flowers.tgz": "52808999861908f626f3c1f4e79d11fa",
            "imagelabels.mat": "e0620be6f572b9609742df49c70aed4d",
            "setid.mat": "a5357ecc9cb78c4bef273ce3793fc85c",
        },
    ),
    "tiny-imagenet": Official(
        "Tiny-ImageNet", "cs231n.stanford.edu", {"tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"}
    ),
    "fashion-mnist": Official(
        "Fashion-MNIST", "github.com/zalandoresearch/fashion-mnist",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
}  # fmt: skip
"""By the name that ``rhocal-paper train --data`` takes."""

ALSO = {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
        "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"}  # fmt: skip
"""The other form of the same images, which is read too."""


def verify(name: str, root: Path) -> dict[str, bool]:
    """Whether each official file found in the folder has the published checksum."""
    if name not in OFFICIAL:
        raise InputError(f"data {name!r} is unknown; there are {', '.join(OFFICIAL)}")
    stem = {"cifar10": "cifar-10-", "cifar100": "cifar-100-"}.get(name)
    sums = OFFICIAL[name].files | {file: md5 for file, md5 in ALSO.items() if stem and file.startswith(stem)}
    found = {}
    for file, md5 in sums.items():
        if (root / file).is_file():
            with (root / file).open("rb") as stream:
                digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
            found[file] = digest.hexdigest() == md5
    if not found:
        raise OFFICIAL[name].missing(root)
    return found
