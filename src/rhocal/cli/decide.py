"""`rhocal decide`: a threshold whose risk is certified, saved with the calibrator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.answers import load_for
from rhocal.cli.decide_options import CostOptions, PromiseOptions, SetOptions
from rhocal.cli.execution import ExecutionOptions, clusters_of, skipped
from rhocal.cli.options import Arrays, ClustersOption, Json, KeepDecision, SourceFile, SpecOptions, grouped, print_json
from rhocal.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.data.files import Split
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source
    from rhocal.data.spec import InputSpec
    from rhocal.evaluation.costs import CostDecision
    from rhocal.evaluation.decision import Decision
    from rhocal.evaluation.sets import SetQuestion


@grouped
def decide(
    path: SourceFile,
    *,
    artifact: Annotated[
        Path | None,
        typer.Option("-c", "--calibrator", help="A calibrator that was fitted on other samples.", show_default=False),
    ] = None,
    method: Annotated[
        str, typer.Option("-m", "--method", help="The method that is fitted where no calibrator is given.")
    ] = "auto",
    keep_decision: KeepDecision = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Save the calibrator with its policy: a .safetensors file.", show_default=False
        ),
    ] = None,
    promise: PromiseOptions,
    costs: CostOptions,
    sets: SetOptions,
    clusters: ClustersOption = None,
    arrays: Arrays,
    spec: SpecOptions,
    execution: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Find the threshold that automates the most samples at a risk that is certified.

    `rhocal decide cal.npz --max-error 0.02` prints the threshold above which at most 2 % of decisions are wrong, with 95 %
    confidence, and the share of samples above it. The samples that certify must not have fitted the calibrator: with -c all
    of the file (or its test split) certifies; a file with two splits is fitted on the calibration split; another file is cut
    into two halves by content. Samples are assumed to be independent draws from what the policy is used on; of samples that
    depend on each other (--clusters, or a log whose questions occur more than once) one of each cluster certifies. Exit
    code 1: the promise cannot be certified, and nothing is written. With a model of answers (`rhocal fit --features`) the
    threshold is one of the probability that an answer is right.

    With costs (`--cost-fp 5 --cost-fn 50 --cost-review 1`, or `--costs table.csv`) the decision of least expected cost is
    taken, and what it saves against the most probable class, and what calibrating is worth, are measured with intervals.

    With `--coverage 0.9` prediction sets are found: the classes that a sample may have, so that 90 % of sets hold the class
    of their sample. A set of a single class is automated.
    """
    from rhocal.data.storage.atomic import check_artifact_output
    from rhocal.evaluation.decide import decide_source

    set_question = sets.question(promise.otherwise)
    _refuse_both(promise, costs, set_question)
    question = None if costs.are_given or set_question is not None else promise.question(spec.positive)
    if output is not None:
        check_artifact_output("-o", output, [path] if artifact is None else [path, artifact])
        refuse_saving(artifact)
    cal, certifying, reference, origin = held_out(
        path,
        artifact,
        method,
        arrays,
        spec,
        execution,
        keep=keep_decision,
        segments=promise.segments,
        clusters=clusters,
    )
    if set_question is not None:
        _decide_sets(cal, certifying, set_question, execution, origin, output, as_json=as_json)
        return
    if costs.are_given and costs.max_cost is None:
        least = _least_cost(cal, certifying, costs, promise.otherwise, spec.positive, execution)
        cal.policy_ = least.policy
        if output is not None:
            cal.save(output)
        origin = origin.replace("which must", "whose samples must")
        _show_costs(least, cal, origin, output, costs.positive(cal, spec.positive), as_json=as_json)
        return
    question = question or promise.question(spec.positive, costs.table(cal, spec.positive), costs.max_cost)
    with execution.cluster(), execution.progress("certifying", certifying) as blocks:
        decision = decide_source(cal, blocks, question, reference)
    left_out, positive = skipped(certifying), costs.positive(cal, spec.positive)
    cal.policy_ = decision.policy
    if output is not None and decision.is_feasible:
        cal.save(output)
    if as_json:
        saved = {"output": str(output)} if output is not None and decision.is_feasible else {}
        print_json({"method": cal.label, "certified_on": origin, **decision.to_dict(), **positive, **saved, **left_out})
    else:
        _show(decision, cal, origin, output, positive)
    raise typer.Exit(int(not decision.is_feasible))


def refuse_saving(artifact: Path | None) -> None:
    """Raise an error for a model of answers, whose file holds no policy."""
    from rhocal.calibrators.correctness.file import FORMAT
    from rhocal.data.storage.container import format_of

    if artifact is not None and artifact.is_file() and format_of(artifact) == FORMAT:
        raise InputError(
            f"-o: {artifact} is a model of answers, which has no policy; leave -o out, and compare the probability that "
            "rhocal apply writes with the printed threshold"
        )


