"""Requests to a monitor, which may be running or run later: lines of a file beside its state, each carried out once."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rhocal.evaluation.monitor import Monitor

ACTIONS = ("acknowledge", "reset")


def requests_file(state: Path) -> Path:
    """Where requests wait."""
    return state.with_name(state.name + ".requests")


def leave_requests(state: Path, notes: Mapping[str, str | None]) -> bool:
    """Append the requests that have a note; whether there was one."""
    asked = {action: note for action, note in notes.items() if note is not None}
    if not asked:
        return False
    if not state.exists():
        raise InputError(f"-s: there is no state {state}, so nothing to acknowledge or reset")
    path = requests_file(state)
    whole = not path.exists() or path.read_bytes()[-1:] in {b"", b"\n"}
    requests = [
        {"id": uuid.uuid4().hex, "action": action, "note": note, "time": now()} for action, note in asked.items()
    ]
    lines = [json.dumps(request) + "\n" for request in requests]
    with path.open("a", encoding="utf-8") as file:
        file.write("".join([*([] if whole else ["\n"]), *lines]))  # behind half a line of somebody else
    return True


def carry_out_requests(watched: Monitor, state: Path) -> list[str]:
    """Do what was asked for and is not done yet; the actions. What cannot be read is named once and skipped."""
    from rhocal.data.labels.late import drop_waiting

    path = requests_file(state)
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()  # the last may be half written
    ids = _ids(lines)
    if watched.request_ids is None:  # a state of an earlier version knows their number alone
        watched.request_ids = ids[: watched.n_requests]
    done = set(watched.request_ids)
    actions = []
    for number, (name, line) in enumerate(zip(ids, lines, strict=True), 1):
        if name in done or not line.strip():
            continue
        watched.n_requests += 1
        request = _request(line)
        if request is None:
            typer.echo(f"warning: {path}, line {number}: no request, skipped", err=True)
            continue
        action, note = request
        if action == "reset":
            n_dropped = drop_waiting(watched.positions)
            watched.reset(note)
            watched.history[-1]["n_dropped"] = n_dropped
            if n_dropped:
                typer.echo(f"reset: {n_dropped:,} samples that wait for a label are left out", err=True)
        elif watched.has_alarm:
            watched.acknowledge(note)
        else:
            typer.echo("acknowledge: there is no alarm", err=True)
        actions.append(action)
    watched.request_ids = ids  # those that are gone cannot come again
    return actions


def _ids(lines: list[str]) -> list[str]:
    """What tells requests apart: their id, or their text and how often it stood there before."""
    seen: Counter[str] = Counter()
    ids = []
    for line in lines:
        value = _object(line).get("id")
        name = value if isinstance(value, str) else hashlib.blake2b(line.encode(), digest_size=16).hexdigest()
        seen[name] += 1
        ids.append(f"{name}-{seen[name]}" if seen[name] > 1 else name)
    return ids


def _request(line: str) -> tuple[str, str] | None:
    """The action and the note of a line."""
    request = _object(line)
    action, note = request.get("action"), request.get("note", "")
    return (action, note) if action in ACTIONS and isinstance(note, str) else None


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def now() -> str:
    """The time, for records."""
    return datetime.now(UTC).isoformat(timespec="seconds")
