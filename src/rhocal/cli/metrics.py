"""`rhocal metrics`: the table of metrics."""

from __future__ import annotations

from rhocal.cli.options import Json, print_json


def metrics_(as_json: Json = False) -> None:
    """List the metrics: which way is better, their range, where they come from, and whether they add up over batches."""
    from rhocal.metrics import METRICS, OTHERS
    from rhocal.reporting import tables
    from rhocal.reporting.fitted_table import FittedTable

    if as_json:
        listed = [
            {
                "metric": name,
                "title": metric.title,
                "summary": metric.summary,
                "better": metric.better,
                "range": list(metric.range),
                "reference": metric.reference,
                "streams": metric.streams,
                "no_sums_reason": metric.no_sums_reason,
                "per_sample": metric.per_sample is not None,
                "options": {key: str(value) for key, value in metric.options.items()},
            }
            for name, metric in METRICS.items()
        ]
        print_json({"metrics": listed, "others": OTHERS})
        return
    header = ("metric", "title", "better", "range", "streams", "reference")
    rows = []
    for name, metric in METRICS.items():
        low, high = (f"{end:g}".replace("inf", "∞") for end in metric.range)
        rows.append((name, metric.title, metric.better, f"{low} to {high}", metric.streams, metric.reference))
    screen = tables.console()
    screen.print(FittedTable(header, rows, texts=["title", "reference"], optional=["reference"], left=header))
    screen.print("streams: exactly: sums of batches add up; sketch: in fixed memory, with a bound of the error; no")
    screen.print("Python only: " + "; ".join(f"{name} ({what})" for name, what in OTHERS.items()))
