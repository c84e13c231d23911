"""Is it the KL term? The paper's preset with other weights α of it, on the networks of Table 1 that are here.

python experiments/paper/alpha.py --logits ../shared/data/logits

writes `alpha.csv`: one row per network, split and α, all else as the preset has it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from common import parser

from rhocal import paper
from rhocal.calibrators import RhoNormScaling, TemperatureScaling
from rhocal.compare import compare, splits, write_rows
from rhocal.files import read

HERE = Path(__file__).parent
ALPHAS = (0.0, 0.1, 1.0)


def main() -> None:
    args = parser(__doc__).parse_args()
    rows = []
    for path in paper.logits_files(args.logits):
        if paper.network_of(path).cell not in paper.cells(1):
            continue
        methods = {f"alpha={alpha:g}": RhoNormScaling.paper(alpha=alpha) for alpha in ALPHAS}
        for pair in splits(read(path), args.seeds):
            rows += [row.flat() for row in compare(path.stem, pair, {"temperature": TemperatureScaling(), **methods})]
            print(f"{len(rows)} rows, {path.stem}, {pair.name}", flush=True)
    write_rows(HERE / "alpha.csv", rows)


if __name__ == "__main__":
    main()
