"""`rhocal fit`: a file of logits and labels becomes a saved calibrator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.options import Arrays, GroupsOption, Json, SourceFile, SpecOptions, grouped, groups_of, print_json
from rhocal.cli.report import ReportOption, origin, write
from rhocal.cli.streaming import TUNE, ExecutionOptions, fitted, opened
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.data.files import Contents
    from rhocal.data.predictions import Predictions


@grouped
def fit(
    tune: SourceFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to write.")],
    *,
    method: Annotated[str, typer.Option("-m", "--method", help="A method; `rhocal methods` lists them.")] = "rho-norm",
    option: Annotated[
        list[str] | None, typer.Option("-O", "--option", help="An option of the method as NAME=VALUE; repeatable.")
    ] = None,
    arrays: Arrays,
    spec: SpecOptions,
    groups: GroupsOption = None,
    report: ReportOption = None,
    how: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Fit a calibrator on held-out logits and labels, and save it.

    If the file has a tune and a test split, the tune split is used. The file may also be a profile that `rhocal profile`
    wrote; then the method must be one that scales the logits of each sample. A report measures on the
    test split, if there is one.
    """
    from rhocal import metrics
    from rhocal.calibrators import calibrator
    from rhocal.data.atomic import check_output
    from rhocal.data.container import format_of
    from rhocal.data.predictions import predictions
    from rhocal.profile import saved
    from rhocal.reporting import tables

    check_output(output, [tune])
    cal = calibrator(method, **_options(option or []))
    if format_of(tune) == saved.FORMAT:
        if report is not None:
            raise InputError("--report needs logits; a profile has none. Write it with: rhocal report OTHER -c OUTPUT")
        _fit_profile(cal, method, tune, output, as_json=as_json)
        return
    if how.wanted(tune):
        how.refuse(
            {"--groups": groups is not None, "--class-axis": spec.class_axis != -1, "--report": report is not None}
        )
        about = fitted(
            cal, opened(tune, arrays, TUNE, how), {"kind": spec.kind, "ignore_index": spec.ignore_index}, how
        )
        cal.save(output)
        _show(cal, method, output, about, as_json=as_json)
        return
    contents = arrays.read(tune, groups)
    split = contents.for_tuning()
    arguments = {**vars(spec), "classes": contents.classes, "groups": groups_of(groups, tune, split)}
    cal.fit(split.logits, split.labels, **arguments)
    cal.save(output)
    data = predictions(split.logits, split.labels, **arguments)
    before, after = (
        metrics.measure_all(data),
        metrics.measure_all(predictions(cal.transform(data.logits, kind="logits", groups=data.groups), data.labels)),
    )
    document = {
        **_fitted(cal, method, output),
        "n_samples": data.n_samples,
        "n_classes": data.n_classes,
        "n_ignored": data.n_ignored,
        "n_clipped": data.n_clipped,
        "tune": {"before": before, "after": after},
    }
    if report is not None:
        _report(cal, method, data, contents, arguments, report, quiet=as_json)
    if as_json:
        print_json(document)
        return
    screen = tables.console()
    screen.print(_pairs(cal, method))
    screen.print(
        tables.metric_values({"before": before, "after": after}, f"on the {data.n_samples:,} tune samples themselves")
    )
    screen.print(f"saved {output}; measure it on other data with: rhocal evaluate OTHER -c {output}")


def _report(
    cal: Calibrator,
    method: str,
    tune: Predictions,
    contents: Contents,
    spec: dict[str, Any],
    path: Path,
    *,
    quiet: bool,
) -> None:
    """On the test split; where there is none, on the tune samples themselves, which the report says."""
    from rhocal.data.predictions import predictions
    from rhocal.reporting.document import build_document

    test = contents.test if contents.test is not None and contents.test.labels is not None else None
    data = tune if test is None else predictions(test.logits, test.labels, **{**spec, "groups": test.groups})
    found = build_document(
        data,
        {method: cal},
        origin(contents.path.stem, [contents.path]),
        calibration=tune,
        same_samples=test is None,
        groups=data.groups,
    )
    write(found, path, quiet=quiet)


def _fit_profile(cal: Calibrator, method: str, source: Path, output: Path, *, as_json: bool) -> None:
    """Fit on a saved profile."""
    from rhocal.calibrators import ScaleCalibrator
    from rhocal.profile.saved import load_profile

    if not isinstance(cal, ScaleCalibrator):
        raise InputError(
            f"{method} needs the logits; a profile serves methods that multiply a sample's logits by a number: "
            "temperature, rho-norm, field, smart, pts"
        )
    profile = load_profile(source)
    cal.fit_profile(profile)
    cal.save(output)
    shape = {"n_samples": profile.n_samples, "n_classes": profile.n_classes}
    _show(cal, method, output, shape, as_json=as_json)


def _show(cal: Calibrator, method: str, output: Path, about: dict[str, Any], *, as_json: bool) -> None:
    """A fit without figures of its own."""
    from rhocal.reporting import tables

    if as_json:
        print_json({**_fitted(cal, method, output), **about})
        return
    screen = tables.console()
    screen.print(_pairs(cal, method))
    if "n_samples" in about:
        screen.print(f"{about['n_samples']:,} samples, {about['n_classes']:,} classes")
    screen.print(f"saved {output}; measure it on other data with: rhocal evaluate OTHER -c {output}")


def _fitted(cal: Calibrator, method: str, output: Path) -> dict[str, Any]:
    """The fit and its evidence."""
    return {
        "method": method,
        "output": str(output),
        "parameters": _parameters(cal),
        "objective": cal.solution_.objective,
        "value": cal.solution_.value,
        "converged": cal.solution_.converged,
        "at_bound": cal.solution_.at_bound,
        "trials": list(cal.solution_.trials),
    }


def _pairs(cal: Calibrator, method: str) -> Any:
    """The same for people."""
    from rhocal.reporting import tables

    return tables.pairs({"method": method, **_parameters(cal), "objective": cal.solution_.objective}, "fitted")


def _options(texts: list[str]) -> dict[str, Any]:
    """NAME=VALUE with VALUE read as JSON where it is JSON, else as text."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"-O takes NAME=VALUE; got {text!r}")
        try:
            options[name.strip().replace("-", "_")] = json.loads(value)
        except ValueError:
            options[name.strip().replace("-", "_")] = value
    return options


def _parameters(cal: Calibrator, prefix: str = "") -> dict[str, Any]:
    """The fitted numbers; of arrays, their shape. Those of the calibrators it is made of come as ``child.number``."""
    import numpy as np

    found: dict[str, Any] = {}
    for name in cal.parameters:
        value = getattr(cal, name)
        text = f"array of shape {value.shape}" if isinstance(value, np.ndarray) else value
        found[prefix + name.rstrip("_")] = text
    for name in cal.children:
        inside = getattr(cal, name)
        if isinstance(inside, list):
            found[prefix + name.rstrip("_")] = f"{len(inside)} calibrators"
        else:
            found |= _parameters(inside, f"{prefix}{name.rstrip('_')}.")
    return found
