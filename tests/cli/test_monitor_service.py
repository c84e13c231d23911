"""A monitor as a service: scraped, killed and started again, with labels that come later, a webhook, and requests."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from helpers import PATIENCE, synthetic, wait_until
from rhocal.cli import app
from rhocal.cli.monitor_requests import carry_out_requests, requests_file
from rhocal.cli.monitor_service import Service, ServiceOptions
from rhocal.errors import InputError
from rhocal.evaluation.monitor import Monitor
from rhocal.reporting.monitor import flat_values, prometheus_text, status_page

Z, Y = synthetic(600, 3, scale=1.0)


def write(path, **columns):
    hidden = path.with_name(f".{path.name}")
    pd.DataFrame(columns).to_parquet(hidden, index=False)
    hidden.rename(path)


def predictions(path, rows):
    write(path, id=[f"r{k}" for k in rows], logits=[Z[k].tolist() for k in rows])


def labels(path, rows, values):
    write(path, id=[f"r{k}" for k in rows], labels=values)


@contextlib.contextmanager
def receiver():
    """A webhook: the bodies that it got."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/alarm", bodies
        server.shutdown()


@contextlib.contextmanager
def running(folder, *options):
    """The service in a process of its own, which ends with kill -9: the address, and a function that waits for a metric."""
    command = [sys.executable, "-m", "rhocal", "monitor", str(folder / "in"), "-s", str(folder / "s.json"), "--follow"]
    command += ["--every", "0.05", "--serve", "127.0.0.1:0", "--labels-from", str(folder / "labels"), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=folder)
    try:
        address = re.search(r"http://127[.]0[.]0[.]1:\d+", process.stderr.readline())[0]
        yield address, lambda **wanted: wait_for(address, wanted)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def get(address):
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310 - our own
        return answer.headers["Content-Type"], answer.read().decode()


def wait_for(address, wanted):
    values, text = {}, ""

    def has_come():
        nonlocal values, text
        with contextlib.suppress(OSError):
            text = get(f"{address}/metrics")[1]
            found = re.findall(r"^rhocal_monitor_(\w+) (\S+)$", text, re.MULTILINE)
            values = {name: float(value) for name, value in found}
        return wanted.items() <= values.items()

    assert wait_until(has_come), f"{wanted} did not come; the last were {values}"
    return text


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_scrapes_late_labels_webhook_acknowledge_and_reset_between_kills(tmp_path):
    for name in ("in", "labels"):
        (tmp_path / name).mkdir()
    predictions(tmp_path / "in" / "a.parquet", range(300))
    with receiver() as (webhook, bodies):
        options = ["--webhook", webhook, "--log", str(tmp_path / "log.jsonl")]
        with running(tmp_path, *options) as (address, wait):
            assert "# TYPE rhocal_monitor_samples_total counter" in wait(samples_total=0, waiting_samples=300)
            labels(tmp_path / "labels" / "1.parquet", range(0, 300, 3), Y[0:300:3])
            wait(samples_total=100, waiting_samples=200)
        labels(tmp_path / "labels" / "2.parquet", range(0, 300, 2), Y[0:300:2])  # 50 of them are counted already
        predictions(tmp_path / "in" / "b.parquet", range(300, 600))
        with running(tmp_path, *options) as (address, wait):
            wait(samples_total=200, waiting_samples=400, alarm=0)
            assert not bodies
            labels(tmp_path / "labels" / "3.parquet", range(300, 600), (Z[300:].argmax(axis=1) + 1) % 3)
            wait(samples_total=500, waiting_samples=100, alarm=1, alarm_acknowledged=0)
            assert get(f"{address}/healthz")[1] == "ok\n"
        with running(tmp_path, *options) as (address, wait):
            wait(samples_total=500, alarm=1)
            assert wait_until(lambda: bodies)  # if the kill came before the request, it is sent now
            ask = ["monitor", str(tmp_path / "in"), "-s", str(tmp_path / "s.json")]
            assert CliRunner().invoke(app, [*ask, "--acknowledge", "<seen & known>"]).exit_code == 0
            wait(alarm=1, alarm_acknowledged=1)
            kind, page = get(address)
            assert kind.startswith("text/html")
            assert "&lt;seen &amp; known&gt;" in page
            assert CliRunner().invoke(app, [*ask, "--reset", "new calibrator"]).exit_code == 0
            wait(alarm=0, alarm_acknowledged=0, samples_total=500)
            status = json.loads(get(f"{address}/status.json")[1])
        assert [event["event"] for event in status["history"]] == ["acknowledge", "reset"]
        assert status["history"][1]["alarm_reason"]
        assert len(bodies) in {1, 2}  # at least once: a kill between the request and the state repeats it
        assert {(body["event"], body["alarm_at"]) for body in bodies} == {("alarm", bodies[0]["alarm_at"])}
    watched = Monitor.load(tmp_path / "s.json")
    assert (watched.n, watched.n_requests, watched.alarm) == (500, 2, False)
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    names = {event["body"].removeprefix("rhocal.monitor.") for event in events}
    assert names == {"batch", "alarm", "acknowledge", "reset"}, "a look without news is no event"
    assert all(set(event) == {"timestamp", "severity_text", "body", "attributes"} for event in events)


