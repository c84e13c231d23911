"""`rhocal decide`: a threshold whose risk is certified, saved with the calibrator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rhocal.cli.options import (
    Arrays,
    ClustersOption,
    ExecutionOptions,
    Json,
    KeepDecision,
    SourceFile,
    SpecOptions,
    clusters_of,
    grouped,
    print_json,
    skipped,
)
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.data.files import Split
    from rhocal.data.sources import Source
    from rhocal.data.spec import InputSpec
    from rhocal.evaluation.costs import CostDecision
    from rhocal.evaluation.decision import Decision
    from rhocal.evaluation.question import Question
    from rhocal.evaluation.sets import SetQuestion
    from rhocal.numerics.special import Vector

PROMISE = "What is promised"
COSTS = "What decisions cost"
SETS = "Prediction sets"


@dataclass(frozen=True)
class PromiseOptions:
    """What is to be certified."""

    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error", help="The largest risk: 0.02 for 2 %.", rich_help_panel=PROMISE, show_default=False
        ),
    ] = None
    at_least: Annotated[
        float | None,
        typer.Option(
            "--at-least", help="The smallest precision or recall.", rich_help_panel=PROMISE, show_default=False
        ),
    ] = None
    risk: Annotated[
        str,
        typer.Option(
            "--risk",
            help="error (errors among automated samples), fpr, fnr, precision or recall (of the positive class of two).",
            rich_help_panel=PROMISE,
        ),
    ] = "error"
    confidence: Annotated[
        float,
        typer.Option("--confidence", help="The probability that the promise holds.", rich_help_panel=PROMISE),
    ] = 0.95
    score: Annotated[
        str | None,
        typer.Option(
            "--score",
            help="What the threshold is on: confidence, per-class (one for each predicted class) or positive.",
            rich_help_panel=PROMISE,
            show_default=False,
        ),
    ] = None
    otherwise: Annotated[
        str,
        typer.Option("--otherwise", help="The action for other samples: review or abstain.", rich_help_panel=PROMISE),
    ] = "review"

    segments: Annotated[
        str | None,
        typer.Option(
            "--segments",
            help="Certify the risk in every segment: the column, array or file with the segment of each sample.",
            rich_help_panel=PROMISE,
            show_default=False,
        ),
    ] = None

    def question(self, positive: str | None, costs: Any = None, max_cost: float | None = None) -> Question:
        """The same as the library takes it."""
        from rhocal.data.arguments import check_level
        from rhocal.evaluation.question import Question
        from rhocal.metrics.inference.risk_control import AT_LEAST, RISKS, Risk

        check_level(self.confidence, "--confidence", "0.95 for 95 %")
        if max_cost is not None:
            options = (cast("Any", self.score), costs, self.otherwise, positive, self.segments is not None)
            return Question("cost", max_cost, self.confidence, *options)
        known = [risk for risk in RISKS if risk != "cost"]
        if self.risk not in known:
            raise InputError(f"--risk is one of {', '.join(known)}; got {self.risk!r}")
        option, other = ("--at-least", "--max-error") if self.risk in AT_LEAST else ("--max-error", "--at-least")
        target, unused = (self.at_least, self.max_error) if self.risk in AT_LEAST else (self.max_error, self.at_least)
        if target is None or unused is not None:
            given = f"{other} was given" if unused is not None else "it is missing"
            raise InputError(f"--risk {self.risk} needs {option}; {given}")
        check_level(target, option, "0.02 for 2 %" if option == "--max-error" else "0.9 for 90 %")
        options = (cast("Any", self.score), None, self.otherwise, positive, self.segments is not None)
        return Question(cast("Risk", self.risk), target, self.confidence, *options)


@dataclass(frozen=True)
class CostOptions:
    """What decisions cost."""

    cost_fp: Annotated[
        float | None,
        typer.Option("--cost-fp", help="The cost of a false positive, of two classes.", rich_help_panel=COSTS),
    ] = None
    cost_fn: Annotated[
        float | None,
        typer.Option("--cost-fn", help="The cost of a false negative, of two classes.", rich_help_panel=COSTS),
    ] = None
    cost_review: Annotated[
        float | None, typer.Option("--cost-review", help="The cost of a review of a sample.", rich_help_panel=COSTS)
    ] = None
    costs: Annotated[
        Path | None,
        typer.Option(
            "--costs",
            help="A .csv table: a row for each class, a column for each decision (and one for `review`).",
            rich_help_panel=COSTS,
        ),
    ] = None
    max_cost: Annotated[
        float | None,
        typer.Option(
            "--max-cost", help="Certify that automated samples cost at most this in the mean.", rich_help_panel=COSTS
        ),
    ] = None

    @property
    def are_given(self) -> bool:
        """Whether costs decide."""
        return any(value is not None for value in vars(self).values())

    def table(self, cal: Calibrator, positive: str | None) -> Vector:
        """The table of costs without a review."""
        from rhocal.data.cost_files import read_costs
        from rhocal.data.labels import positive_column
        from rhocal.evaluation.costs import binary_costs

        if self.costs is not None:
            if self.cost_fp is not None or self.cost_fn is not None:
                raise InputError("--costs has the costs of all decisions; leave --cost-fp and --cost-fn out")
            return read_costs(self.costs, cal.classes_.tolist())
        if self.cost_fp is None or self.cost_fn is None:
            raise InputError("costs need --cost-fp and --cost-fn, or a table with --costs")
        if len(cal.classes_) != 2:
            raise InputError(f"--cost-fp and --cost-fn are for two classes; there are {len(cal.classes_)}: use --costs")
        stated = positive if positive is not None else cal.positive_
        column = 1 if stated is None else positive_column(stated, cal.classes_)
        return binary_costs(self.cost_fp, self.cost_fn, column)


@dataclass(frozen=True)
class SetOptions:
    """Which prediction sets are wanted."""

    coverage: Annotated[
        float | None,
        typer.Option(
            "--coverage",
            help="Find sets of classes that hold the class of a sample with this probability: 0.9 for 90 %.",
            rich_help_panel=SETS,
            show_default=False,
        ),
    ] = None
    set_score: Annotated[
        str,
        typer.Option(
            "--set-score",
            help="lac (smallest sets), aps (adapts to a sample, never empty) or raps (the same without large sets).",
            rich_help_panel=SETS,
        ),
    ] = "lac"
    per_class: Annotated[
        bool,
        typer.Option(
            "--per-class", help="Promise the coverage of each class, not of all together.", rich_help_panel=SETS
        ),
    ] = False
    penalty: Annotated[
        float, typer.Option("--penalty", help="raps: what each rank beyond --n-free costs.", rich_help_panel=SETS)
    ] = 0.01
    n_free: Annotated[
        int, typer.Option("--n-free", help="raps: ranks without a penalty.", rich_help_panel=SETS, min=0)
    ] = 5

    def question(self, otherwise: str) -> SetQuestion | None:
        """The same as the library takes it; None if no sets are wanted."""
        from rhocal.calibrators.prediction_sets import SET_SCORES
        from rhocal.data.arguments import check_level
        from rhocal.evaluation.sets import SetQuestion

        if self.coverage is None:
            given = [name for name, value in vars(self).items() if value != getattr(SetOptions, name)]
            if given:
                raise InputError(
                    f"--{given[0].replace('_', '-')} belongs to prediction sets; give their --coverage too"
                )
            return None
        check_level(self.coverage, "--coverage", "0.9 for 90 %")
        if self.set_score not in SET_SCORES:
            raise InputError(f"--set-score is one of {', '.join(SET_SCORES)}; got {self.set_score!r}")
        score = cast("Any", self.set_score)
        return SetQuestion(self.coverage, score, self.per_class, self.penalty, self.n_free, otherwise)


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
    code 1: the promise cannot be certified, and nothing is written.

    With costs (`--cost-fp 5 --cost-fn 50 --cost-review 1`, or `--costs table.csv`) the decision of least expected cost is
    taken, and what it saves against the most probable class, and what calibrating is worth, are measured with intervals.

    With `--coverage 0.9` prediction sets are found: the classes that a sample may have, so that 90 % of sets hold the class
    of their sample. A set of a single class is automated.
    """
    from rhocal.data.atomic import check_output
    from rhocal.evaluation.decide import decide_source

    set_question = sets.question(promise.otherwise)
    _refuse_both(promise, costs, set_question)
    question = None if costs.are_given or set_question is not None else promise.question(spec.positive)
    if output is not None:
        if output.suffix != ".safetensors":
            raise InputError(f"-o: {output} must end in .safetensors")
        check_output(output, [path])
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
        _show_costs(least, cal, origin.replace("which must", "whose samples must"), output, as_json=as_json)
        return
    question = question or promise.question(spec.positive, costs.table(cal, spec.positive), costs.max_cost)
    with execution.cluster(), execution.progress("certifying", certifying) as blocks:
        decision = decide_source(cal, blocks, question, reference)
    left_out = skipped(certifying)
    cal.policy_ = decision.policy
    if output is not None and decision.is_feasible:
        cal.save(output)
    if as_json:
        saved = {"output": str(output)} if output is not None and decision.is_feasible else {}
        print_json({"method": cal.label, "certified_on": origin, **decision.to_dict(), **saved, **left_out})
    else:
        _show(decision, cal, origin, output)
    raise typer.Exit(int(not decision.is_feasible))


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
    import numpy as np

    from rhocal.calibrators import calibrator
    from rhocal.calibrators.artifact import load
    from rhocal.calibrators.decisions import with_decision_kept
    from rhocal.calibrators.fit_spec import class_of_column
    from rhocal.calibrators.fitting import fit
    from rhocal.data.sampling import content_half
    from rhocal.data.sources import Source
    from rhocal.data.streams import has_splits
    from rhocal.evaluation.clusters import draw_one_of_each

    execution.refuse({"--segments": segments is not None and execution.streams(path)})
    if artifact is not None:
        cal = load(artifact)
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
    half = content_half(data.logits, data.labels, names)
    if half.all() or not half.any():
        what = "samples" if names is None else "clusters"
        raise InputError(f"{path} has too few different {what} to fit on one half and certify on the other; give -c")
    fitting, certifying = (
        Source.from_predictions(part.take(np.flatnonzero(rows)))
        for part, rows in ((replace(data, groups=None), half), (data, ~half))
    )
    fit(cal, fitting)
    cal.columns_, cal.positive_ = first.spec.columns, data.positive
    by = "content"
    if names is not None:
        certifying, by = (
            Source.from_predictions(draw_one_of_each(certifying.predictions, names[~half], cal)),
            "clusters",
        )
    n = certifying.predictions.n_samples
    what = "samples" if names is None else "samples, one of each cluster,"
    text = (
        f"{n:,} {what} of {path}; {cal.label} was fitted on {'the other ' if names is None else ''}{int(half.sum()):,}"
    )
    return cal, certifying, fitting, f"{text} (cut by {by})"


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


