"""`rhocal fit`: a file of logits and labels becomes a saved calibrator."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.answers import AnswerOptions, fit_answers
from rhocal.cli.execution import ExecutionOptions, skipped
from rhocal.cli.options import (
    Arrays,
    ClustersOption,
    FitSpecOptions,
    GroupsOption,
    Json,
    KeepDecision,
    SourceFile,
    grouped,
    print_json,
)
from rhocal.cli.report import ReportOption, check_report, origin, write
from rhocal.cli.top_k import refuse, top_k_of
from rhocal.errors import InputError, SuspiciousInputWarning, counted, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.fitting import Fits
    from rhocal.cli.top_k import TopKInput
    from rhocal.data.formats.base import StoredFile
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source


TOP_K_METHOD = "temperature"
"""The default for the k best classes: others read norms, which the k best do not determine."""


@grouped
def fit(
    path: SourceFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to write.")],
    *,
    method: Annotated[
        str | None,
        typer.Option(
            "-m",
            "--method",
            help="A method; `rhocal methods` lists them. The default is `auto`, for a profile `field`.",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("-O", "--option", help="An option of the method as NAME=VALUE; repeatable.")
    ] = None,
    keep_decision: KeepDecision = False,
    arrays: Arrays,
    spec: FitSpecOptions,
    groups: GroupsOption = None,
    clusters: ClustersOption = None,
    answers: AnswerOptions,
    report: ReportOption = None,
    execution: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Fit a calibrator on held-out logits and labels, and save it.

    The calibration split is used if the file has two splits. The file may also be a profile that `rhocal profile` wrote, for
    methods that scale the logits of each sample. For answers that are right or wrong, --features and --subjects fit a logistic
    regression on the score, columns of numbers, and an offset for each subject. A report evaluates the calibrator on the test
    split, if there is one.
    """
    from rhocal.calibrators import calibrator
    from rhocal.calibrators.decisions import with_decision_kept
    from rhocal.calibrators.fitting import fit as fit_source
    from rhocal.calibrators.registry import DEFAULT_METHOD, DEFAULT_PROFILE_METHOD
    from rhocal.data.storage.atomic import check_artifact_output
    from rhocal.data.storage.container import format_of
    from rhocal.data.streams import source_files
    from rhocal.evaluation.evaluate import UNCALIBRATED
    from rhocal.evaluation.measure import Measurement, measure_source
    from rhocal.profile.saved import FORMAT

    check_artifact_output("-o", output, [path])
    if answers.are_stated:
        _refuse_for_answers(method, option, report, groups, keep_decision=keep_decision)
        fit_answers(path, output, answers, arrays, spec.spec(), execution, clusters, as_json=as_json)
        return
    is_profile = format_of(path) == FORMAT
    if not is_profile and (top := top_k_of(path, arrays, spec, execution)) is not None:
        refuse(path, {"--report": report is not None, "--groups": groups is not None})
        _fit_top_k(top.with_clusters(clusters), method or TOP_K_METHOD, option or [], output, as_json=as_json)
        return
    method = method or (DEFAULT_PROFILE_METHOD if is_profile else DEFAULT_METHOD)
    cal = calibrator(method, **_options(option or []))
    if keep_decision:
        cal = with_decision_kept(cal)
    _check_groups(groups, cal, method)
    if is_profile:
        _refuse_for_profile(report, clusters)
        _fit_profile(cal, method, path, output, as_json=as_json)
        return
    if report is not None:
        check_report(report)
        execution.refuse({"--report": execution.streams(path, skip_bad=arrays.skip_bad)})
    cal = for_options(cal, arrays.contents(source_files(path)[0]).file, option or [])
    source = execution.open(path, arrays, spec.spec(), "calibration", groups)
    source = execution.with_clusters(source, clusters, path, arrays, spec.spec())
    with execution.cluster(), execution.progress("fitting", source) as blocks:
        fits = fit_source(cal, blocks)
    cal.save(output)
    if not source.resident:
        _show(cal, method, output, _read_counts(source, fits), {}, as_json=as_json)
        return
    data = source.predictions
    counts = {name: getattr(data, name) for name in ("n_samples", "n_classes", "n_ignored", "n_clipped")}
    counts |= skipped(source)
    values = measure_source(source, [Measurement({UNCALIBRATED: None, method: cal})]).values
    if report is not None:
        contents = arrays.contents(path)
        has_test = contents.has_splits and contents.has_labels("test")
        test_groups = None if groups is None or Path(groups).is_file() else groups
        test = execution.open(path, arrays, spec.spec(), "test", test_groups) if has_test else None
        _report(cal, method, data, test, path, report, quiet=as_json)
    _show(cal, method, output, counts, values, as_json=as_json)


def _check_groups(groups: str | None, cal: Calibrator, method: str) -> None:
    if groups is not None and not cal.takes_groups:
        raise InputError(f"--groups: {method} does not use groups; leave --groups out, or use -m multi-domain")


