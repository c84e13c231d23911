"""Logs of language models: files that tools wrote, forms of lines, and lines that cannot be used."""

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import rhocal
from helpers import run
from rhocal.data.formats.questions import NO_OPTION
from rhocal.errors import FileError

SAMPLES = Path(__file__).parent / "samples"
LETTERS = json.loads((SAMPLES / "inspect_letters.json").read_text(encoding="utf-8"))["samples"]


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def rows_of(name):
    return [json.loads(line) for line in (SAMPLES / name).read_text(encoding="utf-8").splitlines()]


def question(**changes):
    return {"question_id": "q", "options": ["red", "blue"], "logprobs": [-1.5, -0.5], "answer": "blue"} | changes


# --- files that tools wrote


def test_options_of_an_inspect_log_are_the_top_tokens():
    log, other = (rhocal.read_log(SAMPLES / f"inspect_letters.{ending}") for ending in ("eval", "json"))
    assert (log.kind, log.holds_options, len(log.labels), len(other.labels)) == ("logits", True, 24, 6)
    np.testing.assert_array_equal(log.scores[:6], other.scores)
    for row, scores, label, subject in zip(LETTERS, other.scores, other.labels, other.subject, strict=True):
        entry = row["output"]["choices"][0]["logprobs"]["content"][-1]
        top = {one["token"]: one["logprob"] for one in entry["top_logprobs"]}
        assert subject == row["metadata"]["subject"]
        assert "ABCD"[label] == row["target"]
        assert ((scores.argmax() == label) == (row["scores"]["choice"]["value"] == "C")) or " A" in top
        for letter, score in zip("ABCD"[: len(row["choices"])], scores, strict=False):
            known = [top[token] for token in (letter, f" {letter}") if token in top]
            assert score == pytest.approx(np.logaddexp.reduce(known) if known else min(top.values()), abs=1e-9)
        assert (scores[len(row["choices"]) :] == NO_OPTION).all()


def test_confidence_in_words_of_an_inspect_log():
    log = rhocal.read_log(SAMPLES / "inspect_sums.eval")
    assert (log.kind, log.holds_options, log.is_repeated) == ("probs", False, True)
    assert set(log.scores) <= {0.85, 0.95, 0.9, 0.6, 0.7}
    assert len(np.unique(log.question_id)) == len(log.labels) / 2 == 15
    assert set(log.labels) == {0, 1}


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("Paris. Confidence: 90 %", 0.9),
        ("**Confidence:** very likely", 0.9),
        ("I have 95% confidence. It is likely Paris", 0.95),
        ("Growth was 40 %. I am 95 % confident.", 0.95),
        ("Confidence: 10 %. No, wait.\nConfidence: 70 %", 0.7),
        ("Confidence: -5%", None),
        ("I'm confident that the answer is 42%", None),
        ("I am not confident at all, not even 10 %", None),
        ("I am 90 % confident. No, I am 60 % confident.", None),
        ("Paris", None),
    ],
)
def test_where_an_answer_states_its_confidence(text, confidence, tmp_path):
    def sample(k, completion):
        return {"id": k, "output": {"completion": completion}, "scores": {"match": {"value": "C" if k else "I"}}}

    samples = [sample(0, "Confidence: 50 %"), sample(1, text)]
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"eval": {}, "samples": samples}), encoding="utf-8")
    log = rhocal.read_log(path, skip_bad=True)
    assert log.scores.tolist() == [0.5] + ([] if confidence is None else [confidence])
    if confidence is None:
        assert "sample 2" in log.skipped[0]
        with pytest.raises(FileError, match="sample 2"):
            rhocal.read_log(path)


