"""How should the second stage of a chain be fitted? Measure the alternatives, and write the evidence down.

    python experiments/chains/chains.py --logits ../shared/data/logits

A linear map (``sms``) is followed by a field. What differs: the outputs of the first stage that the field is fitted on,
what is applied to new samples, and the field's objective. Rows go to ``rows.csv``, the tables to ``README.md``, both
beside this file. Finished networks are not run again: delete ``rows.csv`` to start over.
"""

from __future__ import annotations

import argparse
import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from rhocal import FieldScaling, TemperatureScaling
from rhocal.calibrators import calibrator
from rhocal.calibrators.compose.cross_fit import CrossFit
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.data.files import read, write_text
from rhocal.data.predictions import Predictions
from rhocal.evaluation.compare import CalibrationSplit, file_sources, splits
from rhocal.evaluation.rows import Row, read_rows, write_rows
from rhocal.metrics import measure_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rhocal.numerics.special import Floats

HERE = Path(__file__).parent
FIRST = "sms"
TWELVE = [
    *(f"cifar100_{name}" for name in ("resnet20", "resnet56", "vgg16_bn", "mobilenetv2_x1_0", "repvgg_a2")),
    *(f"cifar100_{name}" for name in ("shufflenetv2_x2_0", "vgglike_playground")),
    *(f"cifar10_{name}" for name in ("resnet56", "resnet110_ce", "vgg16_bn", "densenet40_ce")),
    "fashionmnist_densenet",
]
LANGUAGE = [
    "emotion6_Qwen-14B_task", "emotion6_Mistral-7B-v0.1_task", "mmbench6_llava-v1.5-7b", "mnli_lm_zeroshot", "agnews_gpt2",
]  # fmt: skip
OBJECTIVES = (FieldScaling().objective, "nll + top-brier")


@dataclass(frozen=True)
class Stage:
    """What the first stage hands to the second."""

    name: str
    tune: Floats
    """Outputs that the second stage is fitted on."""
    test: Floats
    """Outputs that it is applied to."""


def stages(calibration: Predictions, test: Predictions) -> Iterator[Stage]:
    """The alternatives."""
    whole = fit_validated(calibrator(FIRST), calibration, kind="logits")
    outputs_on_test = whole.map_.logits(test)
    yield Stage("in sample", whole.map_.logits(calibration), outputs_on_test)
    for n_folds in (5, 10):
        parts = CrossFit.from_predictions(FIRST, calibration, n_folds)
        outputs = parts.outputs(calibration)
        yield Stage(f"out of {n_folds} folds", outputs, outputs_on_test)
        mean = np.mean([model.map_.probs(test) for model in parts.models], axis=0, dtype=np.float64)
        yield Stage(f"out of {n_folds} folds, mean of the fold models", outputs, np.log(mean))


def split_rows(network: str, split: CalibrationSplit) -> Iterator[Row]:
    calibration, test = split.calibration.predictions, split.test.predictions

    def row(method: str, outputs: Floats) -> Row:
        measured = measure_all(Predictions.from_arrays(outputs, test.labels))
        return Row(network, split.name, method, measured, 0.0, calibration.n_samples, test.n_samples)

    temperature = fit_validated(TemperatureScaling(), calibration, kind="logits")
    yield row("temperature", temperature.map_.logits(test))
    for stage in stages(calibration, test):
        if stage.name == "in sample":
            yield row(f"{FIRST} alone", stage.test)
        for objective in OBJECTIVES:
            second = fit_validated(
                FieldScaling(objective), replace(calibration, kind="logits", scores=stage.tune), kind="logits"
            )
            yield row(f"{stage.name}; {objective}", second.map_.logits(replace(test, kind="logits", scores=stage.test)))


def table(rows: list[dict[str, Any]], networks: list[str]) -> str:
    """Means over networks of the means over splits."""
    measured = {row["network"] for row in rows}
    chosen = [name for name in networks if name in measured]
    lines = [
        "| the field is fitted on; objective | ECE | AdaECE | NLL | Brier | accuracy |",
        "|---|---|---|---|---|---|",
    ]
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = []
        for metric in ("ece", "adaptive_ece", "nll", "brier", "accuracy"):
            values_by_network = [
                [r[metric] for r in rows if (r["network"], r["method"]) == (name, method)] for name in chosen
            ]
            cells.append(float(np.mean([np.mean(values) for values in values_by_network])))
        lines.append(f"| {method} | " + " | ".join(f"{cell:.4f}" for cell in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, default=Path("../shared/data/logits"), help="folder of .npz files")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = read_rows(HERE / "rows.csv") if (HERE / "rows.csv").exists() else []
    done = {row["network"] for row in rows}
    for network in (name for name in [*LANGUAGE, *TWELVE[::-1]] if name not in done):
        for split in splits(*file_sources(read(args.logits / f"{network}.npz")), n_seeds=args.seeds):
            rows += [row.flat() for row in split_rows(network, split)]
        write_rows(HERE / "rows.csv", rows)
        print(f"{len(rows):5} rows, {network}", flush=True)
    text = (HERE / "template.md").read_text(encoding="utf-8")
    text = text.replace("{TWELVE}", table(rows, TWELVE)).replace("{LANGUAGE}", table(rows, LANGUAGE))
    write_text(HERE / "README.md", text)


if __name__ == "__main__":
    main()
