"""The process of one device: it reads jobs from its input, a line of JSON each, trains them, and answers with lines.

    {"options": {…}, "root": "data", "folder": "runs/cifar10-vgg16-0", "device": "cpu"}   →   {"epoch": 1, …}   {"done": true}

An error that names its cause ends the job ({"error": "…"}). Any other ends the process: after a failure of a GPU nothing that
follows in the same process can be trusted. The images of the last job are kept, so that all seeds read them once.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rhocal.errors import RhocalError
from rhocal_paper.train import Job, load, train

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal_paper.train.data import Dataset


def main() -> None:
    """Work until the input ends."""
    out = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints is no answer

    def answer(**values: Any) -> None:
        out.write(json.dumps(values) + "\n")
        out.flush()  # fails when the scheduler has ended, and ends this process too

    images: dict[tuple[str, int | None], Dataset] = {}
    for line in sys.stdin:
        try:
            work(json.loads(line), images, answer)
            answer(done=True)
        except RhocalError as error:
            answer(error=str(error))
        except Exception as error:
            traceback.print_exc()
            answer(error=f"{type(error).__name__}: {error}", ended=True)
            raise SystemExit(1) from error


def work(message: dict[str, Any], images: dict[tuple[str, int | None], Dataset], answer: Callable[..., None]) -> None:
    """Train one job, going on where it was stopped."""
    job = Job.from_options(message["options"])
    key = job.data, job.size
    if key not in images:
        images.clear()
        images[key] = load(job.data, Path(message["root"]), job.size)
    train(
        images[key], job.model, job.recipe, Path(message["folder"]), weights=job.weights, device=message["device"],
        resume=True, after_epoch=lambda row: answer(epoch=int(row["epoch"]), seconds=row["seconds"]),
    )  # fmt: skip


if __name__ == "__main__":
    main()
