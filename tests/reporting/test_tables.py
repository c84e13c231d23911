"""Tables of the terminal: no number and no name is cut, however narrow the terminal."""

import io

import numpy as np
import pytest
from rich.console import Console

import rhocal
from helpers import synthetic
from rhocal.calibrators import CALIBRATORS
from rhocal.cli.methods import methods_
from rhocal.cli.metrics import metrics_
from rhocal.evaluation.evaluation import estimate_text
from rhocal.metrics import METRICS
from rhocal.reporting import tables
from rhocal.reporting.fitted_table import FittedTable

WIDTHS = (80, 120)


def printed(table, width):
    """The lines of a table in a terminal of that width; none is longer, and nothing is shortened."""
    screen = Console(width=width, file=io.StringIO(), highlight=False)
    screen.print(table)
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    return lines


def cells_of(lines):
    """The cells of rows, in sets of texts."""
    return {cell.strip() for line in lines for cell in line.replace("┃", "│").split("│")}


def line_of(method, *, sd=0.0):
    values = dict.fromkeys(tables.COMPARED, 0.1234)
    return {"method": method, **values, "seconds": 12.345, "ece_sd": sd, "nll_sd": sd}


@pytest.mark.parametrize("sd", [0.0, 0.0012])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_comparison_has_whole_numbers_and_names(width, sd):
    lines = printed(tables.comparison([line_of(name, sd=sd) for name in CALIBRATORS], "a title"), width)
    cells = cells_of(lines)
    assert set(CALIBRATORS) <= cells
    assert {"0.1234", "0.1234 ±0.0012" if sd else "0.1234"} <= cells
    left_out = [line for line in lines if line.startswith("left out to fit")]
    if width == 80:
        assert "fit s, AdaECE ↓, floor" in left_out[0]
        assert "--json" in "".join(lines[lines.index(left_out[0]) :])
    else:
        assert not left_out
        assert "12.35" in cells or "12.34" in cells


@pytest.mark.parametrize("width", WIDTHS)
def test_an_evaluation_has_whole_numbers(width):
    evaluation = rhocal.evaluate(*synthetic(), kind="logits")
    cells = cells_of(printed(tables.evaluation(evaluation, "the model"), width))
    for value in evaluation.values:
        assert {f"{value.value:.4f}", f"{value.low:.4f} – {value.high:.4f}"} & cells
    assert "if calibrated" in cells


def test_the_interval_of_a_class_stays_on_its_line():
    logits, labels = synthetic(1000, 3)
    evaluation = rhocal.evaluate(logits, np.array(["airplane", "bird", "cat"])[labels], kind="logits")
    lines = printed(tables.classes(evaluation, "the classes"), 80)
    for figures in evaluation.classes:
        assert any(figures.name in line and estimate_text(figures.observed_expected, 2) in line for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("command", "names"), [(methods_, CALIBRATORS), (metrics_, METRICS)], ids=["methods", "metrics"]
)
def test_names_that_are_typed_are_whole(monkeypatch, command, names, width):
    screen = Console(width=width, file=io.StringIO(), highlight=False)
    monkeypatch.setattr(tables, "console", lambda: screen)
    command()
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert set(names) <= cells_of(lines)
    assert "…" not in "".join(lines)


def test_a_name_wider_than_the_terminal_is_broken_and_not_cut():
    name = "a-name-of-a-class-" * 6
    lines = printed(FittedTable(("class", "samples"), [(name, "12,345")]), 40)
    assert "12,345" in cells_of(lines)
    assert name in "".join(line.split("│")[1].strip() for line in lines if "│" in line)


def test_a_title_is_a_line_above_a_narrow_table():
    title = "on the 5,000 samples of the calibration set itself"
    assert printed(tables.metric_values({"before": {"ece": 0.1}}, title), 80)[0] == title
