"""Requests to a monitor, and alarms that are reported once each: a second alarm is not silenced by the first."""

import http.server
import json
import sys
import threading

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from helpers import synthetic
from rhocal.cli import app
from rhocal.cli.monitor_requests import carry_out_requests, leave_requests, requests_file
from rhocal.cli.monitor_run import Run
from rhocal.cli.monitor_service import Service, ServiceOptions
from rhocal.errors import InputError
from rhocal.evaluation.monitor import Monitor
from rhocal.evaluation.risk_monitor import RiskMonitor
from rhocal.reporting.monitor import flat_values, status_page

Z, Y = synthetic(600, 3, scale=1.0)
WRONG = np.r_[np.ones(200), np.zeros(200)]


def alarmed():
    watched = Monitor(promise=RiskMonitor("error", 0.1))
    watched.add(np.full(400, 0.9), WRONG)
    return watched


def break_promise(watched):
    watched.promise.add(np.ones(200, bool), np.arange(200) % 2 == 0)


@pytest.fixture
def calls(tmp_path):
    """A command for --on-alarm, and the bodies that it got."""
    script, got = tmp_path / "act.py", tmp_path / "got.jsonl"
    script.write_text(f"import sys; print('hello'); open({str(got)!r}, 'a').write(sys.stdin.read() + '\\n')")

    def bodies():
        return [json.loads(line) for line in got.read_text().splitlines()] if got.exists() else []

    return f"{sys.executable} {script}", bodies


def test_a_broken_promise_is_reported_after_an_acknowledged_alarm(tmp_path, calls):
    command, bodies = calls
    state, watched = tmp_path / "s.json", alarmed()
    watched.acknowledge("known")
    assert not watched.open_alarms
    break_promise(watched)
    assert list(watched.open_alarms) == ["promise"]
    Run(watched, state, Service(ServiceOptions(on_alarm=command))).look()
    assert [body["new"][0]["of"] for body in bodies()] == ["promise"]
    assert "which was promised" in bodies()[0]["reason"]
    flat = flat_values(watched.values())
    assert (flat["alarm"], flat["alarm_acknowledged"]) == (1, 0)
    page = status_page(watched.values(), flat, watched.history, "now")
    assert "(acknowledged: known); alarm: the error rate" in page
    watched = Monitor.load(state)
    watched.acknowledge("both")
    assert (watched.acknowledged, watched.promise.acknowledged) == ("known", "both")
    assert flat_values(watched.values())["alarm_acknowledged"] == 1


def test_a_broken_promise_is_reported_after_a_reported_alarm(tmp_path, calls):
    command, bodies = calls
    watched = alarmed()
    run = Run(watched, tmp_path / "s.json", Service(ServiceOptions(on_alarm=command)))
    run.look()
    break_promise(watched)
    for _ in range(2):
        run.look()
    assert [[alarm["of"] for alarm in body["new"]] for body in bodies()] == [["calibration"], ["promise"]]


def test_a_note_of_an_earlier_version_belongs_to_the_alarm_that_was_there(tmp_path):
    watched = Monitor(promise=RiskMonitor("error", 0.1))
    break_promise(watched)
    watched.save(tmp_path / "s.json")
    state = json.loads((tmp_path / "s.json").read_text())
    for name in ("acknowledged", "is_notified"):
        del state["promise"][name]
    del state["request_ids"]
    (tmp_path / "s.json").write_text(json.dumps(state | {"acknowledged": "known", "is_notified": True}))
    watched = Monitor.load(tmp_path / "s.json")
    assert not watched.open_alarms
    watched.add(np.full(400, 0.9), WRONG)
    assert list(watched.open_alarms) == ["calibration"]
    assert not watched.is_notified


def test_requests_after_their_file_was_deleted(tmp_path):
    state, watched = tmp_path / "s.json", alarmed()
    watched.save(state)
    for note in ("one", "two"):
        leave_requests(state, {"acknowledge": note, "reset": None})
    assert carry_out_requests(watched, state) == ["acknowledge"] * 2
    requests_file(state).unlink()
    assert carry_out_requests(watched, state) == []
    leave_requests(state, {"acknowledge": None, "reset": "new model"})
    assert carry_out_requests(watched, state) == ["reset"]
    assert carry_out_requests(watched, state) == []
    assert [event["note"] for event in watched.history] == ["one", "two", "new model"]


def test_lines_that_are_no_requests_are_named_once(tmp_path, capsys):
    state, watched = tmp_path / "s.json", alarmed()
    watched.save(state)
    requests_file(state).write_bytes(
        b'hello\n[1]\n{"action": "explode"}\n\xff\n{"action": "reset", "note": 3}\n{"action": "re'
    )
    leave_requests(state, {"acknowledge": "known", "reset": None})
    assert carry_out_requests(watched, state) == ["acknowledge"]
    assert capsys.readouterr().err.count("no request, skipped") == 6
    assert carry_out_requests(watched, state) == []
    assert not capsys.readouterr().err


def test_states_that_know_the_number_of_requests_alone(tmp_path):
    state, watched = tmp_path / "s.json", alarmed()
    requests_file(state).write_text('{"action": "reset", "note": "a"}\n{"action": "reset", "note": "a"}\n')
    watched.n_requests = 1
    assert carry_out_requests(watched, state) == ["reset"], "equal lines are two requests"
    assert carry_out_requests(watched, state) == []


def look(folder, *options):
    arguments = ["monitor", str(folder / "in"), "-s", str(folder / "s.json"), *map(str, options)]
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    pd.DataFrame({"logits": (8 * Z).tolist(), "labels": Y}).to_parquet(tmp_path / "in" / "a.parquet")
    return tmp_path


def test_what_a_command_prints_is_not_our_output(folder, calls, capfd):
    command, bodies = calls
    done = look(folder, "--json", "--on-alarm", command)
    assert json.loads(done.stdout)["alarm"]
    assert len(bodies()) == 1
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--follow", "--every", "-1"], "--every"),
        (["--follow", "--every", "nan"], "--every"),
        (["--follow", "--every", "inf"], "--every"),
        (["--on-alarm", ""], "--on-alarm: the command is empty"),
        (["--on-alarm", "echo 'x"], "--on-alarm"),
        (["--webhook", "http://127.0.0.1:9/a b"], "--webhook"),
        (["--webhook", "http://127.0.0.1:99999/"], "--webhook"),
        (["--webhook", "http:///x"], "--webhook"),
        (["--log", "/nonexistent/log.jsonl"], "--log"),
    ],
)
def test_options_are_checked_before_anything_is_counted(folder, options, says):
    done = look(folder, *options)
    assert says in str(done.exception)
    assert not (folder / "s.json").exists()


def test_a_server_that_answers_garbage_does_not_end_the_monitor(folder):
    class Handler(http.server.BaseHTTPRequestHandler):
        def handle(self):
            self.connection.recv(65536)
            self.wfile.write(b"garbage\r\n\r\n")

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = look(folder, "--webhook", f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()
    assert done.exit_code == 1
    assert "--webhook" in done.stderr
    assert "tried again later" in done.stderr


def test_nothing_to_acknowledge():
    with pytest.raises(InputError, match="no alarm"):
        Monitor().acknowledge("x")
