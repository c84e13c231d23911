"""Samples of lm-evaluation-harness: a file that the tool wrote, forms of its lines, and lines that cannot be read."""

import json
from pathlib import Path

import numpy as np
import pytest

import rhocal
from helpers import run
from rhocal.data.formats.questions import NO_OPTION
from rhocal.errors import FileError

WRITTEN = Path(__file__).parent / "samples" / "samples_lists.jsonl"
ROWS = [json.loads(line) for line in WRITTEN.read_text(encoding="utf-8").splitlines()]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_accuracies_are_those_of_the_tool():
    arrays = rhocal.read_lm_eval(WRITTEN)
    for name, metric in (("logits", "acc"), ("logits_per_character", "acc_norm")):
        np.testing.assert_array_equal(arrays[name].argmax(axis=1) == arrays["labels"], [row[metric] for row in ROWS])
    n_options = [len(row["doc"]["choices"]) for row in ROWS]
    assert set(n_options) == {2, 3, 4, 5}
    np.testing.assert_array_equal((arrays["logits"] != NO_OPTION).sum(axis=1), n_options)
    np.testing.assert_array_equal(arrays["subject"], [row["doc"]["subject"] for row in ROWS])
    first = next(k for k, row in enumerate(ROWS) if "Brücke" in row["doc"]["choices"])
    at = ROWS[first]["doc"]["choices"].index("Brücke")
    ratio = arrays["logits_per_character"][first, at] / arrays["logits_per_byte"][first, at]
    assert ratio == pytest.approx(7 / 6)  # ü has two bytes


def test_from_a_log_to_a_report_in_two_commands(tmp_path):
    target = tmp_path / "cal.safetensors"
    document = json.loads(run("fit", WRITTEN, "-o", target, "--json").stdout)
    assert rhocal.load(target).exchangeable  # no map of a position
    assert document["n_samples"] == 80
    run("report", WRITTEN, "-c", target, "-o", tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000
    evaluated = json.loads(run("evaluate", WRITTEN, "--json").stdout)
    assert evaluated["values"]["uncalibrated"]["accuracy"] == np.mean([row["acc"] for row in ROWS])


def test_a_map_for_each_position_is_warned_of(tmp_path):
    said = run("fit", WRITTEN, "-m", "vector", "-o", tmp_path / "cal.safetensors").stderr
    assert "have no meaning of their own" in " ".join(said.split())


@pytest.mark.parametrize("form", ["number", "text", "letter", "list"])
def test_forms_of_the_target(form, tmp_path):
    def changed(row):
        k = int(row["target"])
        return {"number": k, "text": row["doc"]["choices"][k], "letter": "ABCDE"[k], "list": [k]}[form]

    rows = [row | {"target": changed(row)} for row in ROWS]
    arrays = rhocal.read_lm_eval(write(tmp_path / "samples.jsonl", rows))
    np.testing.assert_array_equal(arrays["labels"], [int(row["target"]) for row in ROWS])


def test_arguments_and_numbers_as_earlier_versions_wrote_them(tmp_path):
    rows = [
        row
        | {
            "arguments": [list(pair.values()) for pair in row["arguments"].values()],
            "filtered_resps": [[float(value), greedy == "True"] for value, greedy in row["filtered_resps"]],
        }
        for row in ROWS
    ]
    for row in rows[:40]:
        del row["filtered_resps"]  # resps then
    new, old = rhocal.read_lm_eval(WRITTEN), rhocal.read_lm_eval(write(tmp_path / "samples.jsonl", rows))
    for name, array in new.items():
        np.testing.assert_array_equal(old[name], array)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"filtered_resps": ["The answer is 4."]},
            r"line 7: doc_id 6: holds 'The answer is 4.', not the log-likelihoods",
        ),
        ({"filtered_resps": [["-1.0", "True"]]}, "has 1 log-likelihoods"),
        ({"filtered_resps": [["nan", "True"], ["-1", "False"]]}, "not finite"),
        ({"target": 17}, "target is 17, which is none of the"),
        ({"target": "kangaroo"}, "target is 'kangaroo'"),
        ({"filter": "strict"}, "several filters"),
        ({"acc": 1 - ROWS[6]["acc"]}, "line 7: .*: acc is"),
    ],
)
def test_lines_that_cannot_be_read_are_named(change, message, tmp_path):
    rows = [*ROWS[:6], ROWS[6] | change, *ROWS[7:]]
    path = write(tmp_path / "samples.jsonl", rows)
    with pytest.raises(FileError, match=message):
        rhocal.read_lm_eval(path)
    assert "Traceback" not in run("evaluate", path, code=2).stderr


