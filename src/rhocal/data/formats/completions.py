"""Responses of serving APIs (OpenAI, vLLM) with log-probabilities of tokens: chat completions, completions and responses.

A line is a response, or an object that holds one under ``response``, with what the user adds: the correct option (``label``),
or whether the answer is right (``correct``). With options, their log-probabilities are those of the tokens A, B, … at the
position of the answer; otherwise an answer has the sum, the mean and the least of its tokens' log-probabilities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.base import LogFacts
from rhocal.data.formats.option_numbers import Number, label_array, settle_numbers
from rhocal.data.formats.questions import (
    CORRECT,
    LABELS,
    NO_OPTION,
    filled,
    first_key,
    log_file,
    option_column,
    right_or_wrong,
)
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rhocal.data.formats.base import Names, StoredFile
    from rhocal.data.formats.lines import Lines, Row

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
AROUND = " \t\n\r()[]{}<>*_`\"'.:,;#▁Ġ"
"""What may stand around the letter of an option in its token; the last two are how tokenizers write a space."""

LEAST_REST = 1e-12
"""Probability of an option that is not among the top tokens where they leave nothing for it."""

MAX_LOGPROB = 1e300
"""Largest size of a log-probability; larger whole numbers are no floats."""

ANSWER_SCORES = {
    "logits": "mean log-probability of the tokens of the answer",
    "logprob_sum": "their sum",
    "logprob_min": "the least of them",
}


@dataclass(frozen=True)
class Token:
    """A generated token with its log-probability, and those of the most probable tokens at its position."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class OptionScores:
    """The options of a response."""

    logprobs: list[float]
    rest: float
    """Total probability of all tokens that are no option."""
    n_bounded: int
    """Options that are not among the top tokens."""
    generated: int
    """The option that was generated."""


