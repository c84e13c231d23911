"""Style and files of all plots: colors that are distinct for color-blind readers, markers that are distinct in gray."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rhocal.data.storage.atomic import writing
from rhocal.errors import FileError, MissingExtraError

if TYPE_CHECKING:
    from os import PathLike

# Okabe and Ito's colors; their lightness differs too.
BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GRAY = COLORS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#555555",
)  # fmt: skip
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 5)))
MARKS = ("o", "s", "D", "^", "v", "P", "X", "*")
SIZE = (4.2, 3.4)
FORMATS = (".svg", ".pdf", ".png")
MAX_NAME_CHARACTERS = 40


def pyplot() -> Any:
    """Matplotlib, imported when the first plot is drawn."""
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing a plot") from error
    return plt


def new_axes(ax: Any, size: tuple[float, float] = SIZE) -> Any:
    """``ax``, or new axes if it is None."""
    return pyplot().subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def new_axes_grid(axes: Any, rows: int, columns: int, size: tuple[float, float]) -> Any:
    """``axes``, or a new grid of shape (rows, columns) if it is None."""
    if axes is None:
        axes = pyplot().subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)[1]
    return axes


def style(k: int) -> dict[str, Any]:
    """Color and line of the k-th of several curves."""
    return {"color": COLORS[k % len(COLORS)], "linestyle": LINES[k % len(LINES)]}


def plain(name: object) -> str:
    """A name as plain text, without mathematics, shortened to fit a plot."""
    text = str(name)
    text = text if len(text) <= MAX_NAME_CHARACTERS else f"{text[: MAX_NAME_CHARACTERS - 1]}…"
    return text.replace("$", r"\$")


def without_frame(ax: Any) -> Any:
    """The axes without their top and right border."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def unit_square(ax: Any, x: str, y: str) -> Any:
    """Both axes from 0 to 1, with the diagonal of perfect calibration."""
    ax.plot([0, 1], [0, 1], color=GRAY, linestyle="--", linewidth=1, zorder=1)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel=x, ylabel=y, aspect="equal")
    return without_frame(ax)


def save(ax: Any, path: str | PathLike[str]) -> None:
    """Write the figure of these axes as .svg, .pdf or .png: the same bytes for the same plot; then close it."""
    target = Path(path)
    if target.suffix not in FORMATS:
        raise FileError(f"{target}: cannot write {target.suffix or 'a file without ending'}; use {', '.join(FORMATS)}")
    plt = pyplot()
    figure = getattr(ax, "flat", [ax])[0].figure  # one axes, or an array of them
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": None}
    with plt.rc_context({"svg.hashsalt": "rhocal"}), writing(target) as temporary:
        figure.savefig(temporary, format=target.suffix[1:], dpi=160, metadata=dates[target.suffix])
    plt.close(figure)