@pytest.mark.parametrize("labels", [{"correct": True}, {"label": "B", "options": ["A", "B"]}])
def test_the_prompt_of_an_echo_is_no_part_of_the_answer(labels, tmp_path):
    """The mean of the tokens' log-probabilities was that of prompt and answer together."""
    tokens, values = ["A", ".", " B", " Answer", " B", "."], [None, -5.0, -4.0, -6.0, -0.5, -0.1]
    tops = [None, *({token: value, " A": value - 1} for token, value in zip(tokens[1:], values[1:], strict=True))]
    logprobs = {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops}
    row = {"question_id": "q", "response": {"choices": [{"text": "", "logprobs": logprobs}]}} | labels
    with pytest.raises(FileError, match=r"line 1: holds the tokens of the prompt too \(echo\)"):
        rhocal.read_log(write(tmp_path / "echo.jsonl", [row]))
    row["response"]["usage"] = {"prompt_tokens": 4}
    log = rhocal.read_log(write(tmp_path / "echo.jsonl", [row]))
    expected = [-0.3] if "correct" in labels else [[-1.5, -0.5]]
    np.testing.assert_allclose(log.scores, expected)
    row["response"]["usage"] = {"prompt_tokens": 6}  # nothing was generated
    with pytest.raises(FileError, match="the answer has no tokens"):
        rhocal.read_log(write(tmp_path / "echo.jsonl", [row]))


def test_a_scale_that_ends_above_1_is_refused_with_skip_bad_too(tmp_path):
    """Lines of 85 and 90 were left out, and 1 of 100 was read as certain."""
    rows = [{"confidence": value, "correct": value > 50} for value in (1, 85, 90, 0)]
    path = write(tmp_path / "percent.jsonl", rows)
    texts = [{"id": k, "output": {"completion": f"4\nConfidence: {row['confidence']}"}} for k, row in enumerate(rows)]
    log = tmp_path / "percent.json"
    log.write_text(json.dumps({"eval": {}, "samples": [row | {"scores": {"match": {"value": "C"}}} for row in texts]}))
    for skip_bad in (False, True):
        with pytest.raises(FileError, match=r"sample 2: confidence is 85, and others are 0 or 1"):
            rhocal.read_log(log, skip_bad=skip_bad)
        with pytest.raises(FileError, match=r"line 2: confidence is 85, and others are 0 or 1"):
            rhocal.read_log(path, skip_bad=skip_bad)


@pytest.mark.parametrize("wrapped", [True, False])
def test_options_of_chat_completions(wrapped, tmp_path):
    rows = rows_of("chat_completions.jsonl")
    path = SAMPLES / "chat_completions.jsonl"
    if not wrapped:  # the response itself, with the label beside it
        plain = [row["response"]["body"] | {"label": row["label"], "question_id": row["custom_id"]} for row in rows]
        path = write(tmp_path / "chat.jsonl", plain)
    log = rhocal.read_log(path)
    assert log.scores.shape == (16, 4)
    np.testing.assert_array_equal(log.question_id, [row["custom_id"] for row in rows])
    for k, (row, scores) in enumerate(zip(rows, log.scores, strict=True)):
        assert "ABCD"[log.labels[k]] == row["label"]
        top = row["response"]["body"]["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        probs = {
            letter: sum(np.exp(one["logprob"]) for one in top if one["token"].strip() == letter) for letter in "ABCD"
        }
        seen = [j for j, letter in enumerate("ABCD") if probs[letter]]
        np.testing.assert_allclose(np.exp(scores[seen]), [probs["ABCD"[j]] for j in seen], rtol=1e-9)
        assert log.arrays["rest"][k] == pytest.approx(1 - sum(probs.values()))
        assert (scores[3] == NO_OPTION) == (wrapped and len(row["options"]) == 3)


