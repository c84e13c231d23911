"""Ink shows the values of the curve, on the axes that were given, in files that do not change."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import ROOT, synthetic
from rhocal.cli import app
from rhocal.cli.plot import KINDS
from rhocal.errors import FileError, InputError, MissingExtraError
from rhocal.reporting import curves, plots
from rhocal.reporting.plots.style import COLORS, LINES, MARKS, plain, style

plt = pytest.importorskip("matplotlib.pyplot")
plt.switch_backend("agg")
SAID = {"kind": "logits"}


@pytest.fixture(scope="module")
def data():
    logits, labels = synthetic(1500, 4, dtype=np.float32)
    return logits, labels, rhocal.RhoNormScaling(alpha="auto").fit(logits, labels)


def runs():
    rng = np.random.default_rng(0)
    return [curves.amplitudes(name, [k * rng.normal(size=(50, 3)) for k in (1, 2, 3)]) for name in ("a", "b")]


def everything(data):
    """Each drawing function with a curve for it."""
    logits, labels, cal = data
    z = cal.transform(logits)
    rows = [
        {"method": m, "n_calibration": 10, "ece": e, "nll": n}
        for m, e, n in (("a", 0.1, 2), ("b", 0.2, 1), ("c", 0.3, 3))
    ]
    hot = curves.temperature_map(cal, logits)
    return {
        "reliability": lambda ax: plots.reliability(curves.reliability(logits, labels, **SAID), ax=ax),
        "smooth": lambda ax: plots.smooth(curves.smooth_reliability(logits, labels, n_replicates=20, **SAID), ax=ax),
        "cumulative": lambda ax: plots.cumulative(curves.cumulative_gap(logits, labels, **SAID), ax=ax),
        "histogram": lambda ax: plots.histogram(curves.histogram(logits, labels, **SAID), ax=ax),
        "risk": lambda ax: plots.risk_coverage({"a": curves.risk_coverage(logits, labels, **SAID)}, ax=ax),
        "classwise": lambda ax: plots.class_heat(curves.class_heat(logits, labels, **SAID), ax=ax),
        "temperature": lambda ax: plots.temperature(hot, ax=ax),
        "margin": lambda ax: plots.temperature(hot, against="margin", ax=ax),
        "map": lambda ax: plots.confidence_map(curves.confidence_map(cal, logits), ax=ax),
        "migration": lambda ax: plots.migration(curves.migration(logits, z, **SAID), ax=ax),
        "rho": lambda ax: plots.rho_grid(curves.rho_grid(cal), ax=ax),
        "alpha": lambda ax: plots.alpha_curve(curves.alpha_curve(cal), ax=ax),
        "pareto": lambda ax: plots.pareto(curves.pareto(rows), ax=ax),
        "learning": lambda ax: plots.learning_curve(curves.learning_curve(rows), ax=ax),
        "epochs": lambda ax: plots.amplitude_over_epochs(runs(), ax=ax),
        "amplitudes": lambda ax: plots.amplitude_histogram(runs(), ax=ax),
        "confidences": lambda ax: plots.confidence_histogram(runs(), ax=ax),
    }


def test_axes_are_taken_and_returned(data):
    plt.close("all")  # other tests may have left some
    for name, draw in everything(data).items():
        figure, ax = plt.subplots()
        assert draw(ax) is ax, name
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        figure.canvas.draw()
        plt.close(figure)
    assert not plt.get_fignums()  # nothing was drawn elsewhere


def test_reliability_shows_the_values(data):
    curve = curves.reliability(*data[:2], **SAID)
    ax = plots.reliability(curve)
    bars, gaps = ax.containers[:2]
    assert [bar.get_height() for bar in bars] == pytest.approx(curve.accuracy.tolist())
    assert [bar.get_x() for bar in bars] == pytest.approx(curve.low.tolist())
    tops = [gap.get_y() + gap.get_height() for gap in gaps]
    assert tops == pytest.approx(curve.confidence.tolist())
    assert all(gap.get_hatch() for gap in gaps)  # told apart in grey
    texts = {text.get_text() for text in ax.texts}
    assert f"ECE {curve.ece:.4f}" in texts
    assert {f"{n:.0f}" for n in curve.weight} <= texts
    plt.close(ax.figure)


def test_lines_show_the_values(data):
    logits, labels, cal = data
    curve = curves.risk_coverage(logits, labels, **SAID)
    ax = plots.risk_coverage({"a": curve})
    assert ax.lines[0].get_ydata() == pytest.approx(curve.risk)
    grid = curves.rho_grid(cal)
    other = plots.rho_grid(grid)
    assert other.lines[0].get_ydata() == pytest.approx(grid.ece)
    assert other.lines[1].get_xdata() == pytest.approx([cal.rho_])  # the ring
    heat = plots.class_heat(curves.class_heat(logits, labels, **SAID))
    shown = curves.class_heat(logits, labels, **SAID).gap
    assert np.ma.filled(heat.images[0].get_array(), np.nan) == pytest.approx(shown, nan_ok=True)
    plt.close("all")


def test_grid_has_two_axes_a_method(data):
    logits, labels, _ = data
    pair = curves.histogram(logits, labels, **SAID), curves.reliability(logits, labels, **SAID)
    axes = plots.grid({"a": pair, "b": pair, "c": pair, "d": pair})
    assert axes.shape == (4, 3)
    assert axes[0, 1].get_title() == "b"
    assert not axes[2, 1].get_visible()
    plt.close("all")


def test_readable_without_colour():
    assert len(set(map(str, LINES))) == len(set(MARKS)) == len(set(COLORS)) == 8
    assert all(style(k)["linestyle"] != style(k + 1)["linestyle"] for k in range(16))


@pytest.mark.parametrize("name", ["$x^{", "\\frac", "<b>x</b>", "y" * 200, "עברית"])
def test_names_are_not_mathematics(data, name):
    ax = plots.risk_coverage({name: curves.risk_coverage(*data[:2], **SAID)})
    ax.figure.canvas.draw()
    assert len(plain(name)) <= 42
    plt.close(ax.figure)


def test_files_are_the_same_each_time(data, tmp_path):
    plt.close("all")  # what other tests of this process left open is not counted
    for ending, begin in ((".svg", b"<?xml"), (".pdf", b"%PDF"), (".png", b"\x89PNG")):
        paths = [tmp_path / f"{k}{ending}" for k in "ab"]
        for path in paths:
            plots.save(plots.rho_grid(curves.rho_grid(data[2])), path)
        assert paths[0].read_bytes() == paths[1].read_bytes()
        assert paths[0].read_bytes().startswith(begin)
    with pytest.raises(FileError, match=r"use .svg, .pdf, .png"):
        plots.save(plots.rho_grid(curves.rho_grid(data[2])), tmp_path / "x.gif")
    assert len(plt.get_fignums()) <= 1
    plt.close("all")


def test_bad_requests(data):
    with pytest.raises(InputError, match="against is one of"):
        plots.temperature(curves.temperature_map(data[2], data[0]), against="depth")


def test_missing_extra_is_said(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"rhocal\[plots\]"):
        plots.rho_grid(curves.rho_grid(data[2]))


# The command line ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("plots")
    logits, labels, cal = data
    np.savez(folder / "logits.npz", logits=logits, labels=labels, classes=np.array(["a", "b", "c", "d"]))
    np.savez(folder / "binary.npz", logits=logits[:, :2], labels=labels % 2)
    np.savez(folder / "runs.npz", plain=np.random.default_rng(0).normal(size=(3, 20, 4)))
    cal.save(folder / "cal.safetensors")
    rows = ["method,network,n_calibration,ece,nll", "a,x,10,.1,2", "b,x,10,.2,1"]
    (folder / "rows.csv").write_text("\n".join(rows), encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_from_a_file(kind, folder):
    source = {
        "rho-grid": "cal.safetensors", "alpha": "cal.safetensors", "pareto": "rows.csv", "learning-curve": "rows.csv",
        "amplitude": "runs.npz", "positive": "binary.npz", "decision": "binary.npz",
    }.get(kind, "logits.npz")  # fmt: skip
    out = folder / f"{kind}.svg"
    chosen = ["-c", folder / "cal.safetensors"] if source == "logits.npz" else []
    done = CliRunner().invoke(app, list(map(str, ["plot", kind, folder / source, *chosen, "-o", out])))
    assert done.exit_code == 0, done.exception
    assert out.read_text(encoding="utf-8").startswith("<?xml")


def test_weights_are_drawn(folder, monkeypatch):
    """Every diagram of a file with weights is that of the weighted samples."""
    logits, labels = synthetic(300, 2)
    np.savez(folder / "w.npz", logits=logits, labels=labels, w=(np.arange(300) < 100).astype(float))
    seen = {}
    for name in ("reliability", "smooth_reliability", "histogram", "risk_coverage", "class_heat", "cumulative_gap"):
        original = getattr(curves, name)

        def keep(probs, labels, *, name=name, original=original, **spec):
            seen[name] = float(np.sum(spec["sample_weight"]))
            return original(probs, labels, **spec)

        monkeypatch.setattr(curves, name, keep)
    for kind in ("reliability", "smooth", "histogram", "risk-coverage", "classwise", "cumulative"):
        arguments = ["plot", kind, str(folder / "w.npz"), "--weights", "w", "-o", str(folder / "w.svg")]
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert set(seen.values()) == {100.0}
    assert len(seen) == 6


def test_plot_refuses(folder):
    def problem(*arguments):
        done = CliRunner().invoke(app, ["plot", *map(str, arguments), "-o", str(folder / "x.svg")])
        return str(done.exception)

    assert "there is no figure 'pie'" in problem("pie", folder / "logits.npz")
    assert "give it with -c" in problem("temperature", folder / "logits.npz")
    assert "rhocal compare -o rows.csv" in problem("pareto", folder / "logits.npz")
    assert "(epochs, samples, classes)" in problem("amplitude", folder / "rows.csv")


def test_the_gallery_is_complete():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(gallery/([a-z-]+)\.svg\)", text))
    assert shown == {path.stem for path in (ROOT / "docs" / "gallery").glob("*.svg")}
    assert set(re.findall(r"^rhocal plot ([a-z-]+) ", text, re.MULTILINE)) == set(KINDS)
    for path in Path(ROOT / "docs" / "gallery").glob("*.svg"):
        assert path.stat().st_size < 300_000
