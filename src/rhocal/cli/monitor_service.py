"""What `rhocal monitor` reports besides its table: an HTTP endpoint, a log, and actions on an alarm."""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.evaluation.monitor import Monitor

LOOPBACK = "127.0.0.1"
TIMEOUT_SECONDS = 30.0
"""Of a command or webhook."""


@dataclass(frozen=True)
class ServiceOptions:
    """Where a monitor reports."""

    serve: Annotated[
        str | None,
        typer.Option("--serve", help="Serve /metrics (Prometheus), /status.json and a page at PORT or HOST:PORT."),
    ] = None
    log: Annotated[Path | None, typer.Option("--log", help="Append a line of JSON for each batch and event.")] = None
    on_alarm: Annotated[
        str | None,
        typer.Option("--on-alarm", help="A command to run when an alarm is raised; it gets JSON on standard input."),
    ] = None
    webhook: Annotated[str | None, typer.Option("--webhook", help="A URL that gets the JSON of an alarm by POST.")] = (
        None
    )
    acknowledge: Annotated[
        str | None, typer.Option("--acknowledge", help="Acknowledge the alarm with a note, and exit.")
    ] = None
    reset: Annotated[
        str | None, typer.Option("--reset", help="Begin the test anew with a note, after a repair, and exit.")
    ] = None


def requests_file(state: Path) -> Path:
    """Where requests to a monitor wait for it; it may be running, or run later."""
    return state.with_name(state.name + ".requests")


def leave_request(state: Path, options: ServiceOptions) -> bool:
    """Append the request of the options; whether there was one."""
    asked = {name: getattr(options, name) for name in ("acknowledge", "reset") if getattr(options, name) is not None}
    if not asked:
        return False
    if not state.exists():
        raise InputError(f"-s: there is no state {state}, so nothing to acknowledge or reset")
    lines = [json.dumps({"action": action, "note": note, "time": _now()}) + "\n" for action, note in asked.items()]
    with requests_file(state).open("a", encoding="utf-8") as file:
        file.write("".join(lines))
    return True


def carry_out_requests(watched: Monitor, state: Path) -> list[str]:
    """Do what was asked for since the last time; the actions."""
    path = requests_file(state)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    actions = []
    for line in text[: text.rfind("\n") + 1].splitlines()[watched.n_requests :]:  # the last may be half written
        request = json.loads(line)
        if request["action"] == "reset":
            watched.reset(request["note"])
        elif watched.has_alarm:
            watched.acknowledge(request["note"])
        actions.append(str(request["action"]))
        watched.n_requests += 1
    return actions


class Service:
    """The reports of a running monitor."""

    def __init__(self, options: ServiceOptions) -> None:
        self.options = options
        self.pages: dict[str, tuple[str, str]] = {}
        self.server: ThreadingHTTPServer | None = None
        if options.webhook is not None and not options.webhook.startswith(("http://", "https://")):
            raise InputError(f"--webhook: {options.webhook!r} must begin with http:// or https://")
        if options.serve is not None:
            host, _, port = options.serve.rpartition(":")
            if not port.isdecimal() or int(port) > 65_535:
                raise InputError(f"--serve: {options.serve!r} is no port; use 9464, or 127.0.0.1:9464")
            self._serve(host.strip("[]") or LOOPBACK, int(port))

    def _serve(self, host: str, port: int) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, text = service.pages.get(self.path.partition("?")[0], ("", ""))
                body = text.encode()
                self.send_response(200 if kind else 404)
                self.send_header("Content-Type", kind or "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Requests are not printed."""

        try:
            self.server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise InputError(f"--serve: cannot listen at {host}:{port}: {error}") from error
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        typer.echo(f"serving http://{host}:{self.server.server_port}/metrics", err=True)

    def report(self, watched: Monitor, event: str | None = None, **details: Any) -> None:
        """Publish what the monitor knows, and log the event, if there is one."""
        from rhocal.data.late_labels import n_waiting
        from rhocal.reporting.monitor import event_record, flat_values, prometheus_text, status_page

        values, time = watched.values(), _now()
        flat = flat_values(values, n_waiting(watched.positions))
        if self.server is not None:
            status = {**values, "history": watched.history, "waiting_samples": flat["waiting_samples"], "time": time}
            self.pages = {
                "/metrics": ("text/plain; version=0.0.4; charset=utf-8", prometheus_text(flat)),
                "/status.json": ("application/json", json.dumps(status)),
                "/healthz": ("text/plain", "ok\n"),
                "/": ("text/html; charset=utf-8", status_page(values, flat, watched.history, time)),
            }
        if self.options.log is not None and event is not None:
            with self.options.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(event_record(time, event, flat, **details)) + "\n")

    def notify(self, watched: Monitor) -> bool:
        """Run the actions of an alarm; whether all of them worked. What failed is tried again at the next look."""
        promise = None if watched.promise is None or not watched.promise.alarm else watched.promise.sentence
        alarm = {"alarm_at": watched.alarm_at, "reason": watched.alarm_reason, "promise": promise}
        body = json.dumps({"event": "alarm", "time": _now(), **alarm, **watched.values()}).encode()
        problems = []
        try:
            if self.options.on_alarm is not None:
                command = shlex.split(self.options.on_alarm)
                subprocess.run(command, input=body, check=True, timeout=TIMEOUT_SECONDS)  # noqa: S603 - the user's command
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            problems.append(f"--on-alarm: {error}")
        try:
            if self.options.webhook is not None:
                headers = {"Content-Type": "application/json"}
                request = urllib.request.Request(self.options.webhook, body, headers)  # noqa: S310 - http or https
                urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS).close()  # noqa: S310
        except (OSError, ValueError) as error:
            problems.append(f"--webhook: {error}")
        for problem in problems:
            typer.echo(f"warning: {problem}; tried again later", err=True)
        return not problems

    def close(self) -> None:
        """Stop serving."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