def _refuse_both(promise: PromiseOptions, costs: CostOptions, set_question: SetQuestion | None) -> None:
    """Raise an error if two policies are asked for."""
    is_promise = promise.max_error is not None or promise.at_least is not None
    if costs.are_given and is_promise:
        raise InputError("--max-error and --at-least promise a risk, costs decide by themselves; give one of them")
    if promise.segments is not None and not is_promise and costs.max_cost is None:
        raise InputError(
            "--segments certify a risk in every segment; give it with --max-error, --at-least or --max-cost"
        )
    if set_question is not None and (costs.are_given or is_promise):
        raise InputError(
            "--coverage finds prediction sets, --max-error, --at-least and costs find thresholds; give one of them"
        )


def held_out(
    path: Path,
    artifact: Path | None,
    method: str,
    arrays: Arrays,
    spec: SpecOptions,
    execution: ExecutionOptions,
    *,
    keep: bool = False,
    segments: str | None = None,
    clusters: str | None = None,
) -> tuple[Calibrator, Source, Source | None, str]:
    """A calibrator, samples that did not fit it, others whose scores choose the tested thresholds, and a text about it."""
    from rhocal.calibrators import calibrator
    from rhocal.calibrators.decisions import with_decision_kept
    from rhocal.calibrators.fit_spec import class_of_column
    from rhocal.calibrators.fitting import fit
    from rhocal.data.sources import Source
    from rhocal.data.streams import has_splits
    from rhocal.evaluation.clusters import draw_one_of_each

    execution.refuse({"--segments": segments is not None and execution.streams(path)})
    if artifact is not None:
        cal = load_for(artifact, path, arrays)
        arrays = arrays.of_calibrator(cal, path)
        stated = replace(spec.spec([cal]), positive=class_of_column(cal))  # --positive says whose risk it is
        certifying = execution.open(path, arrays, stated, "test", segments)
        certifying, of_each = _independent(certifying, clusters, path, arrays, stated, execution)
        if not has_splits(path, arrays.names()):
            return cal, certifying, None, f"{of_each}{path}, which must not have fitted {artifact}"
        reference = execution.open(path, arrays, stated, "calibration", needs_labels=False)
        return cal, certifying, reference, f"{of_each}the test split of {path}"
    cal = calibrator(method)
    if keep:
        cal = with_decision_kept(cal)
    if has_splits(path, arrays.names()):
        first, test = (
            execution.open(path, arrays, spec.spec(), *one) for one in (("calibration",), ("test", segments))
        )
        fit(cal, first)
        test, of_each = _independent(test, clusters, path, arrays, spec.spec(), execution)
        return cal, test, first, f"{of_each}the test split of {path}; {cal.label} was fitted on the calibration split"
    first = execution.open(path, arrays, spec.spec(), "calibration", segments)
    if not first.resident:
        raise InputError(
            f"{path} is read block by block and has a single set; fit on other samples and give the calibrator with -c, or use "
            "--no-stream"
        )
    data = first.predictions
    assert data.labels is not None
    names = _cluster_names(first, clusters, path, arrays, spec.spec(), execution, "calibration")
    first_half, second_half, rows = _halves(data, names)
    if 0 in {first_half.n_samples, second_half.n_samples}:
        what = "samples" if names is None else "clusters"
        raise InputError(f"{path} has too few different {what} to fit on one half and certify on the other; give -c")
    fitting = Source.from_predictions(replace(first_half, groups=None))
    certifying = Source.from_predictions(second_half)
    fit(cal, fitting)
    cal.columns_, cal.positive_ = first.spec.columns, data.positive
    by = "content"
    if names is not None:
        certifying, by = (
            Source.from_predictions(draw_one_of_each(second_half, names[rows], cal)),
            "clusters",
        )
    n_certifying, n_fitting = (int(part.predictions.total_weight) for part in (certifying, fitting))
    what = "samples" if names is None else "samples, one of each cluster,"
    text = f"{n_certifying:,} {what} of {path}; {cal.label} was fitted on {'the other ' if names is None else ''}{n_fitting:,}"
    return cal, certifying, fitting, f"{text} (cut by {by})"


def _halves(data: Predictions, clusters: NDArray[Any] | None) -> tuple[Predictions, Predictions, NDArray[np.intp]]:
    """A half to fit on, one to certify, and the rows of this; a row that stands for several samples may be in both."""
    import numpy as np

    from rhocal.data.sampling import content_half, counts_in_half

    assert data.labels is not None
    weights = data.weights
    if clusters is None and weights is not None and weights.max() > 1 and (weights % 1 == 0).all():
        first = counts_in_half(data.logits, data.labels, weights, [data.groups])
        one, two = (replace(data, weights=counts).take(np.flatnonzero(counts)) for counts in (first, weights - first))
        return one, two, np.flatnonzero(weights - first)
    half = content_half(data.logits, data.labels, clusters, [weights, data.groups])
    rows = np.flatnonzero(~half)
    return data.take(np.flatnonzero(half)), data.take(rows), rows


