"""Count the functions and files that `fit`, `apply` and `evaluate` run through, and the calls from one file to another.

A crossing is a call from a function in one file of `src/rhocal` to a function in another; what other packages call in
between does not count. Python reports a generator that goes on after a ``yield`` as a call too. It is none, no function
begins: such resumptions from another file have a column of their own. The first call loads modules, so the second one is
traced. `make trace` prints the table.
"""

from __future__ import annotations

import argparse
import dis
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import rhocal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PACKAGE = str(Path(rhocal.__file__).parent)

RESUME = dis.opmap["RESUME"]


class Tracer:
    """Functions of the package that run, and calls between its files."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.crossings: Counter[tuple[str, str]] = Counter()
        self.resumptions: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Take note of a call."""
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(PACKAGE):
            return
        self.functions.add((path, frame.f_code.co_qualname))
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != path:
            counter = self.resumptions if is_resumed(frame) else self.crossings
            counter[short(caller.f_code.co_filename), short(path)] += 1


def is_resumed(frame: FrameType) -> bool:
    """Whether a generator goes on after a ``yield``: its instruction RESUME states where it goes on, 0 at the beginning."""
    return frame.f_code.co_code[frame.f_lasti] == RESUME and frame.f_code.co_code[frame.f_lasti + 1] & 3 > 0


def short(path: str) -> str:
    """The path of a file within the package."""
    return str(Path(path).relative_to(PACKAGE))


def traced(work: Callable[[], Any]) -> Tracer:
    """The trace of the second call."""
    work()
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return tracer


def tasks(folder: Path) -> dict[str, Callable[[], Any]]:
    """What is traced, each in memory and on a stream: 800 samples of 100 classes, eight blocks."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(800, 100)) * 2
    logits, labels = (2 * truth).astype(np.float32), (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    parts = []
    for k, rows in enumerate(np.split(np.arange(800), 8)):
        parts.append(folder / f"part-{k}.npz")
        np.savez(parts[-1], logits=logits[rows], labels=labels[rows])
    cal = rhocal.RhoNormScaling().fit(logits, labels)
    probs = cal.predict_proba(logits)

    def stream() -> Any:
        return rhocal.stream(parts)

    def apply_stream() -> None:
        from rhocal.calibrators.applying import apply  # noqa: PLC0415 - what is traced may lie elsewhere in other versions

        target = folder / "out.npy"
        target.unlink(missing_ok=True)
        apply(cal, stream(), target)

    return {
        "fit, in memory": lambda: rhocal.RhoNormScaling().fit(logits, labels),
        "fit, streamed": lambda: rhocal.RhoNormScaling().fit(stream()),
        "apply, in memory": lambda: cal.predict_proba(logits),
        "apply, streamed": apply_stream,
        "evaluate, in memory": lambda: rhocal.evaluate(probs, labels),
        "evaluate, streamed": lambda: rhocal.evaluate(stream(), kind="logits"),
    }


def main() -> None:
    """Print the table, and on request the busiest borders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--borders", type=int, default=0, help="list so many pairs of files with the most crossings")
    parser.add_argument("--only", default="", help="trace tasks whose name contains this")
    options = parser.parse_args()
    print("| | functions | files | crossings | resumptions |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, work in tasks(Path(folder)).items():
            if options.only not in name:
                continue
            tracer = traced(work)
            files = {path for path, _ in tracer.functions}
            counts = len(tracer.functions), len(files), tracer.crossings.total(), tracer.resumptions.total()
            print(f"| {name} | {' | '.join(map(str, counts))} |")
            for (caller, callee), n in tracer.crossings.most_common(options.borders):
                print(f"    {n:5} {caller} -> {callee}")


if __name__ == "__main__":
    main()