@pytest.mark.parametrize("wrapped", [True, False])
def test_responses_with_an_output_are_read_as_chat_completions(wrapped, tmp_path):
    """Reasoning and comments before the answer are no answers."""
    path, expected = SAMPLES / "responses.jsonl", rhocal.read_log(SAMPLES / "chat_completions.jsonl")
    if not wrapped:
        rows = rows_of("responses.jsonl")
        beside = ("label", "options", "custom_id", "subject")
        path = write(
            tmp_path / "a.jsonl", [row["response"]["body"] | {key: row[key] for key in beside} for row in rows]
        )
    log = rhocal.read_log(path)
    for name in ("scores", "labels", "question_id"):
        np.testing.assert_array_equal(getattr(log, name), getattr(expected, name))
    judged = [{"correct": k % 2, **row} for k, row in enumerate(rows_of("responses.jsonl"))]
    for row in judged:
        del row["label"], row["options"]
    answers = rhocal.read_log(write(tmp_path / "judged.jsonl", judged))
    tokens = rows_of("chat_completions.jsonl")[3]["response"]["body"]["choices"][0]["logprobs"]["content"]
    assert answers.scores[3] == pytest.approx(np.mean([token["logprob"] for token in tokens]))
    assert answers.labels.tolist() == [k % 2 for k in range(16)]


def test_choices_beside_an_output_are_read(tmp_path):
    """What a user adds to a chat completion may be named ``output``."""
    rows, expected = rows_of("chat_completions.jsonl"), rhocal.read_log(SAMPLES / "chat_completions.jsonl")
    for k, row in enumerate(rows):
        row["response"]["body"]["output"] = [[], ["A"], row["response"]["body"]["choices"]][k % 3]
    log = rhocal.read_log(write(tmp_path / "a.jsonl", rows))
    np.testing.assert_array_equal(log.scores, expected.scores)


def test_options_are_named_by_labels_in_any_case_and_printed(tmp_path):
    rows = [row | {"label": row["label"].lower()} for row in rows_of("chat_completions.jsonl")]
    plain = [{key: value for key, value in row.items() if key != "options"} for row in rows]
    for name, changed in (("stated", rows), ("plain", plain)):
        path = write(tmp_path / f"{name}.jsonl", changed)
        assert rhocal.read_log(path).scores.shape == (16, 4)
        assert "of the tokens A to D" in run("evaluate", path).stderr


def test_aggregates_of_the_tokens_of_an_answer():
    rows = rows_of("completions.jsonl")
    log = rhocal.read_log(SAMPLES / "completions.jsonl")
    tokens = [row["response"]["choices"][0]["logprobs"]["token_logprobs"] for row in rows]
    np.testing.assert_allclose(log.scores, [np.mean(values) for values in tokens])
    np.testing.assert_allclose(log.arrays["logprob_sum"], [sum(values) for values in tokens])
    np.testing.assert_allclose(log.arrays["logprob_min"], [min(values) for values in tokens])
    assert rhocal.read_log(SAMPLES / "completions.jsonl", scores="logprob_min").scores[0] == min(tokens[0])
    assert (log.kind, log.is_repeated) == ("log_probs", True)


# --- forms of lines


@pytest.mark.parametrize(
    ("row", "scores", "kind"),
    [
        (question(), [-1.5, -0.5], "logits"),
        (question(answer=1), [-1.5, -0.5], "logits"),
        (question(answer="B"), [-1.5, -0.5], "logits"),
        (question(answer=1.0), [-1.5, -0.5], "logits"),
        ({"options": {"A": -1.5, "B": -0.5}, "answer": "B"}, [-1.5, -0.5], "logits"),
        ({"choices": [{"text": "x", "prob": 0.2}, {"text": "y", "prob": 0.8}], "label": "y"}, [0.2, 0.8], "probs"),
        ({"question_id": 1, "probs": {"3": 0.3, "7": 0.7}, "answer": 7}, [0.3, 0.7], "probs"),
        ({"options": ["7", "1"], "logits": [0.5, 2], "gold": "1"}, [0.5, 2], "logits"),
    ],
)
def test_forms_of_options(row, scores, kind, tmp_path):
    log = rhocal.read_log(write(tmp_path / "a.jsonl", [row] * 3))
    np.testing.assert_array_equal(log.scores, [scores] * 3)
    assert (log.kind, log.labels.tolist(), log.holds_options) == (kind, [1, 1, 1], True)


