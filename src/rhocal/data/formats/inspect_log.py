"""Logs of Inspect AI: ``.eval`` archives and ``.json`` files, a sample for each question and epoch.

Multiple-choice samples whose answers have the log-probabilities of the top tokens give the scores of the options. Other samples
give whether the answer is right, with the confidence that its text states, or with the log-probabilities of its tokens.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.archives import check_directory
from rhocal.data.formats.base import LogFacts
from rhocal.data.formats.completions import (
    ANSWER_SCORES,
    LETTERS,
    answer_scores,
    choice_tokens,
    option_arrays,
    option_facts,
    option_scores,
)
from rhocal.data.formats.correctness import answer_score, check_scale
from rhocal.data.formats.limits import check_expanded
from rhocal.data.formats.lines import Lines, OutcomeError, parse_object, read_lines
from rhocal.data.formats.option_numbers import label_array
from rhocal.data.formats.questions import log_file, option_column, right_or_wrong
from rhocal.errors import FileError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rhocal.data.formats.base import Names, StoredFile
    from rhocal.data.formats.completions import OptionScores
    from rhocal.data.formats.lines import Row

SOURCE = "samples of Inspect AI"
ZSTANDARD = 93
"""The number of this compression in a ZIP archive."""

LOCAL_HEADER = struct.Struct("<26xHH")
"""The lengths of name and extra field, which stand before the bytes of a member."""

UTF_8 = 0x800
"""The flag of members whose name is in UTF-8; other names are in code page 437."""

LABELED = re.compile(r"\bconfidence(?: (?:level|score|rating))?[*_]*\s*[:=][*_]*([^\n]*)", re.IGNORECASE)
"""A line such as "Confidence: 85 %"."""

SENTENCE_END = re.compile(r"\n|(?<=[.!?])\s")


ASK_FOR_CONFIDENCE = (
    'no confidence: neither log-probabilities of tokens nor a text such as "Confidence: 85 %"; evaluate with '
    "--logprobs --top-logprobs 20, or ask for the confidence"
)


def is_inspect_log(document: Any) -> bool:
    """Whether a JSON document is a log of Inspect."""
    return isinstance(document, dict) and isinstance(document.get("eval"), dict) and "samples" in document


def open_eval(path: Path, names: Names) -> StoredFile:
    """Read a ``.eval`` archive."""
    content = path.read_bytes()
    lines = Lines(path, names.skip_bad, "sample")
    with io.BytesIO(content) as file, zipfile.ZipFile(file) as archive:
        check_directory(file, archive)
        for info in archive.infolist():  # of other members too: with a damaged name a sample would be left out
            _check_name(content, info)
        members = [info for info in archive.infolist() if info.filename.startswith("samples/")]
        check_expanded(path, sum(info.file_size for info in members))
        for number, info in enumerate(members, start=1):
            lines.add(number, partial(_sample, content, archive, info))
    return read_lines(inspect_file, lines.checked(), names)


def _check_name(content: bytes, info: zipfile.ZipInfo) -> None:
    """Raise an error unless the directory of the archive and the member itself have the same name."""
    start, n_name = info.header_offset, len(content)
    if 0 <= start <= len(content) - LOCAL_HEADER.size:
        n_name, _ = LOCAL_HEADER.unpack_from(content, start)
    own = content[start + LOCAL_HEADER.size : start + LOCAL_HEADER.size + n_name]
    if own != info.orig_filename.encode("utf-8" if info.flag_bits & UTF_8 else "cp437", "replace"):
        raise FileError(f"damaged: the name of {info.filename!r} differs from the one in the directory of the archive")


def _sample(content: bytes, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Row:
    return parse_object(_member(content, archive, info))


def _member(content: bytes, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The bytes of a member; Python before 3.14 does not read Zstandard in archives."""
    if info.compress_type != ZSTANDARD:
        return archive.read(info)
    start = info.header_offset + LOCAL_HEADER.size + sum(LOCAL_HEADER.unpack_from(content, info.header_offset))
    data = _unzstandard(content[start : start + info.compress_size], info.file_size)
    if zlib.crc32(data) != info.CRC:
        raise FileError(f"{info.filename} is damaged: its checksum differs")
    return data


def _unzstandard(data: bytes, n_bytes: int) -> bytes:
    try:
        import pyarrow as pa  # noqa: PLC0415 - only for archives
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "reading .eval archives") from None
    return bytes(pa.Codec("zstd").decompress(data, n_bytes, asbytes=True))


def inspect_file(lines: Lines, names: Names) -> StoredFile:
    """Samples as arrays; of options where all samples have choices, otherwise of answers."""
    has_options = all(isinstance(row.get("choices"), list) and len(row["choices"]) > 1 for row in lines.rows)
    if has_options and any(_has_top_tokens(row) for row in lines.rows):
        return _options_file(lines, names)
    return _answers_file(lines, names)


def _options_file(lines: Lines, names: Names) -> StoredFile:
    read = lines.read(_read_options)
    scores = [part for part, _ in read]
    arrays = option_arrays(scores, 0 if names.classes is None else len(names.classes))
    arrays[names.labels] = label_array([label for _, label in read], names.classes)
    options = LETTERS[: max(len(part.logprobs) for part in scores)]
    return log_file(lines, arrays, option_facts(SOURCE, scores, options), _docs(lines))


