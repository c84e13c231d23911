"""What `rhocal monitor` reports besides its table: an HTTP endpoint, a log, and actions on an alarm."""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from rhocal.cli.monitor_requests import now
from rhocal.errors import FileError, InputError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.evaluation.monitor import Monitor
    from rhocal.evaluation.risk_monitor import RiskMonitor

LOOPBACK = "127.0.0.1"
TIMEOUT_SECONDS = 30.0
"""Of a command or webhook."""
STANDARD_ERROR = 2
"""Its file descriptor."""


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
        typer.Option(
            "--on-alarm",
            help="A command to run when an alarm is raised, without a shell; it gets JSON on standard input.",
        ),
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


class Service:
    """The reports of a running monitor."""

    def __init__(self, options: ServiceOptions) -> None:
        self.options = options
        self.pages: dict[str, tuple[str, str]] = {}
        self.server: ThreadingHTTPServer | None = None
        self.command = _command(options.on_alarm)
        _check_url(options.webhook)
        if options.log is not None:
            try:
                options.log.open("a", encoding="utf-8").close()
            except OSError as error:
                raise FileError(f"--log: cannot write {options.log}: {error.strerror}") from error
        if options.serve is not None:
            host, _, port = options.serve.rpartition(":")
            if not port.isdecimal() or int(port) > 65_535:
                raise InputError(f"--serve: {options.serve!r} is no port; use 9464, or 127.0.0.1:9464")
            self._serve(host.strip("[]") or LOOPBACK, int(port))

    def _serve(self, host: str, port: int) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer()

            def do_GET(self) -> None:
                with suppress(ConnectionError):  # the client is gone
                    self.wfile.write(self.answer())

            def answer(self) -> bytes:
                """Send the headers of a page; its content."""
                kind, text = service.pages.get(self.path.partition("?")[0], ("", ""))
                body = text.encode()
                self.send_response(200 if kind else 404 if service.pages else 503)  # not before the first look
                self.send_header("Content-Type", kind or "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                return body

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
        from rhocal.data.labels.late import n_waiting
        from rhocal.reporting.monitor import event_record, flat_values, prometheus_text, status_page

        values, time = watched.values(), now()
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

    def notify(self, watched: Monitor, alarms: Mapping[str, Monitor | RiskMonitor]) -> bool:
        """Run the actions for new alarms; whether all of them worked. What failed is tried again at the next look."""
        new = [{"of": name, "at": part.alarm_at, "reason": part.alarm_reason} for name, part in alarms.items()]
        reason = "; ".join(str(alarm["reason"]) for alarm in new)
        body = json.dumps({"event": "alarm", "time": now(), "reason": reason, "new": new, **watched.values()}).encode()
        problems = []
        try:
            if self.command is not None:  # what it prints is not part of our output
                subprocess.run(self.command, input=body, check=True, timeout=TIMEOUT_SECONDS, stdout=STANDARD_ERROR)  # noqa: S603 - the user's command
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            problems.append(f"--on-alarm: {one_line(error)}")
        try:
            if self.options.webhook is not None:
                headers = {"Content-Type": "application/json"}
                request = urllib.request.Request(self.options.webhook, body, headers)  # noqa: S310 - http or https
                urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS).close()  # noqa: S310
        except (OSError, ValueError, HTTPException) as error:
            problems.append(f"--webhook: {one_line(error)}")
        for problem in problems:
            typer.echo(f"warning: {problem}; tried again later", err=True)
        return not problems

    def close(self) -> None:
        """Stop serving."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()


def _command(text: str | None) -> list[str] | None:
    """The words of a command."""
    try:
        arguments = None if text is None else shlex.split(text)
    except ValueError as error:
        raise InputError(f"--on-alarm: {text!r} is no command: {error}") from error
    if arguments is not None and not arguments:
        raise InputError("--on-alarm: the command is empty")
    return arguments


def _check_url(text: str | None) -> None:
    """Raise an error for an address that no request can be sent to."""
    if text is None:
        return
    if not text.startswith(("http://", "https://")):
        raise InputError(f"--webhook: {text!r} must begin with http:// or https://")
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise InputError(f"--webhook: {text!r} is no address: {error}") from error
    if not has_host or not text.isascii() or not text.isprintable() or " " in text:
        raise InputError(
            f"--webhook: {text!r} is no address; spaces and letters such as ä are written as %20 and %C3%A4"
        )