def test_questions_with_different_numbers_of_options(tmp_path):
    rows = [question(), question(options=["a", "b", "c"], logprobs=[-1, -2, -3], answer="c")]
    log = rhocal.read_log(write(tmp_path / "a.jsonl", rows))
    np.testing.assert_array_equal(log.scores, [[-1.5, -0.5, NO_OPTION], [-1, -2, -3]])
    rows = [
        {"options": [1, 2], "probs": [0.5, 0.5], "answer": 0},
        {"options": "abc", "probs": [0, 0.25, 0.75], "answer": 2},
    ]
    rows[1]["options"] = ["a", "b", "c"]
    log = rhocal.read_log(write(tmp_path / "b.jsonl", rows))
    np.testing.assert_array_equal(log.scores, [[0.5, 0.5, 0], [0, 0.25, 0.75]])


@pytest.mark.parametrize(
    ("key", "value", "score", "kind"),
    [
        ("score", -3.5, -3.5, "logits"),
        ("reward", 7, 7, "logits"),
        ("confidence", "85 %", 0.85, "probs"),
        ("confidence", "Very likely", 0.9, "probs"),
        ("probability", 0.25, 0.25, "probs"),
        ("logprob", -0.5, -0.5, "log_probs"),
    ],
)
def test_answers_with_a_score(key, value, score, kind, tmp_path):
    rows = [
        {"question_id": k // 2, key: value, "correct": k % 2 == 0, "length": k, "subject": "math"} for k in range(4)
    ]
    log = rhocal.read_log(write(tmp_path / "a.jsonl", rows))
    assert (log.scores.tolist(), log.kind, log.labels.tolist()) == ([score] * 4, kind, [1, 0, 1, 0])
    assert log.is_repeated
    assert log.arrays["length"].tolist() == [0, 1, 2, 3]
    assert log.subject.tolist() == ["math"] * 4


def test_answers_in_a_table_and_answers_whose_outcome_is_not_known_yet(tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=60)
    rows = [{"id": k, "score": s, "correct": bool(rng.random() < 1 / (1 + np.exp(-s)))} for k, s in enumerate(scores)]
    write(tmp_path / "a.jsonl", rows)
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "a.csv").write_text("\n".join(lines), encoding="utf-8")
    logs = [rhocal.read_log(tmp_path / name) for name in ("a.jsonl", "a.csv")]
    np.testing.assert_array_equal(logs[0].scores, logs[1].scores)
    np.testing.assert_array_equal(logs[0].labels, logs[1].labels)
    run("fit", tmp_path / "a.csv", "-m", "platt", "-o", tmp_path / "c.safetensors")
    new = [{key: value for key, value in row.items() if key != "correct"} for row in rows]
    run("apply", tmp_path / "c.safetensors", write(tmp_path / "new.jsonl", new), "-o", tmp_path / "p.npz")
    run("apply", tmp_path / "c.safetensors", tmp_path / "a.jsonl", "-o", tmp_path / "q.npz")
    with np.load(tmp_path / "p.npz") as applied, np.load(tmp_path / "q.npz") as known:
        np.testing.assert_array_equal(applied["probs"], known["probs"])
        assert applied["question_id"].tolist() == [str(k) for k in range(60)]


def test_marks_line_endings_and_compression_change_nothing(tmp_path):
    rows = [question(question_id=f"Brücke {k}", logprobs=[-k, -1]) for k in range(5)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows)
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + text.replace("\r\n", "\r\n\r\n").encode())
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    for name in ("a.jsonl", "a.jsonl.gz", "a.json"):
        log = rhocal.read_log(tmp_path / name)
        assert log.question_id.tolist() == [row["question_id"] for row in rows]
        np.testing.assert_array_equal(log.scores, [row["logprobs"] for row in rows])