def once(folder, *options):
    arguments = ["monitor", str(folder / "in"), "-s", str(folder / "s.json"), "--json", *map(str, options)]
    return CliRunner().invoke(app, arguments)


def test_an_action_that_fails_is_tried_again_and_then_not(tmp_path):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.parquet", logits=[row.tolist() for row in Z], labels=(Z.argmax(axis=1) + 1) % 3)
    script = tmp_path / "act.py"
    script.write_text(f"import sys; open({str(tmp_path / 'got.jsonl')!r}, 'a').write(sys.stdin.read() + '\\n')")
    done = once(tmp_path, "--on-alarm", "/nonexistent/command")
    assert done.exit_code == 1
    assert "tried again later" in done.stderr
    assert not Monitor.load(tmp_path / "s.json").is_notified
    for _ in range(2):
        assert once(tmp_path, "--on-alarm", f"{sys.executable} {script}").exit_code == 1
    (line,) = (tmp_path / "got.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"]
    assert once(tmp_path, "--acknowledge", "known").exit_code == 0
    assert once(tmp_path).exit_code == 0, "an acknowledged alarm is no failure"
    assert json.loads(once(tmp_path).stdout)["acknowledged"] == "known"


def test_half_a_request_waits(tmp_path):
    state = tmp_path / "s.json"
    watched = Monitor()
    watched.add(np.full(400, 0.9), np.r_[np.ones(200), np.zeros(200)])
    requests_file(state).write_text('{"action": "reset", "note": "a"}\n{"action": "res')
    assert carry_out_requests(watched, state) == ["reset"]
    assert carry_out_requests(watched, state) == []
    assert not watched.alarm
    watched.add(np.full(400, 0.9), np.r_[np.ones(200), np.zeros(200)])
    assert watched.alarm, "the test goes on"
    assert watched.alarm_at > 400


def test_ids_of_any_type_and_label_files_that_cannot_be_used(tmp_path):
    for name in ("in", "labels"):
        (tmp_path / name).mkdir()
    write(tmp_path / "in" / "a.parquet", id=range(4), logits=[row.tolist() for row in Z[:4]])
    late = ("--labels-from", tmp_path / "labels")
    write(tmp_path / "labels" / "1.parquet", id=[0, 1, None], labels=[0.0, None, 2.0])  # pandas makes 0.0 of 0
    write(tmp_path / "labels" / "2.parquet", id=["2", "x"], labels=[1, 0])
    assert json.loads(once(tmp_path, *late).stdout)["n_samples"] == 2
    write(tmp_path / "in" / "a.parquet", id=range(5), logits=[row.tolist() for row in Z[:5]])  # a row more
    write(tmp_path / "labels" / "3.parquet", id=[4, 0], labels=[1, 1])
    assert json.loads(once(tmp_path, *late).stdout)["n_samples"] == 3
    assert "columns nope and labels" in str(once(tmp_path, *late, "--id", "nope").exception)
    (tmp_path / "labels" / "3.parquet").write_bytes(b"half")
    assert "cannot be read" in str(once(tmp_path, *late).exception)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"serve": "port"}, "--serve"),
        ({"serve": "127.0.0.1:99999"}, "--serve"),
        ({"webhook": "file:///etc/passwd"}, "http://"),
    ],
)
def test_options_that_cannot_be(options, says):
    with pytest.raises(InputError, match=says):
        Service(ServiceOptions(**options))


def test_requests_need_a_state_and_serving_needs_to_follow(tmp_path):
    (tmp_path / "in").mkdir()
    assert "no state" in str(once(tmp_path, "--reset", "x").exception)
    assert "--follow" in str(once(tmp_path, "--serve", "0").exception)
    assert "--labels-from" in str(once(tmp_path, "--labels-from", tmp_path, "--clusters", "c").exception)


def test_texts():
    watched = Monitor()
    flat = flat_values(watched.values(), 7)
    text = prometheus_text(flat)
    assert "rhocal_monitor_waiting_samples 7.0\n" in text
    assert "ece" not in text, "no samples, no error"
    watched.add(np.full(40, 0.9), np.ones(40))
    assert re.search(
        r'^rhocal_monitor_ece\{window="recent"\} 0[.]0?9', prometheus_text(flat_values(watched.values())), re.MULTILINE
    )
    history = [{"event": "reset", "n_samples": 3, "note": "<b>", "alarm_reason": None}]
    page = status_page(watched.values(), flat, history, "now")
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
