"""Run every snippet of ten common jobs, and count its lines: jobs.csv and README.md. Run by `make jobs`."""

from __future__ import annotations

import csv
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from snippets import JOBS

import rhocal

HERE = Path(__file__).parent
HEAD = """# Ten common jobs

Made by `make jobs`, which runs every snippet of [snippets.py](snippets.py). Lines of code without imports, beside the library
that needs the fewest of those that are installed for the benchmarks.

"""
NOTES = """
What a line gives differs. The peers of *test* and *interval* take two classes or give the interval of one estimate; rhocal's
evaluation has both for all classes. The diagram of scikit-learn is that of a binary model, so correctness is passed to it.
torchmetrics keeps all confidences in memory.
"""


def n_lines(code: str) -> int:
    """Lines that are not imports."""
    return sum(bool(line.strip()) and not line.startswith(("import ", "from ")) for line in code.splitlines())


def names() -> dict[str, Any]:
    """What the snippets use."""
    z, y = rhocal.demo_logits("cal")
    zt, yt = rhocal.demo_logits("test")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4))
    data = torch.utils.data.TensorDataset(torch.tensor(z), torch.tensor(y))
    return {
        "z": z, "y": y, "zt": zt, "yt": yt, "p": rhocal.Identity().fit(z, y).predict_proba(zt).astype(np.float64), "X": x,
        "t": (x[:, 0] + rng.normal(size=600) > 0).astype(int), "model": torch.nn.Identity(),
        "loader": torch.utils.data.DataLoader(data, batch_size=1000),
        "batches": ((zt[k::5], yt[k::5]) for k in range(5)),
    }  # fmt: skip


def main() -> None:
    rows = []
    os.chdir(tempfile.mkdtemp())
    for job, by_library in JOBS.items():
        for library, code in by_library.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(code, f"{job}, {library}", "exec"), names())  # noqa: S102 - our own snippets
            rows.append({"job": job, "library": library, "lines": n_lines(code)})
            print(rows[-1], flush=True)
    with (HERE / "jobs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["job", "library", "lines"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    lines = ["| job | rhocal | another library |", "|---|---|---|"]
    for job in JOBS:
        ours, (peer,) = (
            [row for row in rows if row["job"] == job and (row["library"] == "rhocal") == own] for own in (True, False)
        )
        lines.append(f"| {job} | {ours[0]['lines']} | {peer['lines']} ({peer['library']}) |")
    (HERE / "README.md").write_text(HEAD + "\n".join(lines) + "\n" + NOTES, encoding="utf-8")


if __name__ == "__main__":
    main()
