"""Options of `rhocal decide`: what is promised, what decisions cost, prediction sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
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
            if unused is not None:
                raise InputError(f"--risk {self.risk} needs {option}; {other} was given")
            if self.risk != "error":
                raise InputError(f"--risk {self.risk} needs {option}; it is missing")
            raise InputError(
                "state what to certify: --max-error 0.02, --coverage 0.9 for prediction sets, or costs (--cost-fp and "
                "--cost-fn, or --costs)"
            )
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
        typer.Option(
            "--cost-fn",
            help="The cost of a false negative: of deciding otherwise for the positive class (--positive).",
            rich_help_panel=COSTS,
        ),
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
        from rhocal.evaluation.costs import binary_costs

        if self.costs is not None:
            if self.cost_fp is not None or self.cost_fn is not None:
                raise InputError("--costs has the costs of all decisions; leave --cost-fp and --cost-fn out")
            return read_costs(self.costs, cal.classes_.tolist())
        if self.cost_fp is None or self.cost_fn is None:
            raise InputError("costs need --cost-fp and --cost-fn, or a table with --costs")
        if len(cal.classes_) != 2:
            raise InputError(f"--cost-fp and --cost-fn are for two classes; there are {len(cal.classes_)}: use --costs")
        return binary_costs(self.cost_fp, self.cost_fn, self._column(cal, positive))

    def positive(self, cal: Calibrator, positive: str | None) -> dict[str, Any]:
        """The name of the class whose false positives and negatives have a cost; empty for a table."""
        return {} if self.cost_fp is None else {"positive": cal.classes_[self._column(cal, positive)].item()}

    @staticmethod
    def _column(cal: Calibrator, positive: str | None) -> int:
        from rhocal.calibrators.fit_spec import positive_of_fit

        return positive_of_fit(positive, cal, "--cost-fp and --cost-fn are costs of decisions about the positive class")


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
        from rhocal.calibrators.policies.prediction_sets import SET_SCORES
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
