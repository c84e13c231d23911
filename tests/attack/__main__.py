"""``python -m tests.attack --minutes 30``: run every attack, print a table, and exit with 1 if a promise did not hold."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.attack import Counts, modules, send_counts

GRACE_SECONDS = 300
"""How much longer than asked an attack may run before it counts as one that does not end."""

TIME_SHARES = {"kills": 4.5, "files": 3.5, "serving": 3.0, "maps": 2.0, "races": 0.5}
"""Shares of the time, 1 for all others: slow cases that are counted by kind need more, and so do requests, which are quick."""

COLUMNS = ("calls", "refused", "silent_wrong", "foreign", "nan", "crashes")


def main():
    """Parse options, run the attacks, print what they found."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all attacks together")
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--only", default="", help="names of attacks, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="attacks that run at a time")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or modules()
    seed = time.time_ns() % 1_000_000 if options.seed is None else options.seed
    shares = {name: TIME_SHARES.get(name, 1.0) for name in names}
    total = options.minutes * 60 * min(options.jobs, len(names))
    seconds = {name: total * share / sum(shares.values()) for name, share in shares.items()}
    print(f"seed {seed}, {', '.join(f'{name} {seconds[name]:.0f} s' for name in names)}", flush=True)
    longest_first = sorted(names, key=lambda name: -shares[name])
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda name: in_process(name, seed, seconds[name]), longest_first)
        counts = dict(sorted(zip(longest_first, results, strict=True)))
    print(table(counts))
    for name, one in counts.items():
        if one.cases:
            print(f"{name}: {', '.join(f'{n:,} {case}' for case, n in sorted(one.cases.items()))}")
    for name, one in counts.items():
        for example in one.examples:
            print(f"{name}: {example}")
    return 0 if all(one.is_clean for one in counts.values()) else 1


def in_process(name, seed, seconds):
    """The counts of an attack that runs in a process of its own; one that died is a crash."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=send_counts, args=(sending, name, seed, seconds))
    process.start()
    sending.close()
    try:
        counts = receiving.recv() if receiving.poll(seconds + GRACE_SECONDS) else None
    except EOFError:
        counts = None
    if counts is None:
        process.join(1)
        state = "did not end" if process.is_alive() else f"died with exit code {process.exitcode}"
        process.kill()
        counts = Counts(crashes=1, examples=[f"the process {state}"])
    process.join()
    print(f"{name}: {counts.calls:,} calls, {'clean' if counts.is_clean else '; '.join(counts.examples)}", flush=True)
    return counts


def table(counts):
    """The counts of every attack and their sum, as text."""
    rows = [*counts.items(), ("all", sum(counts.values(), Counts()))]
    width = max(len(name) for name, _ in rows)
    lines = ["  ".join([" " * width, *(f"{column:>12}" for column in COLUMNS)])]
    lines += [
        "  ".join([f"{name:<{width}}", *(f"{getattr(c, column):>12,}" for column in COLUMNS)]) for name, c in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