# --- lines that cannot be used

CHAT = rows_of("chat_completions.jsonl")[0]
RESPONSE = rows_of("responses.jsonl")[0]


def chat(changes):
    """A response whose only token is changed."""
    row = json.loads(json.dumps(CHAT))
    row["response"]["body"]["choices"][0]["logprobs"]["content"][0] |= changes
    return row


def response(content=None, **changes):
    """A response whose message has other content, or which differs itself."""
    row = json.loads(json.dumps(RESPONSE))
    body = row["response"]["body"] = row["response"]["body"] | changes
    if content is not None:
        body["output"][0]["content"] = content
    return row


BAD = [
    (question(), question(answer="green"), "the correct answer is 'green', which is none of the options: red, blue"),
    (question(), question(answer=None), "has no correct answer"),
    (question(), question(options=["x", "x"], answer="x"), "is the text of more than one option"),
    (question(), question(logprobs=[-1, None]), r"logprobs\[1\] is 'None', not a number"),
    (question(), question(logprobs=[-1, float("nan")]), r"logprobs\[1\] is nan, not a finite number"),
    (question(), question(logprobs=[-1]), "has 2 options and 1 logprobs"),
    (question(), question(options=["x"], logprobs=[-1]), "a question needs at least 2"),
    (question(), ["a"], r"holds no object \(\{…\}\), but list"),
    ({"probs": [0.5, 0.5], "options": [1, 2], "gold": 0}, {"probs": [0.6, 0.6], "options": [1, 2], "gold": 0}, "sum to 1.2"),
    ({"score": 1, "correct": True}, {"score": 1, "correct": 0.5}, "correct is '0.5'; need true or false"),
    ({"score": 1, "correct": True}, {"score": "high", "correct": True}, "score is 'high', not a number"),
    ({"score": 1, "correct": True}, {"correct": True}, "has no score, which the first line has"),
    ({"confidence": 0.5, "correct": 1}, {"confidence": 85, "correct": 1}, "write a number from 0 to 1"),
    (CHAT, chat({"logprob": None}), "the log-probability of '.' is None"),
    (CHAT, chat({"logprob": float("nan")}), "is nan; it is a number of at most 0"),
    (CHAT, chat({"token": "Well"}), "has no token that is one of the options A, B, C"),
    (CHAT, CHAT | {"label": "Z"}, "the correct answer is 'Z'"),
    (CHAT, CHAT | {"response": {"status_code": 429, "body": {}}}, "the request failed with status 429"),
    (CHAT, CHAT | {"response": None, "error": {"message": "rate limit"}}, "the request failed: .*rate limit"),
    (RESPONSE, response([{"type": "output_text", "text": "A", "annotations": []}]), r"request them with include=\['message"),
    (RESPONSE, response([{"type": "refusal", "refusal": "no"}]), "the model refused to answer"),
    (RESPONSE, response(output=[]), "the response has no message with a text"),
    (RESPONSE, response(error={"code": "server_error", "message": "down"}), "the request failed: .*down"),
]  # fmt: skip


@pytest.mark.parametrize(("good", "bad", "message"), BAD)
def test_lines_that_cannot_be_used_are_named_or_left_out(good, bad, message, tmp_path):
    path = write(tmp_path / "a.jsonl", [good, good, bad, good])
    with pytest.raises(FileError, match=f"a.jsonl: line 3: .*{message}.* Pass skip_bad=True"):
        rhocal.read_log(path)
    log = rhocal.read_log(path, skip_bad=True)
    assert len(log.labels) == len(log.scores) == 3
    assert len(log.skipped) == 1
    assert "line 3" in log.skipped[0]


