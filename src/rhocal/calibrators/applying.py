"""A calibrator over a stream, into a file: block by block, and from where it stopped if it was interrupted.

Blocks go into a file beside the target (``.NAME.part``), and after each a small journal says how many rows are there. The
target's name is given at the end, when everything is written.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.atomic import check_output, writing
from rhocal.data.predictions import predictions
from rhocal.errors import FileError, InputError
from rhocal.numerics.special import row_max

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.calibrators import Calibrator
    from rhocal.data.stored import Chunk, Piece
    from rhocal.data.streams import Stream

TYPES = {"float32": "F32", "float64": "F64", "int64": "I64", "int32": "I32", "bool": "BOOL", "uint8": "U8"}
FORMATS = (".npy", ".safetensors")


@dataclass(frozen=True)
class Layout:
    """Where each array of the output begins, and what stands before them."""

    header: bytes
    offsets: dict[str, int]
    dtypes: dict[str, np.dtype[Any]]
    widths: dict[str, int]
    size: int

    @classmethod
    def of(cls, suffix: str, n_rows: int, arrays: dict[str, tuple[np.dtype[Any], int]]) -> Layout:
        """For arrays of ``n_rows`` rows with these types and widths (0: one number a row)."""
        if suffix == ".npy":
            arrays = dict([next(iter(arrays.items()))])
        shapes = {name: (n_rows, width) if width else (n_rows,) for name, (_, width) in arrays.items()}
        ends, at = {}, 0
        for name, (dtype, width) in arrays.items():
            ends[name] = (at, at + n_rows * max(width, 1) * dtype.itemsize)
            at = ends[name][1]
        if suffix == ".npy":
            ((name, (dtype, _)),) = arrays.items()
            header = _npy_header(dtype, shapes[name])
        else:
            about = {
                name: {"dtype": TYPES[dtype.name], "shape": shapes[name], "data_offsets": ends[name]}
                for name, (dtype, _) in arrays.items()
            }
            text = json.dumps(about).encode()
            text += b" " * (-len(text) % 8)
            header = struct.pack("<Q", len(text)) + text
        return cls(
            header,
            {name: len(header) + start for name, (start, _) in ends.items()},
            {name: dtype for name, (dtype, _) in arrays.items()},
            {name: max(width, 1) for name, (_, width) in arrays.items()},
            len(header) + at,
        )


def apply(
    calibrator: Calibrator,
    stream: Stream,
    output: Path,
    *,
    what: str = "probs",
    kind: Any = None,
    step: Callable[[Chunk], None] | None = None,
    restart: bool = False,
) -> dict[str, Any]:
    """Write calibrated probabilities (or logits) of a stream; what was done, in numbers.

    Interrupted, even by a kill, it goes on from the last whole block when it is called again with the same arguments. With
    others it refuses, unless ``restart`` says that what is there may go.
    """
    if output.suffix not in FORMATS:
        raise FileError(f"{output}: block by block only {' and '.join(FORMATS)} can be written")
    if stream.pieces is None or stream.n_rows is None:
        raise InputError("an iterator does not say how many rows will come; apply to a file")
    if not output.parent.is_dir():
        raise FileError(f"cannot write {output}: the folder {output.parent} does not exist")
    if stream.skip_bad:
        raise InputError("skip_bad would shift the rows of the output; mend the file, or leave it out")
    check_output(output, {path for piece in stream.pieces if (path := _file_of(piece)) is not None})
    part, journal = (output.with_name(f".{output.name}.{ending}") for ending in ("part", "journal"))
    mark = _fingerprint(calibrator, stream, what, kind)
    if restart:
        journal.unlink(missing_ok=True)
    done = _rows_done(journal, part, mark)
    layout: Layout | None = None
    if not stream.n_rows:
        raise InputError("the stream has no samples to apply it to")
    starts = np.r_[0, np.cumsum([piece.n_rows for piece in stream.pieces])]
    first = int(np.searchsorted(starts, done))
    for k, chunk in stream.chunks(range(first, len(stream.pieces))):
        arrays = calibrated(calibrator, chunk, what, kind)
        if layout is None:
            types = {name: (array.dtype, array.shape[1] if array.ndim > 1 else 0) for name, array in arrays.items()}
            layout = Layout.of(output.suffix, stream.n_rows, types)
            _prepare(part, layout, fresh=done == 0)
        _write(part, layout, int(starts[k]), arrays, chunk)
        with writing(journal) as unfinished:
            unfinished.write_text(json.dumps({"mark": mark, "rows": int(starts[k + 1])}), encoding="utf-8")
        if step is not None:
            step(chunk)
    part.replace(output)
    journal.unlink(missing_ok=True)
    return {"rows": stream.n_rows, "resumed_at": done, "blocks": len(stream.pieces) - first}


def calibrated(calibrator: Calibrator, chunk: Chunk, what: str, kind: Any) -> dict[str, Any]:
    """The arrays of one block."""
    data = predictions(chunk.logits, kind=kind or calibrator.kind_)
    if data.n_classes != len(calibrator.classes_):
        raise InputError(
            f"{chunk.where}: {data.n_classes} classes, but the calibrator was fitted with {len(calibrator.classes_)}"
        )
    probs = calibrator.probs_checked(data.logits)
    column = calibrator.predicted_checked(data.logits)
    named = calibrator.classes_.dtype.kind in "iu"
    arrays = {
        what: probs if what == "probs" else calibrator.transform_checked(data.logits),
        "predicted" if named else "predicted_column": calibrator.classes_[column].astype(np.int64) if named else column,
        "confidence": row_max(probs),
    }
    if chunk.labels is not None and chunk.labels.dtype.kind in "iu":
        arrays["labels"] = chunk.labels.astype(np.int64)
    return arrays


def _fingerprint(calibrator: Calibrator, stream: Stream, what: str, kind: Any) -> str:
    """Changes with the calibrator, the input, the cuts of its blocks and what is asked for."""
    assert stream.pieces is not None
    seen = hashlib.sha256()
    seen.update(json.dumps([_described(calibrator), what, kind]).encode())
    for piece in stream.pieces:
        seen.update(f"{piece.location}|{piece.n_rows}".encode())
        path = _file_of(piece)
        if path is not None:
            about = path.stat()
            seen.update(f"|{about.st_size}|{about.st_mtime_ns}".encode())
    return seen.hexdigest()


def _described(calibrator: Calibrator) -> list[Any]:
    numbers = {name: np.asarray(getattr(calibrator, name)).tolist() for name in calibrator.parameters}
    inside = []
    for name in calibrator.children:
        child = getattr(calibrator, name)
        inside += [_described(one) for one in (child if isinstance(child, list) else [child])]
    return [calibrator.name, str(calibrator.get_params()), numbers, calibrator.classes_.tolist(), inside]


def _file_of(piece: Piece) -> Path | None:
    path = Path(str(getattr(piece, "path", getattr(piece, "file", ""))))
    return path if path.is_file() else None


def _rows_done(journal: Path, part: Path, mark: str) -> int:
    """Rows that an interrupted run of the same work left."""
    if not journal.is_file() or not part.is_file():
        return 0
    try:
        spec = json.loads(journal.read_text(encoding="utf-8"))
        same, rows = spec["mark"] == mark, int(spec["rows"])
    except (OSError, ValueError, KeyError, TypeError):
        same, rows = False, 0
    if not same:
        raise FileError(
            f"{part}: left by an interrupted run with another calibrator, another input or other options. Repeat that "
            "command to complete it",
            argument="restart",
            remedy="discard it",
        )
    return rows


def _prepare(part: Path, layout: Layout, *, fresh: bool) -> None:
    """An empty file of the right size, with the header; a full disk is noticed now, not after hours."""
    if not fresh and part.stat().st_size == layout.size:
        return
    try:
        with part.open("wb") as file:
            file.write(layout.header)
            file.truncate(layout.size)
            file.flush()
            _reserve(file.fileno(), layout.size)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FileError(f"cannot write {part}: {error.strerror} ({layout.size / 1e6:,.1f} MB are needed)") from error


def _reserve(file: int, n_bytes: int) -> None:
    try:
        os.posix_fallocate(file, 0, n_bytes)
    except AttributeError:  # not on this system
        return
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:  # not on this kind of disk
            raise


def _write(part: Path, layout: Layout, row: int, arrays: dict[str, Any], chunk: Chunk) -> None:
    try:
        with part.open("rb+") as file:
            for name, offset in layout.offsets.items():
                if name not in arrays or arrays[name].dtype != layout.dtypes[name]:
                    raise FileError(f"{chunk.where}: its {name} differ in type from those of the first block")
                file.seek(offset + row * layout.widths[name] * layout.dtypes[name].itemsize)
                file.write(np.ascontiguousarray(arrays[name]).data)
            file.flush()
            os.fsync(file.fileno())  # the journal must never be ahead of the rows, whatever is pulled out
    except OSError as error:
        raise FileError(f"cannot write {part}: {error.strerror}") from error


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The beginning of a .npy file (format 1.0), a multiple of 64 bytes long."""
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1")