def body_of(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The response of a line; None if it has none."""
    body: Any = row
    for key in ("response", "completion", "body"):
        if isinstance(body, dict) and isinstance(body.get(key), dict):
            body = body[key]
    if not isinstance(body, dict):
        return None
    if _first_choice(body) is not None:
        return body
    is_output = isinstance(body.get("output"), list)
    return body if is_output and (body.get("object") == "response" or _messages(body["output"])) else None


def _first_choice(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first choice of a completion; None for other responses."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) and ("message" in choice or "logprobs" in choice) else None


def _messages(output: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The messages among the items of a response, which holds reasoning and calls of tools too; comments are no answers."""
    items = (item for item in output if isinstance(item, dict) and item.get("type") == "message")
    return [item for item in items if item.get("phase") != "commentary"]


def is_completion(row: Mapping[str, Any]) -> bool:
    """Whether an object holds a response, or that a request failed."""
    return body_of(row) is not None or {"custom_id", "error"} <= row.keys()


def completions_file(lines: Lines, names: Names) -> StoredFile:
    """Responses as arrays: options where a line states a correct one or names them, otherwise answers."""
    keys = (names.labels, *LABELS)
    states_correct = any(first_key(row, CORRECT) is not None for row in lines.rows)
    states_options = any(_names_option(row, keys, is_judged=states_correct) for row in lines.rows)
    if states_options or (names.classes is not None and not states_correct and len(names.classes) > 2):
        return _options_file(lines, names, keys)
    answers = lines.read(lambda row: (response_tokens(row), _correct(row) if states_correct else 0))
    arrays = answer_scores([tokens for tokens, _ in answers])
    if states_correct:
        arrays[names.labels] = np.array([label for _, label in answers])
    facts = LogFacts(
        "responses with log-probabilities of tokens",
        ANSWER_SCORES,
        dict.fromkeys(ANSWER_SCORES, "log_probs"),
        positive=1,
    )
    return log_file(lines, arrays, facts, [_without_response_id(row) for row in lines.rows])


def _names_option(row: Mapping[str, Any], keys: tuple[str, ...], *, is_judged: bool) -> bool:
    """Whether a line names options, or the correct one. Where lines state whether answers are right, a text is no option."""
    if row.get("options") is not None:
        return True
    value = row.get(first_key(row, keys) or "")
    if not is_judged or value is None:
        return value is not None
    return isinstance(value, int) or (isinstance(value, str) and len(value.strip()) == 1)


def _options_file(lines: Lines, names: Names, label_keys: tuple[str, ...]) -> StoredFile:
    shared = shared_options(lines.rows, names, label_keys)
    has_labels = any(first_key(row, label_keys) is not None for row in lines.rows)

    def read(row: Row) -> tuple[OptionScores, int, Number | None]:
        options = _stated_options(row) or shared
        scores = option_scores(response_tokens(row), options)
        if not has_labels:
            return scores, 0, None
        key = first_key(row, label_keys)
        if key is None:
            raise FileError(f"has no correct answer; need one of the keys {', '.join(dict.fromkeys(label_keys))}")
        texts = _stated_texts(row)
        label = option_column(row[key], len(options), options, texts)
        return scores, label, Number.from_target(row[key], options, len(options), texts)

    read_rows = lines.read(read)
    scores = [part for part, _, _ in read_rows]
    if has_labels:
        labels = settle_numbers(lines, [label for _, label, _ in read_rows], [number for _, _, number in read_rows])
        settled = iter(zip(scores, labels, strict=True))
        judged = lines.read(lambda row: _agreeing(row, *next(settled), _stated_options(row) or shared, label_keys))
        scores, labels = [part for part, _ in judged], [label for _, label in judged]
    arrays = option_arrays(scores, 0 if names.classes is None else len(names.classes))
    if has_labels:
        arrays[names.labels] = label_array(labels, names.classes)
    used = max((_stated_options(row) or shared for row in lines.rows), key=len)
    facts = option_facts("responses with the top tokens", scores, used)
    return log_file(lines, arrays, facts, [_without_response_id(row) for row in lines.rows])


def _agreeing(
    row: Row, scores: OptionScores, label: int, options: Sequence[str], label_keys: tuple[str, ...]
) -> tuple[OptionScores, int]:
    """The same; an error where the line states whether the answer is right, and its correct option says otherwise."""
    if first_key(row, CORRECT) is not None and _correct(row) != (scores.generated == label):
        raise FileError(
            f"states that the answer is {'right' if _correct(row) else 'wrong'}, but the answer is "
            f"{options[scores.generated]} and {first_key(row, label_keys)} is {options[label]}; leave one of them out"
        )
    return scores, label


def option_arrays(scores: Sequence[OptionScores], n_options: int) -> dict[str, Any]:
    """The options of all responses as a matrix, with the probability of everything else."""
    rows = [[max(value, NO_OPTION) for value in part.logprobs] for part in scores]
    return {"logits": filled(rows, n_options), "rest": np.array([part.rest for part in scores])}


def option_facts(source: str, scores: Sequence[OptionScores], options: Sequence[str]) -> LogFacts:
    """What is printed of responses with options."""
    n_bounded, n = sum(part.n_bounded for part in scores), sum(len(part.logprobs) for part in scores)
    bounded = f"{n_bounded:,} of {n:,} options are not among the top tokens: they get the most that is left for them"
    texts = {"logits": f"log-probabilities of the tokens {options[0]} to {options[-1]} at the position of the answer"}
    notes = (bounded,) if n_bounded else ()
    return LogFacts(source, texts, {"logits": "logits"}, holds_options=True, notes=notes)


def shared_options(rows: Sequence[Row], names: Names, label_keys: tuple[str, ...]) -> list[str]:
    """The options of lines that do not name theirs: those of the caller, else the letters up to the last correct one."""
    if names.classes is not None and len(names.classes) > 1:
        counts = list(names.classes) == [str(k) for k in range(len(names.classes))]
        return list(LETTERS[: len(names.classes)]) if counts else list(names.classes)
    last = 1
    for row in rows:
        value = row.get(first_key(row, label_keys) or "")
        text = str(value[0] if isinstance(value, list) and len(value) == 1 else value).strip()
        if isinstance(value, int) and not isinstance(value, bool):
            last = max(last, value)
        elif len(text) == 1 and text.upper() in LETTERS:
            last = max(last, LETTERS.index(text.upper()))
    return list(LETTERS[: min(last, len(LETTERS) - 1) + 1])


def _stated_options(row: Mapping[str, Any]) -> list[str] | None:
    """The tokens of the options that a line names: the keys of an object, short texts, or a letter for each long one."""
    options = row.get("options")
    if isinstance(options, dict) and len(options) > 1:
        return list(options)
    if not isinstance(options, list) or len(options) < 2:
        return None
    texts = [str(option) for option in options]
    return texts if all(len(text) <= 2 for text in texts) else list(LETTERS[: len(texts)])


def _stated_texts(row: Mapping[str, Any]) -> list[str]:
    options = row.get("options")
    if isinstance(options, dict):
        return [str(text) for text in options.values()]
    return [str(text) for text in options] if isinstance(options, list) else []


def _correct(row: Row) -> int:
    key = first_key(row, CORRECT)
    if key is None:
        raise FileError(f"does not state whether the answer is right; need one of the keys {', '.join(CORRECT)}")
    return right_or_wrong(row[key], key)


def _without_response_id(row: Row) -> Row:
    """A line without the identifier of its response, which is not that of the question."""
    return row if body_of(row) is not row else {key: value for key, value in row.items() if key != "id"}


def response_tokens(row: Mapping[str, Any]) -> list[Token]:
    """The tokens of the first choice of a response."""
    if row.get("error"):
        raise FileError(f"the request failed: {str(row['error'])[:80]}")
    body = body_of(row)
    if body is None:
        response = row.get("response")
        status = response.get("status_code") if isinstance(response, dict) else None
        reason = (
            f"the request failed with status {status}"
            if status not in {None, 200}
            else "holds no response with choices or output"
        )
        raise FileError(reason)
    choice = _first_choice(body)
    if choice is None:
        return output_tokens(body)
    usage = body.get("usage")
    return choice_tokens(choice, usage.get("prompt_tokens") if isinstance(usage, dict) else None)


def output_tokens(body: Mapping[str, Any]) -> list[Token]:
    """The tokens of the texts of a response, in their order."""
    if body.get("error"):
        raise FileError(f"the request failed: {str(body['error'])[:80]}")
    contents = [item.get("content") for item in _messages(body["output"])]
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict)]
    if any(part.get("type") == "refusal" for part in parts):
        raise FileError("the model refused to answer")
    texts = [part for part in parts if part.get("type") == "output_text" and part.get("text") != ""]
    if not texts:
        raise FileError("the response has no message with a text")
    tokens = []
    for part in texts:
        entries = part.get("logprobs")
        if not isinstance(entries, list) or not entries:
            raise FileError(
                "holds no log-probabilities; request them with include=['message.output_text.logprobs'] and top_logprobs=20"
            )
        tokens += [_chat_token(entry) for entry in entries]
    return tokens


