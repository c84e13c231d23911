"""Identifiers and answers of questions, requests that are no options, and lines that must not stop ``skip_bad``."""

import json

import numpy as np
import pytest

import rhocal
from rhocal.data.formats import open_file
from rhocal.data.formats.base import Names
from rhocal.errors import FileError


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def answers(ids, n=6):
    return [{"question_id": ids[k % len(ids)], "confidence": 0.5, "correct": k % 2 == 0} for k in range(n)]


def test_one_missing_identifier_leaves_the_others(tmp_path):
    rows = [*answers(["a", "b"]), {"question_id": None, "confidence": 0.5, "correct": True}]
    log = rhocal.read_log(write(tmp_path / "a.jsonl", rows))
    assert log.question_id[:6].tolist() == ["a", "b"] * 3
    assert len(np.unique(log.question_id)) == 3
    assert log.is_repeated


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([1.0, 2.0], ["1", "2"]),
        ([1.5, 2], ["1.5", "2"]),
        ([2**63 + 1, 2**63 + 3, -1], [str(2**63 + 1), str(2**63 + 3), "-1"]),
        (["007", "7"], ["007", "7"]),
    ],
)
def test_identifiers_are_texts(ids, expected, tmp_path):
    log = rhocal.read_log(write(tmp_path / "a.jsonl", answers(ids)))
    assert log.question_id.tolist() == [expected[k % len(ids)] for k in range(6)]
    options = [{"question_id": name, "options": ["x", "y"], "logprobs": [-1.0, -0.5], "answer": "x"} for name in ids]
    assert rhocal.read_log(write(tmp_path / "o.jsonl", options)).question_id.tolist() == expected


def test_identifiers_of_a_table(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,confidence,correct\n007,0.5,1\n7,0.6,0\n7,0.7,1\n", encoding="utf-8")
    assert rhocal.read_log(path).question_id.tolist() == ["007", "7", "7"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["01", "02"], ["01", "02"]),
        (["01", "x"], ["01", "x"]),
        (["1", "2"], ["1", "2"]),
        (["1.0", "2.0"], ["1", "2"]),
        (["01", "2.0"], ["01", "2"]),
        ([str(2**63 + 1), "7"], [str(2**63 + 1), "7"]),
        (["1e3", "2"], ["1e3", "2"]),
    ],
)
@pytest.mark.parametrize("name", ["subject", "question_id", "category"])
def test_identifiers_are_written_alike_in_every_table(cells, expected, name, tmp_path):
    path = tmp_path / "a.csv"
    rows = "".join(f"{cell},0.{k + 5},{k % 2},0{k}\n" for k, cell in enumerate(cells))
    path.write_text(f"{name},confidence,correct,length\n{rows}", encoding="utf-8")
    log = rhocal.read_log(path)
    values = log.question_id if name == "question_id" else log.subject
    assert values.astype(str).tolist() == expected
    assert log.arrays["length"].tolist() == [0, 1]  # columns of numbers stay numbers
    wide = tmp_path / "wide.csv"
    rows = "".join(f"{cell},{k}.5,1.25,-1,{k % 3}\n" for k, cell in enumerate([*cells, cells[0]]))
    wide.write_text(f"{name},logit_0,logit_1,logit_2,labels\n{rows}", encoding="utf-8")
    arrays = open_file(wide, Names()).arrays
    assert arrays[name].astype(str).tolist() == [*expected, expected[0]]
    assert arrays["logits"].shape == (3, 3)


def test_an_option_of_probability_zero_is_no_option(tmp_path):
    inf = float("inf")
    row = {"question_id": 1, "options": ["x", "y", "z"], "logprobs": [-1.0, -inf, -0.5], "answer": "x"}
    samples = [sample(k, [-1.0, -inf, -2.0], [["", "a"], ["", "b"], ["", "c"]]) for k in range(3)]
    for rows in ([row], [row | {"logprobs": {"x": -1.0, "y": -inf, "z": -2.0}}], samples):
        log = rhocal.read_log(write(tmp_path / "a.jsonl", rows))
        assert log.scores[0, 1] == -1e9
        assert rhocal.Identity().fit(log.scores, log.labels).predict_proba(log.scores)[0, 1] < 1e-300
    for bad, message in (
        ({"logprobs": [-inf, -1.0, -0.5]}, "the correct answer has the log-probability -inf"),
        ({"logprobs": [-inf, -inf, -inf]}, "has no option whose score is finite"),
        ({"logprobs": [inf, -1.0, -0.5]}, "not a finite number"),
        ({"probs": [-inf, 0.5, 0.5]}, "not a finite number"),
    ):
        changed = {key: value for key, value in row.items() if key != "logprobs"} | bad
        with pytest.raises(FileError, match=f"line 2.*{message}"):
            rhocal.read_log(
                write(tmp_path / "a.jsonl", [row if "logprobs" in bad else row | {"probs": [1, 0, 0]}, changed])
            )
        if "logprobs" in bad:
            assert len(rhocal.read_log(write(tmp_path / "a.jsonl", [row, changed]), skip_bad=True).skipped) == 1


