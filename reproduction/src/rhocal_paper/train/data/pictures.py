"""Picture files (JPEG, PNG) become pixels of one size."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import FileError, InputError, MissingExtraError

if TYPE_CHECKING:
    from pathlib import Path

    from rhocal_paper.train.data.dataset import Pixels

ENDINGS = (".jpg", ".jpeg", ".png", ".JPEG", ".JPG", ".PNG")


def is_picture(name: str) -> bool:
    """By its ending; what macOS leaves in archives (``._x.jpg``) is none."""
    return name.endswith(ENDINGS) and not name.rpartition("/")[2].startswith(".")


def decode(data: bytes, where: str, size: int | None = None) -> Pixels:
    """Pixels (height, width, 3). With ``size``, the shorter side is scaled to it and the middle cut out."""
    try:
        from PIL import Image  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("pillow", "train", "reading pictures") from error
    try:
        picture = Image.open(io.BytesIO(data)).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise FileError(f"{where}: not a readable picture: {error}") from error
    if size is not None and picture.size != (size, size):
        width, height = picture.size
        scale = size / min(width, height)
        picture = picture.resize(
            (max(size, round(width * scale)), max(size, round(height * scale))), Image.Resampling.BILINEAR
        )
        left, top = (picture.width - size) // 2, (picture.height - size) // 2
        picture = picture.crop((left, top, left + size, top + size))
    return np.asarray(picture)


class Decoder:
    """Decodes the pictures of one source, which must agree in size: the first that does not stops the reading."""

    def __init__(self, path: Path, size: int | None) -> None:
        self.path, self.size = path, size
        self.shape: tuple[int, ...] | None = None

    def __call__(self, name: str, data: bytes) -> Pixels:
        pixels = decode(data, f"{self.path}, {name}", self.size)
        if self.shape is None:
            self.shape = pixels.shape
        if pixels.shape != self.shape:
            (h, w), (first_h, first_w) = pixels.shape[:2], self.shape[:2]
            raise InputError(
                f"{self.path}: {name} is {h}×{w} pixels, others are {first_h}×{first_w}; give one size with --size (size=)"
            )
        return pixels