@pytest.mark.parametrize(("acc", "message"), [(1 - ROWS[6]["acc"], "acc is"), (0.63, "several correct options")])
def test_lines_whose_outcome_is_not_understood_are_never_left_out(acc, message, tmp_path):
    """Without the lines that contradict it, a wrong label would look right: of truthfulqa_mc2, right answers stayed."""
    path = write(tmp_path / "samples.jsonl", [*ROWS[:6], ROWS[6] | {"acc": acc}, *ROWS[7:]])
    for skip_bad in (False, True):
        with pytest.raises(FileError, match=f"line 7: .*{message}"):
            rhocal.read_log(path, skip_bad=skip_bad)


def test_two_contexts_with_one_continuation(tmp_path):
    """As winogrande: the target is the continuation, which both options share; the first was taken for correct."""
    arguments = {f"gen_args_{k}": {"arg_0": f"The {name} was", "arg_1": " small."} for k, name in enumerate("AB")}
    samples = {"target": "small.", "arguments": arguments, "filter": "none"}
    answers = [([-1.0, -2.0], 1.0, 0), ([-1.0, -2.0], 0.0, 1), ([-2.0, -1.0], 1.0, 1), ([-2.0, -1.0], 0.0, 0)]
    rows = [
        samples | {"doc_id": k, "acc": acc, "filtered_resps": [[str(value), "False"] for value in scores]}
        for k, (scores, acc, _) in enumerate(answers)
    ]
    log = rhocal.read_log(write(tmp_path / "samples.jsonl", rows))
    assert log.labels.tolist() == [label for _, _, label in answers]
    for acc in (None, [1.0]):
        unknown = [row | {"acc": acc} for row in rows]
        with pytest.raises(FileError, match=r"line 1: .*all 2 options have the same text"):
            rhocal.read_log(write(tmp_path / "samples.jsonl", unknown))


def test_generated_numbers_are_no_log_likelihoods(tmp_path):
    arguments = {"gen_args_0": {"arg_0": "6 × 7 =", "arg_1": {"until": ["."], "do_sample": False}}}
    rows = [{"doc_id": 0, "target": "1", "arguments": arguments, "filtered_resps": ["42", "43"], "exact_match": 1.0}]
    with pytest.raises(FileError, match="holds a generated answer"):
        rhocal.read_log(write(tmp_path / "samples.jsonl", rows))


def test_a_line_that_lacks_a_key_and_a_file_of_another_kind(tmp_path):
    rows = [*ROWS[:3], {key: value for key, value in ROWS[3].items() if key != "target"}]
    with pytest.raises(FileError, match="line 4: lacks target"):
        rhocal.read_lm_eval(write(tmp_path / "samples.jsonl", rows))
    with pytest.raises(FileError, match="no samples of lm-evaluation-harness"):
        rhocal.read_lm_eval(write(tmp_path / "other.jsonl", [{"logits": [0.1, 0.2], "labels": 1}] * 3))


def test_the_accuracy_by_length_tells_how_a_target_was_read(tmp_path):
    rows = [{name: value for name, value in row.items() if name != "acc"} for row in ROWS]
    assert all(row["acc_norm"] in {0, 1} for row in rows)
    assert len(rhocal.read_log(write(tmp_path / "right.jsonl", rows)).labels) == len(ROWS)
    path = write(tmp_path / "wrong.jsonl", [*rows[:6], rows[6] | {"acc_norm": 1 - rows[6]["acc_norm"]}, *rows[7:]])
    with pytest.raises(FileError, match="by acc_norm: acc is"):
        rhocal.read_log(path, skip_bad=True)