def test_the_same_number_in_two_subjects_is_two_questions(tmp_path):
    rows = [row | {"subject": subject} for subject in ("law", "art") for row in answers([0, 1], 4)]
    log = rhocal.read_log(write(tmp_path / "a.jsonl", rows))
    assert set(log.question_id) == {"law/0", "law/1", "art/0", "art/1"}
    assert log.is_repeated


def sample(doc_id, scores, arguments, question="q", **changes):
    target = int(np.argmax(scores[: len(scores) // 2] if len(arguments) > 2 and arguments[-1][0] == "" else scores))
    row = {"doc_id": doc_id, "doc": {"q": question}, "target": target, "arguments": arguments, "acc": 1.0}
    return row | {"filtered_resps": [[score, False] for score in scores]} | changes


CONTEXT = [["ctx", " a"], ["ctx", " b"]]


def test_tasks_that_were_put_together(tmp_path):
    rows = [sample(k, [-1.0, -2.0], CONTEXT, f"{task} {k}") for task in ("x", "y") for k in range(3)]
    log = rhocal.read_log(write(tmp_path / "samples_both.jsonl", rows))
    assert len(np.unique(log.question_id)) == 6
    repeated = [sample(k, [-1.0, -2.0], CONTEXT, f"x {k}") for _ in range(2) for k in range(3)]
    log = rhocal.read_log(write(tmp_path / "samples_twice.jsonl", repeated))
    assert log.question_id.tolist() == ["0", "1", "2"] * 2


def test_likelihoods_without_the_question_are_no_options(tmp_path):
    arguments = [*CONTEXT, ["", " a"], ["", " b"]]
    rows = [sample(k, [-1.0, -2.0, -0.25, -5.0], arguments, str(k)) for k in range(2)]
    path = write(tmp_path / "samples_mutual.jsonl", rows)
    log = rhocal.read_log(path)
    np.testing.assert_array_equal(log.scores, [[-1.0, -2.0]] * 2)
    np.testing.assert_array_equal(log.arrays["logits_mutual_info"], [[-0.75, 3.0]] * 2)
    np.testing.assert_array_equal(rhocal.read_log(path, scores="logits_mutual_info").scores, [[-0.75, 3.0]] * 2)
    broken = sample(2, [-1.0, -2.0, -0.25], arguments, "2", acc=None)
    with pytest.raises(FileError, match="3 log-likelihoods for 4 requests"):
        rhocal.read_log(write(tmp_path / "samples_bad.jsonl", [*rows, broken]))


def response(top, **others):
    text = next(iter(top))
    logprobs = {"tokens": [text], "token_logprobs": [-0.1], "top_logprobs": [top]}
    return {"choices": [{"text": text, "logprobs": logprobs}]} | others


def option_question(answer="x", **changes):
    return {"question_id": "q", "options": ["x", "y"], "logprobs": [-1.0, -0.5], "answer": answer} | changes


HUGE = int("9" * 400)
GOOD_RESPONSE = response({"A": -0.1, "B": -3.0}, label="A")


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (GOOD_RESPONSE, response(["A"], label="A")),
        (GOOD_RESPONSE, response([["A", -0.1]], label="A")),
        (GOOD_RESPONSE, response({"A": -HUGE, "B": -3.0}, label="A")),
        (GOOD_RESPONSE, response({"A": -0.1, "B": -3.0}, label="9" * 5000)),
        (option_question(), option_question("9" * 5000)),
        (option_question(), option_question(logprobs=[HUGE, -1.0])),
        (sample(0, [-1.0, -2.0], CONTEXT), sample(1, [HUGE, -2.0], CONTEXT, target=0)),
        (sample(0, [-1.0, -2.0], CONTEXT), sample(1, [-1.0, -2.0], CONTEXT, target="9" * 5000)),
        (answers(["a"])[0], answers(["b"])[0] | {"correct": None}),
        (answers(["a"])[0], answers(["b"])[0] | {"confidence": None}),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_bad_line_is_named_and_skipped(good, bad, place, tmp_path):
    rows = [good, good]
    rows[place] = bad
    path = write(tmp_path / "samples_log.jsonl", rows)
    log = rhocal.read_log(path, skip_bad=True)
    assert len(log.scores) == len(log.skipped) == 1
    assert f"line {place + 1}: " in log.skipped[0]
    with pytest.raises(FileError, match=f"line {place + 1}: "):
        rhocal.read_log(path)


def test_responses_that_were_judged(tmp_path):
    rows = [response({"A": -0.1, "B": -3.0}, correct=k > 0, answer="the text of the reference") for k in range(2)]
    log = rhocal.read_log(write(tmp_path / "text.jsonl", rows))
    assert (log.holds_options, log.labels.tolist()) == (False, [0, 1])
    both = [response({"A": -0.1, "B": -3.0}, correct=label == "A", label=label) for label in "AB"]
    log = rhocal.read_log(write(tmp_path / "both.jsonl", both))
    assert (log.holds_options, log.labels.tolist()) == (True, [0, 1])
    with pytest.raises(FileError, match="line 2: states that the answer is wrong, but the answer is A and label is A"):
        rhocal.read_log(write(tmp_path / "odd.jsonl", [both[0], both[0] | {"correct": False}]))


def test_a_line_that_is_skipped_does_not_count(tmp_path):
    """The options are the letters up to the last correct one, of the lines that are used."""
    top = {"A": -0.5, "B": -1.5, "C": -2.5, "D": -3.5}
    rows = [response(top, answer="A"), response(top, answer="B"), response(top, answer="D", error="a timeout")]
    log = rhocal.read_log(write(tmp_path / "a.jsonl", rows), skip_bad=True)
    without = rhocal.read_log(write(tmp_path / "b.jsonl", rows[:2]))
    assert len(log.skipped) == 1
    np.testing.assert_array_equal(log.scores, without.scores)


NUMERALS = ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("options", "answers", "labels"),
    [
        ([NUMERALS, ["red", "blue", "x", "y"]], [2, 3], [2, 3]),  # the other line counts options
        ([NUMERALS, ["red", "blue", "x", "y"]], ["2", "3"], [2, 3]),
        ([NUMERALS, ["10", "20", "30", "40"]], [2, 30], [1, 2]),  # the other line names options
        ([NUMERALS, NUMERALS], ["2", "3"], [1, 2]),  # texts are texts
        ([NUMERALS, NUMERALS], ["B", "C"], [1, 2]),
        ([["0", "1", "2", "3"]] * 2, [2, 3], [2, 3]),  # both are the same
    ],
)
@pytest.mark.parametrize("form", ["options", "responses"])
def test_an_answer_that_is_a_number_and_a_text(tmp_path, options, answers, labels, form):
    rows = [numbered(form, o, a) for o, a in zip(options, answers, strict=True)]
    assert rhocal.read_log(write(tmp_path / "log.jsonl", rows)).labels.tolist() == labels


@pytest.mark.parametrize("form", ["options", "responses"])
@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (("A", 2), "line 2: the correct answer 2 is the number"),
        (
            (0, 2, "4"),
            "the correct answer 0 of line 1 is the number .from 0. of an option, and 4 of line 3 is the text",
        ),
    ],
)
def test_an_answer_that_may_be_either_is_an_error(tmp_path, form, answers, message):
    path = write(tmp_path / "log.jsonl", [numbered(form, NUMERALS, answer) for answer in answers])
    with pytest.raises(FileError, match=message):
        rhocal.read_log(path)


@pytest.mark.parametrize("answer", [3, "3"])
def test_a_number_may_be_the_text_of_a_lettered_option(tmp_path, answer):
    options = {"A": "2", "B": "3", "C": "four", "D": "five"}
    rows = [response({"A": -0.1, "B": -3.0}, options=options, label=answer)]
    path = write(tmp_path / "log.jsonl", rows)
    if answer == "3":
        assert rhocal.read_log(path).labels.tolist() == [1]
    else:
        with pytest.raises(FileError, match="write its letter"):
            rhocal.read_log(path)


@pytest.mark.parametrize("form", ["options", "responses"])
def test_places_are_no_names_of_classes_that_are_numbers(tmp_path, form):
    path = write(tmp_path / "log.jsonl", [numbered(form, NUMERALS, answer) for answer in ("3", "4", "4")])
    file = open_file(path, Names(classes=tuple(NUMERALS)))
    assert file.arrays["labels"].tolist() == ["3", "4", "4"]


def numbered(form, options, answer):
    if form == "options":
        return {"logprobs": [0.1, 0.2, 0.3, 0.4], "options": options, "answer": answer}
    top = {option: -0.5 - k for k, option in enumerate(options if options[0].isdigit() else "ABCD")}
    return response(top, options=options, label=answer)