def test_the_command_line_names_the_line_and_counts_those_left_out(tmp_path):
    good = [question(question_id=k, logprobs=[-k % 7, -k % 3], answer=k % 2) for k in range(40)]
    path = write(tmp_path / "a.jsonl", good)
    path.write_bytes(path.read_bytes() + b"{\xff}\n{not JSON}\n")
    failed = run("evaluate", path, code=2).stderr
    assert "line 41: is not UTF-8 text" in failed
    assert "Use --skip-bad to leave such lines out" in failed
    done = run("evaluate", path, "--skip-bad", "--json")
    assert "skipped: 2 in all" in done.stderr
    document = json.loads(done.stdout)
    assert (document["n_samples"], document["n_skipped"]) == (40, 2)
    for command in (
        ("fit", path, "-m", "temperature", "-o", tmp_path / "c.safetensors"),
        ("report", path, "-o", tmp_path / "r.html"),
    ):
        assert "skipped: 2 in all" in run(*command, "--skip-bad").stderr
    applied = run("apply", tmp_path / "c.safetensors", path, "-o", tmp_path / "p.npz", "--skip-bad")
    assert "skipped: 2 in all" in applied.stderr
    written = np.load(tmp_path / "p.npz")
    assert len(written["probs"]) == 40
    assert written["question_id"].tolist() == [str(k) for k in range(40)]
    refused = run("apply", tmp_path / "c.safetensors", path, "-o", tmp_path / "p.npy", "--skip-bad", code=2)
    assert "would shift the rows" in refused.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "has no line with an object"),
        (b"\xef\xbb\xbf", "has no line with an object"),
        (b"null\n", "line 1: holds no object"),
        (b"[" * 100_000, "line 1: is not JSON"),
        (
            b'{"options": {"A": 0.7, "B": 0.3}, "answer": "A"}\n' * 3,
            "as probabilities do, and nothing states what they are",
        ),
        (b'{"a": 1, "a": 2}\n', "stands there more than once"),
    ],
)
def test_files_that_cannot_be_used(content, message, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(FileError, match=message):
        rhocal.read_log(tmp_path / "a.jsonl")


def test_archives_that_cannot_be_used(tmp_path):
    path = tmp_path / "a.eval"
    path.write_bytes((SAMPLES / "inspect_letters.eval").read_bytes()[:5000])
    with pytest.raises(FileError, match="damaged"):
        rhocal.read_log(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_journal/start.json", "{}")
    with pytest.raises(FileError, match="has no sample"):
        rhocal.read_log(path)
    sample = LETTERS[0]
    broken = {
        "shuffled": sample | {"scores": {"choice": {"value": "I"}}},
        "failed": sample | {"error": {"message": "out of memory"}},
        "cut": None,
    }
    for name, changed in broken.items():
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("samples/q0_epoch_1.json", json.dumps(sample))
            archive.writestr("samples/q1_epoch_1.json", json.dumps(changed) if changed else '{"id": ')
        message = {"shuffled": "choices that were shuffled", "failed": "out of memory", "cut": "is not JSON"}[name]
        with pytest.raises(FileError, match=f"sample 2: .*{message}"):
            rhocal.read_log(path)
        if name == "shuffled":  # where a wrong label agrees by chance the sample would stay
            with pytest.raises(FileError, match=f"sample 2: .*{message}"):
                rhocal.read_log(path, skip_bad=True)
            continue
        assert len(rhocal.read_log(path, skip_bad=True).labels) == 1


def test_an_option_that_a_question_does_not_have_gets_nothing(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for k in range(120):
        n = 2 + k % 3
        scores = rng.normal(size=n)
        rows.append({"id": k, "logprobs": scores.tolist(), "options": list("ABCD")[:n], "answer": "AB"[k % 2]})
    path, target, output = write(tmp_path / "o.jsonl", rows), tmp_path / "c.safetensors", tmp_path / "p.npz"
    run("fit", path, "-m", "field", "-o", target)
    run("apply", target, path, "-o", output)
    with np.load(output) as written:
        probs = written["probs"]
    for k, row in enumerate(probs):
        assert (row[2 + k % 3 :] == 0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1)
