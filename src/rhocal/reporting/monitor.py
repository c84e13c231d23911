"""A monitor for machines and people: metrics in the text format of Prometheus, events as JSON, and a status page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from rhocal.evaluation.risk_monitor import TITLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WINDOWS = ("all", "recent", "rolling")

HELP = {
    "samples_total": ("counter", "Samples with labels that are counted."),
    "waiting_samples": ("gauge", "Samples whose label has not come."),
    "alarm": ("gauge", "1 if calibration is known to be off, or a promise to be broken."),
    "alarm_acknowledged": ("gauge", "1 if every alarm that is raised is acknowledged."),
    "p_value": ("gauge", "Chance that a calibrated stream ever looks as bad; valid at every moment."),
    "accuracy": ("gauge", "Share of right predictions."),
    "confidence": ("gauge", "Mean confidence."),
    "ece": ("gauge", "Expected calibration error."),
}


METRICS = {"accuracy": "accuracy", "confidence": "mean confidence", "ece": "ECE"}


def table_values(values: Mapping[str, Any], windows: Mapping[str, str], *, was_reset: bool = False) -> dict[str, Any]:
    """What the terminal shows of ``Monitor.values()``; ``windows`` explains the samples that metrics are over."""
    rows: dict[str, Any] = {"samples": values["n_samples"]}
    if was_reset:
        rows["samples since the reset"] = round(values["all"]["weight"])
    if values.get("waiting_samples"):
        rows["samples without a label yet"] = values["waiting_samples"]
    rows |= {"p-value, valid at any time": values["p_value"]} | _alarm_rows(values)
    if values["n_calibration"] is not None:
        rows["samples of the calibration set"] = values["n_calibration"]
    if promise := values.get("promise"):
        promised = f"at most {promise['largest_rate']:g}"
        if promise["rate"] is not None:
            rows[f"{TITLES[promise['risk']]} ({promised} promised)"] = promise["rate"]
        rows["p-value of the promise"] = promise["p_value"]
        rows |= {f"{name} of the promise": value for name, value in _alarm_rows(promise).items()}
    for window, meaning in windows.items():
        known = {name: values[window][name] for name in METRICS if values[window][name] is not None}
        rows |= {f"{METRICS[name]}, {meaning}": value for name, value in known.items()}
    return rows


def _alarm_rows(values: Mapping[str, Any]) -> dict[str, Any]:
    rows = {"alarm": values["alarm"]}
    if values["alarm"]:
        rows |= {"alarm at sample": values["alarm_at"], "reason": values["alarm_reason"]}
    if values["acknowledged"] is not None:
        rows["acknowledged"] = values["acknowledged"] or "without a note"
    return rows


def flat_values(values: Mapping[str, Any], n_waiting: int = 0) -> dict[str, float]:
    """The numbers of ``Monitor.values()`` by name; a window follows a dot."""
    alarms = _alarms(values)
    flat = {
        "samples_total": values["n_samples"],
        "waiting_samples": n_waiting,
        "alarm": int(bool(alarms)),
        "alarm_acknowledged": int(bool(alarms) and all(part["acknowledged"] is not None for part in alarms)),
        "p_value": values["p_value"],
    }
    for name in ("accuracy", "confidence", "ece"):
        flat |= {f"{name}.{window}": values[window][name] for window in WINDOWS if values[window][name] is not None}
    return flat


def _alarms(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The parts whose alarm is raised."""
    return [part for part in (values, values.get("promise")) if part and part["alarm"]]


def _alarm_text(part: Mapping[str, Any]) -> str:
    known = "" if part["acknowledged"] is None else f" (acknowledged: {part['acknowledged'] or 'no note'})"
    return f"alarm: {part['alarm_reason'] or 'raised by an earlier version'}{known}"


def prometheus_text(flat: Mapping[str, float]) -> str:
    """Metrics as Prometheus scrapes them (text format 0.0.4)."""
    lines, seen = [], set()
    for name, value in flat.items():
        metric, _, window = name.partition(".")
        if metric not in seen:
            kind, text = HELP[metric]
            lines += [f"# HELP rhocal_monitor_{metric} {text}", f"# TYPE rhocal_monitor_{metric} {kind}"]
            seen.add(metric)
        label = f'{{window="{window}"}}' if window else ""
        lines.append(f"rhocal_monitor_{metric}{label} {float(value)!r}")
    return "\n".join(lines) + "\n"


def event_record(time: str, event: str, flat: Mapping[str, float], **details: Any) -> dict[str, Any]:
    """An event with the names of OpenTelemetry's log records."""
    severity = "WARN" if event == "alarm" else "INFO"
    attributes = {f"rhocal.monitor.{name}": value for name, value in {**flat, **details}.items() if value is not None}
    return {"timestamp": time, "severity_text": severity, "body": f"rhocal.monitor.{event}", "attributes": attributes}


def status_page(
    values: Mapping[str, Any], flat: Mapping[str, float], history: Sequence[Mapping[str, Any]], time: str
) -> str:
    """A page without scripts that a browser loads again every half minute."""
    alarm = bool(flat["alarm"])
    state = "; ".join(_alarm_text(part) for part in _alarms(values)) or "no alarm"
    names = {name: escape(name.replace(".", ", ").replace("_", " ")) for name in flat}
    rows = "".join(f"<tr><th>{names[name]}</th><td>{value:g}</td></tr>" for name, value in flat.items())
    events = "".join(
        f"<li>{escape(str(event.get('event')))} at sample {escape(str(event.get('n_samples')))}: "
        f"{escape(str(event.get('note') or 'no note'))}; "
        f"{escape('; '.join(str(event[key]) for key in ('alarm_reason', 'promise') if event.get(key)) or 'no alarm')}</li>"
        for event in reversed(history)
    )
    style = "body{font:16px system-ui;max-width:46rem;margin:2rem auto;padding:0 1rem}th{text-align:left;padding-right:2rem}"
    color = "#a40000" if alarm else "#1a6b2d"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="30">'
        f"<title>rhocal monitor</title><style>{style}</style><h1>Calibration monitor</h1>"
        f'<p style="color:{color}"><strong>{escape(state)}</strong></p><table>{rows}</table>'
        f"<h2>History</h2><ul>{events or '<li>empty</li>'}</ul><p>As of {escape(time)}.</p></html>\n"
    )