def _cluster_names(
    source: Source,
    clusters: str | None,
    path: Path,
    arrays: Arrays,
    spec: InputSpec,
    execution: ExecutionOptions,
    split: Split,
) -> Any:
    """The cluster of each sample: as stated, or the question of a log in which questions occur more than once; else None."""
    name = clusters_of(source, clusters)
    if name is None:
        return None
    execution.refuse({"--clusters": not source.resident})
    return execution.open(path, arrays, spec, split, name).predictions.groups


def _independent(
    source: Source, clusters: str | None, path: Path, arrays: Arrays, spec: InputSpec, execution: ExecutionOptions
) -> tuple[Source, str]:
    """Samples that certify, one of each cluster where there are clusters, and a text about it."""
    from rhocal.data.sources import Source
    from rhocal.evaluation.clusters import draw_one_of_each

    names = _cluster_names(source, clusters, path, arrays, spec, execution, "test")
    if names is None:
        return source, ""
    drawn = draw_one_of_each(source.predictions, names)
    return Source.from_predictions(drawn), f"{drawn.n_samples:,} samples, one of each cluster, of "


def _least_cost(
    cal: Calibrator,
    source: Source,
    costs: CostOptions,
    otherwise: str,
    positive: str | None,
    execution: ExecutionOptions,
) -> CostDecision:
    """The decision of least expected cost."""
    from rhocal.evaluation.costs import minimize_cost_of_source

    table = costs.table(cal, positive)
    with execution.cluster(), execution.progress("measuring", source) as blocks:
        return minimize_cost_of_source(cal, blocks, table, costs.cost_review, otherwise)


def _show_costs(
    decision: CostDecision,
    cal: Calibrator,
    origin: str,
    output: Path | None,
    positive: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    from rhocal.reporting import tables

    if as_json:
        saved = {} if output is None else {"output": str(output)}
        print_json({"method": cal.label, "measured_on": origin, **decision.to_dict(), **positive, **saved})
        return
    screen = tables.console()
    screen.print(f"measured on {origin}")
    _name_positive(screen, positive)
    screen.print(tables.pairs(decision.summary(), f"{cal.label}, mean cost of a sample"))
    screen.print(decision.verdict)
    if output is not None:
        screen.print(f"saved {output}")


def _decide_sets(
    cal: Calibrator,
    source: Source,
    question: SetQuestion,
    execution: ExecutionOptions,
    origin: str,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Prediction sets."""
    from rhocal.evaluation.sets import decide_sets_of_source
    from rhocal.reporting import tables

    with execution.cluster(), execution.progress("certifying", source) as blocks:
        decision = decide_sets_of_source(cal, blocks, question)
    cal.policy_ = decision.policy
    if output is not None:
        cal.save(output)
    if as_json:
        saved = {} if output is None else {"output": str(output)}
        print_json({"method": cal.label, "certified_on": origin, **decision.to_dict(), **saved, **skipped(source)})
        return
    screen = tables.console()
    screen.print(f"limits from {origin}")
    screen.print(tables.pairs(decision.summary(), f"{cal.label}, prediction sets"))
    if decision.rule.per_class or decision.below:
        screen.print(tables.class_coverages(decision.classes, decision.rule.score, "classes of the samples"))
    for sentence in (decision.verdict, decision.note, decision.guarantee):
        if sentence:
            screen.print(sentence)
    if output is not None:
        screen.print(f"saved {output}")


def _name_positive(screen: Any, positive: dict[str, Any]) -> None:
    """Print the class whose false positives and negatives have a cost."""
    for name in positive.values():
        screen.print(f"positive class of the costs: {name}")


def _show(decision: Decision, cal: Calibrator, origin: str, output: Path | None, positive: dict[str, Any]) -> None:
    from rhocal.reporting import tables

    screen = tables.console()
    screen.print(f"certified on {origin}" if decision.is_feasible else f"tested on {origin}")
    _name_positive(screen, positive)
    if decision.policy is not None and decision.policy.certificate is not None:
        screen.print(tables.pairs(decision.summary(), cal.label))
    if decision.segments:
        screen.print(tables.segment_risks(decision.segments, decision.risk, "segments"))
    if decision.classes:
        screen.print(tables.class_thresholds(decision.classes, "thresholds of predicted classes"))
    screen.print(decision.verdict)
    note = decision.note_with("--risk recall or fnr", "--score per-class")
    watched = "rhocal monitor watches rates; it does not watch this mean cost" if decision.risk == "cost" else ""
    for sentence in (decision.price, note, watched if decision.is_feasible else ""):
        if sentence:
            screen.print(sentence)
    if output is not None:
        text = f"saved {output}" if decision.is_feasible else f"{output} was not written"
        screen.print(text)
