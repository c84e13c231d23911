"""Small pictures and archives for the tests of image readers."""

import io
import tarfile

import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)


def noise(*shape):
    return RNG.integers(0, 256, shape, np.uint8)


def tar(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def picture(pixels, kind="PNG"):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def everything(data):
    """All training images again, tune and train together, by their bytes."""
    pixels = np.concatenate([data.train.pixels, data.tune.pixels])
    labels = np.concatenate([data.train.labels, data.tune.labels])
    return {image.tobytes(): int(label) for image, label in zip(pixels, labels, strict=True)}


def same(data, images, labels):
    return everything(data) == {image.tobytes(): int(label) for image, label in zip(images, labels, strict=True)}