def choice_tokens(choice: Mapping[str, Any], n_prompt: Any = None) -> list[Token]:
    """The tokens of a choice: those of chat completions, or those of completions.

    Completions with an echo begin with the ``n_prompt`` tokens of the prompt, which are no part of the answer.
    """
    log_probs = choice.get("logprobs")
    if not isinstance(log_probs, dict):
        raise FileError("holds no log-probabilities; request them with logprobs=true and top_logprobs=20")
    if isinstance(log_probs.get("content"), list):
        tokens = [_chat_token(entry) for entry in log_probs["content"]]
    else:
        texts, values = log_probs.get("tokens"), log_probs.get("token_logprobs")
        if not isinstance(texts, list) or not isinstance(values, list) or len(texts) != len(values):
            raise FileError("logprobs hold neither content nor tokens with token_logprobs")
        tops = log_probs.get("top_logprobs")
        tops = tops if isinstance(tops, list) and len(tops) == len(texts) else [{}] * len(texts)
        parts = list(zip(texts, values, tops, strict=True))[_n_echoed(values, n_prompt) :]
        tokens = [_token(text, value, _top_tokens(top)) for text, value, top in parts]
    if not tokens:
        raise FileError("the answer has no tokens")
    return tokens


def _n_echoed(values: Sequence[Any], n_prompt: Any) -> int:
    """How many tokens of a completion are an echo of the prompt: the first of these has no log-probability."""
    if not values or values[0] is not None:
        return 0
    if isinstance(n_prompt, bool) or not isinstance(n_prompt, int) or not 0 < n_prompt <= len(values):
        raise FileError(
            "holds the tokens of the prompt too (echo), and usage.prompt_tokens does not state how many they are; request "
            "without echo"
        )
    return n_prompt


