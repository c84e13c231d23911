"""A monitor for machines and people: metrics in the text format of Prometheus, events as JSON, and a status page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WINDOWS = ("all", "recent", "rolling")

HELP = {
    "samples_total": ("counter", "Samples with labels that are counted."),
    "waiting_samples": ("gauge", "Samples whose label has not come."),
    "alarm": ("gauge", "1 if calibration is known to be off, or a promise to be broken."),
    "alarm_acknowledged": ("gauge", "1 if somebody acknowledged the alarm."),
    "p_value": ("gauge", "Chance that a calibrated stream ever looks as bad; valid at every moment."),
    "accuracy": ("gauge", "Share of right predictions."),
    "confidence": ("gauge", "Mean confidence."),
    "ece": ("gauge", "Expected calibration error."),
}


def flat_values(values: Mapping[str, Any], n_waiting: int = 0) -> dict[str, float]:
    """The numbers of ``Monitor.values()`` by name; a window follows a dot."""
    promise = values.get("promise") or {}
    flat = {
        "samples_total": values["n_samples"],
        "waiting_samples": n_waiting,
        "alarm": int(values["alarm"] or bool(promise.get("alarm"))),
        "alarm_acknowledged": int(values["acknowledged"] is not None),
        "p_value": values["p_value"],
    }
    for name in ("accuracy", "confidence", "ece"):
        flat |= {f"{name}.{window}": values[window][name] for window in WINDOWS if values[window][name] is not None}
    return flat


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
    reason = values["alarm_reason"] or (values.get("promise") or {}).get("sentence") or "a promise is broken"
    known = "" if values["acknowledged"] is None else f" (acknowledged: {values['acknowledged'] or 'no note'})"
    state = f"alarm: {reason}{known}" if alarm else "no alarm"
    names = {name: escape(name.replace(".", ", ").replace("_", " ")) for name in flat}
    rows = "".join(f"<tr><th>{names[name]}</th><td>{value:g}</td></tr>" for name, value in flat.items())
    events = "".join(
        f"<li>{escape(str(event.get('event')))} at sample {escape(str(event.get('n_samples')))}: "
        f"{escape(str(event.get('note') or 'no note'))}; {escape(str(event.get('alarm_reason') or 'no alarm'))}</li>"
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
