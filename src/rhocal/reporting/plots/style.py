"""What all pictures share: colours that colour-blind readers tell apart, marks that grey print tells apart, and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rhocal.data.atomic import writing
from rhocal.errors import FileError, MissingExtraError

if TYPE_CHECKING:
    from os import PathLike

# Okabe and Ito's colours; their lightness differs too.
BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY = COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#555555",
)  # fmt: skip
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 5)))
MARKS = ("o", "s", "D", "^", "v", "P", "X", "*")
SIZE = (4.2, 3.4)
FORMATS = (".svg", ".pdf", ".png")
LONGEST_NAME = 40


def pyplot() -> Any:
    """Matplotlib, when the first picture is drawn."""
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing a figure") from error
    return plt


def canvas(ax: Any, size: tuple[float, float] = SIZE) -> Any:
    """The axes that were given, or new ones."""
    return pyplot().subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def canvases(axes: Any, rows: int, columns: int, size: tuple[float, float]) -> Any:
    """The axes that were given, or a new grid of them; shape (rows, columns)."""
    if axes is None:
        axes = pyplot().subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)[1]
    return axes


def style(k: int) -> dict[str, Any]:
    """Colour and line of the k-th of several curves."""
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": LINES[k % len(LINES)]}


def plain(name: object) -> str:
    """A name as it is, not as mathematics, and not longer than a picture allows."""
    text = str(name)
    text = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
    return text.replace("$", r"\$")


def quiet(ax: Any) -> Any:
    """Less ink around the data."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def unit_square(ax: Any, x: str, y: str) -> Any:
    """Both axes from 0 to 1, with the diagonal on which all is well."""
    ax.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, zorder=1)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel=x, ylabel=y, aspect="equal")
    return quiet(ax)


def save(ax: Any, path: str | PathLike[str]) -> None:
    """Write the figure of these axes as .svg, .pdf or .png: the same bytes for the same picture; then close it."""
    target = Path(path)
    if target.suffix not in FORMATS:
        raise FileError(f"{target}: cannot draw {target.suffix or 'a file without ending'}; use {', '.join(FORMATS)}")
    plt = pyplot()
    figure = getattr(ax, "flat", [ax])[0].figure  # one axes, or an array of them
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": None}
    with plt.rc_context({"svg.hashsalt": "rhocal"}), writing(target) as unfinished:
        figure.savefig(unfinished, format=target.suffix[1:], dpi=160, metadata=dates[target.suffix])
    plt.close(figure)
