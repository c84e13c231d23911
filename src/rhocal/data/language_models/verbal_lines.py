"""Answers of several lines, "Guess: Paris" above "Probability: 0.8": which lines state the confidence, and which do not."""

from __future__ import annotations

import re
from typing import NamedTuple

_MARKUP = r"[\s>*_#•-]*"
_LABEL = re.compile(
    rf"{_MARKUP}(?:(?:my|overall|final|stated|estimated) )*(?:confidence|probability|certainty|likelihood|how sure)"
    r"(?: (?:level|score|rating|estimate|in (?:my|this|the) answer"
    r"|that (?:it|this|(?:my|the) answer) is (?:right|correct)|of being (?:right|correct)))?"
    r"[\s*_]*[:=]"
)
_ANSWER = re.compile(
    rf"{_MARKUP}(?:(?:my|final|best) )*(?:answer|guess|response|choice|prediction|solution)[\s*_]*[:=]"
)
_EXPLANATION = re.compile(
    rf"{_MARKUP}(?:explanation|reasoning|reasons?|rationale|justification|analysis)[\s*_]*[:=](?!\W*$)"
)
_CONTINUES = re.compile(r"[^A-Z\"'*_#>]|(?:That|Of|To|For|If|Or|And|But|Not|Than|In|With|Unless)\b")
"""How a line begins that goes on with the line above it: no capital letter, or a word that ends no sentence before it."""

_OTHER_SUBJECT = re.compile(
    r"wrong|incorrect|false|mistake|\berr(?:s|or|ors)?\b|fail|\brisk|doubt|uncertain|unsure|\bodds\b|\bnot\b|n't\b|\boff\b"
)


class Lines(NamedTuple):
    """The lines of an answer by what they say."""

    confidences: list[str]
    explanations: list[str]
    others: list[str]


def labeled_lines(text: str) -> Lines | None:
    """The lines of a text of which one begins with "confidence:" or another usual label; None where none does.

    What the label names is written as "confidence:". Lines that begin with "answer:" are left out, since their numbers
    are those of the answer. A ValueError where a number may belong to another answer or to an error.
    """
    lines = _joined(text)
    labels = [_LABEL.match(line.lower()) for line in lines]
    if not any(labels):
        return None
    found = Lines([], [], [])
    answers = 0
    for line, label in zip(lines, labels, strict=True):
        if label:
            found.confidences.append(f"confidence: {line[label.end() :]}")
        elif _ANSWER.match(line.lower()):
            answers += 1
        elif _EXPLANATION.match(line.lower()):
            found.explanations.append(line)
        else:
            found.others.append(line)
    if answers > 1 and len(found.confidences) > 1:
        raise ValueError("states several answers with a confidence")
    if any(_OTHER_SUBJECT.search(line.lower().replace("’", "'")) for line in found.others):
        raise ValueError("has a line that may change what the confidence is about")
    return found


def _joined(text: str) -> list[str]:
    """The lines of a text; one that goes on with the line above is part of it."""
    lines: list[str] = []
    is_new = True
    for line in map(str.strip, text.splitlines()):
        if line and (is_new or not _CONTINUES.match(line) or _LABEL.match(line.lower()) or _ANSWER.match(line.lower())):
            lines.append(line)
        elif line:
            lines[-1] += f" {line}"
        is_new = not line and not (lines and lines[-1].rstrip("*_ ").endswith((":", "=")))
    return lines