def _show_costs(found: CostDecision, cal: Calibrator, origin: str, output: Path | None, *, as_json: bool) -> None:
    from rhocal.reporting import tables

    if as_json:
        saved = {} if output is None else {"output": str(output)}
        print_json({"method": cal.label, "measured_on": origin, **found.to_dict(), **saved})
        return
    screen = tables.console()
    screen.print(f"measured on {origin}")
    screen.print(tables.pairs(found.summary(), f"{cal.label}, mean cost of a sample"))
    screen.print(found.verdict)
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
        found = decide_sets_of_source(cal, blocks, question)
    cal.policy_ = found.policy
    if output is not None:
        cal.save(output)
    if as_json:
        saved = {} if output is None else {"output": str(output)}
        print_json({"method": cal.label, "certified_on": origin, **found.to_dict(), **saved, **skipped(source)})
        return
    screen = tables.console()
    screen.print(f"limits from {origin}")
    screen.print(tables.pairs(found.summary(), f"{cal.label}, prediction sets"))
    if found.rule.per_class or found.below:
        screen.print(tables.class_coverages(found.classes, found.rule.score, "classes of the samples"))
    for sentence in (found.verdict, found.note, found.guarantee):
        if sentence:
            screen.print(sentence)
    if output is not None:
        screen.print(f"saved {output}")


def _show(decision: Decision, cal: Calibrator, origin: str, output: Path | None) -> None:
    from rhocal.reporting import tables

    screen = tables.console()
    screen.print(f"certified on {origin}" if decision.is_feasible else f"tested on {origin}")
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