def _refuse_for_answers(
    method: str | None, option: list[str] | None, report: Path | None, groups: str | None, *, keep_decision: bool
) -> None:
    stated = {"-m": method, "-O": option, "--report": report, "--groups": groups, "--keep-decision": keep_decision}
    if used := [name for name, value in stated.items() if value]:
        raise InputError(
            f"{' and '.join(used)}: --features and --subjects fit a logistic regression of answers; leave out {', '.join(used)}"
        )


def _refuse_for_profile(report: Path | None, clusters: str | None) -> None:
    if report is not None:
        raise InputError("--report needs logits; a profile has none. Write it with: rhocal report OTHER -c OUTPUT")
    if clusters is not None:
        raise InputError("--clusters: a profile has no clusters; fit on the logits")


def _fit_top_k(data: TopKInput, method: str, options: list[str], output: Path, *, as_json: bool) -> None:
    """Fit on the k best classes."""
    from rhocal.calibrators import calibrator
    from rhocal.calibrators.top_k import fit_labeled_top_k

    samples = data.labeled(data.top, data.classes)
    cal = calibrator(method, **_options(options))
    fit_labeled_top_k(cal, samples)
    cal.save(output)
    counts = {"n_samples": samples.data.n_samples, "n_classes": samples.data.n_classes}
    _show(cal, method, output, counts, {}, as_json=as_json)


def for_options(cal: Calibrator, file: StoredFile, given: Sequence[str]) -> Calibrator:
    """The calibrator for a file whose columns are options of questions: no map of single columns, unless it was stated."""
    if not file.holds_options or any(text.startswith("exchangeable=") for text in given):
        return cal
    if hasattr(cal, "exchangeable"):
        cal.set_params(exchangeable=True)
    elif not cal.keeps_decision:
        warn(
            f"{cal.name} fits a map for each column, and the columns of {file.path} are options, which have no meaning of "
            "their own; use auto or a method that scales",
            SuspiciousInputWarning,
        )
    return cal


def _read_counts(source: Source, fits: Fits) -> dict[str, Any]:
    """What is known of a source that was read block by block."""
    data = fits.summary.rows if fits.source.resident else next(iter(fits.summary.profiles.values()), None)
    counts = {} if data is None else {"n_samples": data.n_samples, "n_classes": data.n_classes}
    n_bytes = {"bytes_read": source.bytes_read} if source.bytes_read else {}
    return {**counts, **n_bytes, **skipped(source)}


def _report(
    cal: Calibrator,
    method: str,
    calibration: Predictions,
    test: Source | None,
    path: Path,
    output: Path,
    *,
    quiet: bool,
) -> None:
    """Write a report on the test split; without one, on the calibration set itself, which the report states."""
    from rhocal.metrics.inference.design import SamplingDesign
    from rhocal.reporting.document import build_document

    data = calibration if test is None else test.predictions
    page = build_document(
        data,
        {method: cal},
        origin(path.stem, [path]),
        calibration=calibration,
        same_samples=test is None,
        groups=data.groups,
        design=SamplingDesign.from_weights(data.weights),
    )
    write(page, output, quiet=quiet)


def _fit_profile(cal: Calibrator, method: str, source: Path, output: Path, *, as_json: bool) -> None:
    """Fit on a saved profile."""
    from rhocal.calibrators import ScaleCalibrator
    from rhocal.profile.saved import load_profile

    if not isinstance(cal, ScaleCalibrator):
        raise InputError(
            f"{method} needs the logits; a profile is for methods that multiply the logits of a sample by a number: "
            "temperature, rho-norm, field, smart, pts"
        )
    profile = load_profile(source)
    cal.fit_profile(profile)
    cal.save(output)
    shape = {"n_samples": profile.n_samples, "n_classes": profile.n_classes}
    _show(cal, method, output, shape, {}, as_json=as_json)


def _show(
    cal: Calibrator,
    method: str,
    output: Path,
    counts: dict[str, Any],
    values: dict[Any, dict[str, float]],
    *,
    as_json: bool,
) -> None:
    """Print the fit, and the metrics of the calibration set where it is in memory."""
    from rhocal.reporting import tables
    from rhocal.reporting.model_card import shown_parameters

    if as_json:
        measured = {"calibration_set": values} if values else {}
        print_json({**_evidence(cal, method, output), **counts, **measured})
        return
    screen = tables.console()
    if line := _verdict(cal, method):
        screen.print(line)
    if line := _debiased(cal):
        screen.print(line)
    if hasattr(cal, "chosen_"):
        screen.print(f"{method} compares methods by their NLL on held-out samples, not by ECE")
    positive = {} if cal.positive_ is None else {"positive class": cal.positive_}
    summary = {"method": method, **positive, **shown_parameters(cal), "objective": cal.solution_.objective}
    screen.print(tables.pairs(summary, "fitted"))
    if values:
        title = f"on the {counted(counts['n_samples'], 'sample')} of the calibration set itself"
        screen.print(tables.metric_values({name: _without_mce(part) for name, part in values.items()}, title))
    elif "n_samples" in counts:
        screen.print(f"{counted(counts['n_samples'], 'sample')}, {counts['n_classes']:,} classes")
    screen.print(f"saved {output}; evaluate it on other data with: rhocal evaluate OTHER -c {output}")