def _read_options(row: Row) -> tuple[OptionScores, int]:
    _check_finished(row)
    options = list(LETTERS[: len(row["choices"])])
    scores = option_scores(choice_tokens(_choice(row)), options)
    label = option_column(row.get("target"), len(options), options, [str(text) for text in row["choices"]])
    verdicts = _verdicts(row)
    if verdicts and next(iter(verdicts.values())) != (scores.generated == label):
        raise OutcomeError(
            f"the score is {next(iter(verdicts.values()))}, but the answer is {options[scores.generated]} and the target "
            f"{options[label]}; choices that were shuffled cannot be matched"
        )
    return scores, label


def _answers_file(lines: Lines, names: Names) -> StoredFile:
    verdicts = lines.read(_checked_verdicts)
    arrays: dict[str, Any] = {}
    if all(_mentions_confidence(row) for row in lines.rows) or not any(_has_tokens(row) for row in lines.rows):
        labeled = ((LABELED.findall(_completion(row))[-1:] or [None])[0] for row in lines.rows)
        check_scale(lines, "confidence", labeled)
        answers = lines.read(lambda row: (_stated_confidence(row), _verdicts(row)))
        verdicts = [part for _, part in answers]
        arrays["logits"] = np.array([confidence for confidence, _ in answers])
        facts = LogFacts(SOURCE, {"logits": "confidence that the answer states"}, {"logits": "probs"}, positive=1)
    else:
        generated = lines.read(lambda row: (choice_tokens(_choice(row)), _verdicts(row)))
        verdicts = [part for _, part in generated]
        arrays |= answer_scores([tokens for tokens, _ in generated])
        facts = LogFacts(SOURCE, ANSWER_SCORES, dict.fromkeys(ANSWER_SCORES, "log_probs"), positive=1)
    scorers = [name for name in verdicts[0] if all(name in part for part in verdicts)]
    if not scorers:
        raise FileError(f"{lines.path}: its samples were scored by different scorers; none scored all of them")
    labels = {name: np.array([part[name] for part in verdicts]) for name in scorers}
    arrays |= {names.labels: labels.get(names.labels, labels[scorers[0]])} | labels
    return log_file(lines, arrays, facts, _docs(lines))


def _check_finished(row: Mapping[str, Any]) -> None:
    if row.get("error"):
        message = row["error"].get("message") if isinstance(row["error"], dict) else row["error"]
        raise FileError(f"the sample ended in an error: {str(message)[:80]}")


def _checked_verdicts(row: Row) -> dict[str, int]:
    _check_finished(row)
    verdicts = _verdicts(row)
    if not verdicts:
        raise FileError("has no score; run the log through a scorer (inspect score)")
    return verdicts


def _verdicts(row: Mapping[str, Any]) -> dict[str, int]:
    """Whether the answer is right, by scorer."""
    scores = row.get("scores")
    return {
        name: right_or_wrong(score.get("value"), f"the value of {name}")
        for name, score in (scores.items() if isinstance(scores, dict) else ())
        if isinstance(score, dict)
    }


def _choice(row: Mapping[str, Any]) -> Mapping[str, Any]:
    output = row.get("output")
    choices = output.get("choices") if isinstance(output, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise FileError("has no output of the model")
    choice: Mapping[str, Any] = choices[0]
    return choice


def _has_tokens(row: Mapping[str, Any]) -> bool:
    try:
        return bool(choice_tokens(_choice(row)))
    except FileError:
        return False


def _has_top_tokens(row: Mapping[str, Any]) -> bool:
    try:
        return any(token.top for token in choice_tokens(_choice(row)))
    except FileError:
        return False


def _stated_confidence(row: Mapping[str, Any]) -> float:
    """The confidence that an answer states: in its last line "Confidence: 85 %", else in sentences with that word.

    Numbers of a sentence count before words of another. What is denied, or not the same everywhere, is an error.
    """
    text = _completion(row)
    if "confiden" not in text.lower():
        raise FileError(ASK_FOR_CONFIDENCE)
    labeled = LABELED.findall(text)
    if labeled:
        return answer_score(labeled[-1].strip(), "confidence")
    sentences = [part for part in SENTENCE_END.split(text) if "confiden" in part.lower()]
    stated = {answer_score(part.strip(), "confidence") for part in sentences}
    if len(stated) > 1:
        raise FileError(f"the answer states several confidences: {', '.join(f'{p:g}' for p in sorted(stated))}")
    return stated.pop()


def _mentions_confidence(row: Mapping[str, Any]) -> bool:
    return "confiden" in _completion(row).lower()


def _completion(row: Mapping[str, Any]) -> str:
    """The text of the answer; empty if there is none."""
    output = row.get("output")
    text = output.get("completion") if isinstance(output, dict) else None
    return text if isinstance(text, str) else ""


def _docs(lines: Lines) -> list[Row]:
    """Identifier and subject of each sample, which may stand in its metadata."""
    return [
        (row["metadata"] if isinstance(row.get("metadata"), dict) else {}) | {"id": row.get("id")} for row in lines.rows
    ]
