"""Real runs of lm-evaluation-harness and Inspect AI, and responses made with OpenAI's types: to a report in two commands."""

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rhocal
from rhocal.cli import app

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SAMPLES = Path(__file__).parents[1] / "data" / "samples"
WHY = "`make language-models` runs this"


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def run(script, folder):
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command, environment = [sys.executable, EXPERIMENTS / script, folder], {**os.environ, "PATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def check(path, folder):
    """Evaluate and report: the two commands."""
    values = json.loads(invoke("evaluate", path, "--json"))["evaluation"]["uncalibrated"]["values"]
    invoke("report", path, "-o", folder / "report.html")
    assert (folder / "report.html").stat().st_size > 10_000
    return values


def test_a_run_of_lm_eval(tmp_path):
    pytest.importorskip("lm_eval", reason=WHY)
    run("lm_eval/make_samples.py", tmp_path)
    (samples,) = tmp_path.glob("out/**/samples_*.jsonl")
    (results,) = tmp_path.glob("out/**/results_*.json")
    found = json.loads(results.read_text(encoding="utf-8"))["results"]["lists"]
    assert check(samples, tmp_path)["accuracy"]["value"] == pytest.approx(found["acc,none"])
    log = rhocal.read_log(samples, scores="logits_per_character")
    assert rhocal.metrics.accuracy(log.scores, log.labels, kind="logits") == pytest.approx(found["acc_norm,none"])
    recorded = rhocal.read_log(SAMPLES / "samples_lists.jsonl")
    assert log.scores.shape == recorded.scores.shape
    assert (log.labels == recorded.labels).all()


def test_logs_of_inspect(tmp_path):
    pytest.importorskip("inspect_ai", reason=WHY)
    run("inspect_logs/make_logs.py", tmp_path)
    logs = sorted([*tmp_path.glob("*.eval"), *tmp_path.glob("*.json")])
    assert len(logs) == 3
    for path in logs:
        assert 0 < check(path, tmp_path)["accuracy"]["value"] <= 1


def test_responses_of_the_types_of_openai(tmp_path):
    types = pytest.importorskip("openai.types", reason=WHY)
    chat = pytest.importorskip("openai.types.chat")
    responses = pytest.importorskip("openai.types.responses")
    for name, read, response in (
        ("chat_completions.jsonl", chat.ChatCompletion, lambda row: row["response"]["body"]),
        ("completions.jsonl", types.Completion, lambda row: row["response"]),
        ("responses.jsonl", responses.Response, lambda row: row["response"]["body"]),
    ):
        for line in (SAMPLES / name).read_text(encoding="utf-8").splitlines():
            read.model_validate(response(json.loads(line)))
    rng = random.Random(0)  # noqa: S311 - no secrets
    scores, labels = [], []
    with (tmp_path / "options.jsonl").open("w") as options, (tmp_path / "answers.jsonl").open("w") as answers:
        for k in range(60):
            drawn = [rng.gauss(0, 1) for _ in "ABCD"]
            total = math.log(sum(map(math.exp, drawn))) + 0.05
            by_token = {token: value - total for token, value in zip("ABCD", drawn, strict=True)} | {" The": -9.5}
            top = [
                {"token": token, "logprob": value, "bytes": list(token.encode())}
                for token, value in sorted(by_token.items(), key=lambda pair: -pair[1])
            ]
            token = {**top[0], "top_logprobs": top}
            end = {"token": "<|end|>", "logprob": -0.01, "bytes": None, "top_logprobs": []}
            body = chat.ChatCompletion.model_validate(
                {
                    "id": f"chatcmpl-{k}", "object": "chat.completion", "created": 1, "model": "m",
                    "choices": [
                        {
                            "index": 0, "finish_reason": "stop",
                            "message": {"role": "assistant", "content": top[0]["token"]},
                            "logprobs": {"content": [token, end], "refusal": None},
                        }
                    ],
                }
            )  # fmt: skip
            scores.append([by_token[letter] for letter in "ABCD"])
            labels.append(rng.randrange(4))
            letter = "ABCD"[labels[-1]]
            beside = {"question_id": f"q{k}"}
            options.write(json.dumps({**beside, "response": body.model_dump(mode="json"), "label": letter}) + "\n")
            plain = json.loads(body.model_dump_json(exclude_none=True))
            answers.write(json.dumps({**plain, **beside, "correct": top[0]["token"] == letter}) + "\n")
    log = rhocal.read_log(tmp_path / "options.jsonl")
    assert log.labels.tolist() == labels
    assert log.scores.tolist() == [pytest.approx(row) for row in scores]
    accuracy = sum(row.index(max(row)) == label for row, label in zip(scores, labels, strict=True)) / 60
    assert check(tmp_path / "options.jsonl", tmp_path)["accuracy"]["value"] == pytest.approx(accuracy)
    assert check(tmp_path / "answers.jsonl", tmp_path)["accuracy"]["value"] == pytest.approx(accuracy)