def _without_mce(values: dict[str, float]) -> dict[str, float]:
    """Metrics without the largest gap of any bin, which a bin of one sample decides; the JSON has it."""
    return {name: value for name, value in values.items() if name != "mce"}


def _verdict(cal: Calibrator, method: str) -> str:
    """The method that was chosen, and how it compares on held-out samples."""
    held_out, chosen = cal.solution_.held_out, _chosen_method(cal, method)
    line = method
    if hasattr(cal, "chosen_"):
        line = f"{method} chose {chosen}"
    elif chosen != method:
        line = f"{method} fell back to {chosen}"
    if held_out is None:
        return line if line != method else ""
    return f"{line}: {held_out.summary}"


def _debiased(cal: Calibrator) -> str:
    """What ``debias`` did; empty without it."""
    row = next(iter(cal.solution_.trials), {})
    if "debias" not in row:
        return ""
    p_value = f"p = {row['p_value']:.3g}"
    if row["offsets"] is None:
        return f"no position bias is detected ({p_value}): positions have no offsets"
    offsets = ", ".join(f"{offset:+.3f}" for offset in row["offsets"])
    if not row["used"]:
        return f"a position bias is detected ({p_value}), but offsets do not lower the held-out NLL: they are not used"
    return (
        f"a position bias is detected ({p_value}): the scores of positions 1 to {len(row['offsets'])} get {offsets}; held-out "
        f"NLL {row['nll_above']:+.4f} ± {row['nll_error']:.4f}"
    )


def _chosen_method(cal: Calibrator, method: str) -> str:
    """The method whose map is used: the choice of ``auto``, the fallback of a guarded method, or the method itself."""
    held_out = cal.solution_.held_out
    if hasattr(cal, "chosen_"):
        return str(cal.chosen_.label)
    return held_out.fell_back_to or method if held_out is not None else method


def _choice(cal: Calibrator, method: str) -> dict[str, Any]:
    """The method whose map is used, with the scores of the fit and of temperature scaling."""
    document: dict[str, Any] = {"method": _chosen_method(cal, method)}
    if (held_out := cal.solution_.held_out) is not None:
        document |= {"n_samples": held_out.n_samples, "in_sample": held_out.in_sample}
        for key, scores in (("nll", held_out.nll), ("brier", held_out.brier)):
            document |= {key: scores[held_out.method], f"temperature_{key}": scores["temperature"]}
    return document


def _evidence(cal: Calibrator, method: str, output: Path) -> dict[str, Any]:
    """The fitted parameters, and the evidence of the fit."""
    return {
        "method": method,
        "chosen": _choice(cal, method),
        "output": str(output),
        **({} if cal.positive_ is None else {"positive": cal.positive_}),
        "parameters": _parameters(cal),
        "objective": cal.solution_.objective,
        "value": cal.solution_.value,
        "converged": cal.solution_.converged,
        "at_bound": cal.solution_.at_bound,
        "trials": list(cal.solution_.trials),
        "held_out": None if cal.solution_.held_out is None else asdict(cal.solution_.held_out),
        "keeps_decision": cal.map_.keeps_decision,
        "decisions": None if cal.solution_.decisions is None else asdict(cal.solution_.decisions),
    }


PYTHON_VALUES = {"True": True, "False": False, "None": None}


def _options(texts: list[str]) -> dict[str, Any]:
    """NAME=VALUE with VALUE read as JSON where it is JSON, else as text; True, False and None are as in Python."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"-O takes NAME=VALUE; got {text!r}")
        try:
            options[name.strip().replace("-", "_")] = (
                PYTHON_VALUES[value] if value in PYTHON_VALUES else json.loads(value)
            )
        except ValueError:
            options[name.strip().replace("-", "_")] = value
    return options


def _parameters(cal: Calibrator, prefix: str = "") -> dict[str, Any]:
    """The fitted parameters; of arrays, their shape. Those of its member calibrators are named ``child.parameter``."""
    import numpy as np

    parameters: dict[str, Any] = {}
    for name in cal.parameters:
        value = getattr(cal, name)
        text = f"array of shape {value.shape}" if isinstance(value, np.ndarray) else value
        parameters[prefix + name.rstrip("_")] = text
    for name in cal.children:
        child = getattr(cal, name)
        if isinstance(child, list):
            parameters[prefix + name.rstrip("_")] = f"{len(child)} calibrators"
        else:
            parameters |= _parameters(child, f"{prefix}{name.rstrip('_')}.")
    return parameters