def _chat_token(entry: Any) -> Token:
    if not isinstance(entry, dict):
        raise FileError(f"a token is {str(entry)[:40]!r}, not an object")
    others = entry.get("top_logprobs") or []
    if not isinstance(others, list) or not all(isinstance(other, dict) for other in others):
        raise FileError(f"top_logprobs is {str(others)[:40]!r}, not a list of objects")
    top = [(other.get("token"), other.get("logprob")) for other in others]
    return _token(entry.get("token"), entry.get("logprob"), top)


def _top_tokens(top: Any) -> Iterable[tuple[Any, Any]]:
    if top is not None and not isinstance(top, dict):
        raise FileError(f"top_logprobs is {str(top)[:40]!r}, not an object of tokens")
    return (top or {}).items()


def _token(text: Any, logprob: Any, top: Iterable[tuple[Any, Any]]) -> Token:
    if not isinstance(text, str):
        raise FileError(f"a token is {str(text)[:40]!r}, not a text")
    others = tuple((str(name), _logprob(value, str(name))) for name, value in top)
    return Token(text, _logprob(logprob, text), others)


def _logprob(value: Any, token: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_LOGPROB
    if not is_number and value != -math.inf:
        raise FileError(f"the log-probability of {token[:20]!r} is {str(value)[:40]}; it is a number of at most 0")
    if value > 1e-3:
        raise FileError(f"the log-probability of {token[:20]!r} is {str(value)[:40]}; it is a number of at most 0")
    return min(float(value), 0.0)


def option_scores(tokens: Sequence[Token], options: Sequence[str]) -> OptionScores:
    """The log-probabilities of the options at the position of the answer, and the total of all other tokens.

    The answer is the first token if that is an option, otherwise the last token that is one. Tokens that differ in spaces
    and punctuation (``A``, `` A``, ``(A``) are one option. An option that is not among the top tokens has at most the
    probability of the least of them, and at most what they leave of 1.
    """
    names = {option: k for k, option in enumerate(options)}
    places = [k for k, token in enumerate(tokens) if token.text.strip(AROUND) in names]
    if not places:
        text = "".join(token.text for token in tokens)
        raise FileError(f"the answer {text[:60]!r} has no token that is one of the options {', '.join(options)}")
    at = tokens[0 if places[0] == 0 else places[-1]]
    top = list(at.top) if any(text == at.text for text, _ in at.top) else [*at.top, (at.text, at.logprob)]
    probs = np.zeros(len(options))
    for text, logprob in top:
        if (name := text.strip(AROUND)) in names:
            probs[names[name]] += math.exp(logprob)
    known = [math.exp(logprob) for _, logprob in top]
    bound = max(min(*known, 1.0 - sum(known)), LEAST_REST)
    is_bounded = probs == 0
    total = float(probs.sum())
    logprobs = np.log(np.where(is_bounded, bound, probs)).tolist()
    generated = names[at.text.strip(AROUND)]
    return OptionScores(logprobs, min(max(1.0 - total, 0.0), 1.0), int(is_bounded.sum()), generated)


def answer_scores(answers: Sequence[Sequence[Token]]) -> dict[str, Any]:
    """Aggregates of the log-probabilities of the tokens of each answer, and the number of tokens."""
    logprobs = [np.array([token.logprob for token in tokens]) for tokens in answers]
    return {
        "logits": np.array([values.mean() for values in logprobs]),
        "logprob_sum": np.array([values.sum() for values in logprobs]),
        "logprob_min": np.array([values.min() for values in logprobs]),
        "n_tokens": np.array([len(values) for values in logprobs]),
    }
