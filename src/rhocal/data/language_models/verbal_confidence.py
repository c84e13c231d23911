"""Confidence in words: "85 %", "0.85", "8/10", "very likely" as probabilities. What is not clear is refused."""

from __future__ import annotations

import re
from typing import Any

from rhocal.data.language_models.verbal_lines import labeled_lines
from rhocal.errors import InputError

MAX_LENGTH = 2_000
"""Characters of a text. Numbers are read with the words around them, so that time grows with the square of the length."""

WORDS = {
    "certain": 0.99, "almost certain": 0.95, "nearly certain": 0.95, "extremely likely": 0.95, "extremely confident": 0.95,
    "very likely": 0.90, "highly likely": 0.90, "very probable": 0.90, "very confident": 0.90, "highly confident": 0.90,
    "very good chance": 0.80, "confident": 0.80, "likely": 0.70, "probable": 0.70, "probably": 0.70, "fairly confident": 0.70,
    "better than even": 0.60, "more likely than not": 0.60, "about even": 0.50, "even chance": 0.50, "fifty-fifty": 0.50,
    "uncertain": 0.50, "unsure": 0.50, "not sure": 0.50, "probably not": 0.25, "not confident": 0.25, "not likely": 0.20,
    "unlikely": 0.20, "improbable": 0.20, "little chance": 0.10, "very unlikely": 0.05, "highly unlikely": 0.05,
    "extremely unlikely": 0.03, "almost no chance": 0.02, "almost impossible": 0.02, "impossible": 0.01,
}  # fmt: skip
"""Round values near the medians of surveys of such words. Readers disagree by 10 points and more: they are a start, and a fit
maps each of them to the share of answers that are right."""

_PHRASES = re.compile(r"\b(?:" + "|".join(sorted(map(re.escape, WORDS), key=len, reverse=True)) + r")\b")

_NUMERAL = r"[-−+]?(?:\d[\d.,]*\d|\d|\.\d+)"
_NUMBER = re.compile(
    rf"(?P<fraction>(?<![\w.,/]){_NUMERAL}\s*(?:/|out of)\s*{_NUMERAL}(?![\d/]))"
    rf"|(?P<percent>{_NUMERAL}\s*(?:%|per\s?cent\b))"
    r"|(?P<decimal>(?<![\w.,/%])[-−+]?(?:\d*\.\d+|[01])(?![\w/%]|[.,]\d))"
)
_PLAIN = re.compile(r"\+?(?:\d+|\d*\.\d+|\d+,\d{1,2})")
"""A number that has one reading: 1,000 may be 1 or 1000."""

_SUBJECT = r"(?:sure|certain|certainty|confident|confidence|likely|likelihood|probable|probability|chance|credence)"
_BEFORE = re.compile(
    rf"{_SUBJECT}(?: (?:level|score|rating|estimate|that (?:it|this|the answer) is (?:right|correct)))?"
    r"(?: in (?:my|this|the) answer)?"
    r"[\s:=(,*_~≈–—]*(?:(?:is|of|at|with|about|around|approximately|roughly|maybe|to be)[\s:=(~≈]+)*$"
)
_AFTER = re.compile(rf"[\s)*_-]*(?:(?:quite|very|highly|a|of|level of|fairly)\s+)*{_SUBJECT}\b")
_FILLER = re.compile(
    r"\b(?:i'm|i'd|i|am|my|say|it's|it|is|the|about|around|approximately|roughly|maybe|perhaps|circa|ca|of|a|in|this"
    r"|guess|estimate|level|score|rating|be|would|sure|high|low|medium|good|very|correct|right|that|probably)\b|[^\w%]"
)
_NEGATION = re.compile(
    r"\b(?:not|never|no|nor|none|without|cannot|hardly|barely|scarcely|neither|nothing|unable|lack|lacking|doubt|doubtful"
    r"|far from|wrong|incorrect|false|mistaken|mistakes?|errors?|off|fails?"
    r"|less|least|more|most|under|below|over|above|exceeds?|up to|between|as|equally"
    r"|how|if|whether|somewhat|slightly|moderately|mildly|bit|little|kind of|sort of)\b|n't\b|[<>≤≥±]|\+/-"
)
"""What turns a statement into another one, or into a bound: refused, unless it is part of a phrase of the table."""

_CLAUSE_END = re.compile(r"[.;:!?()](?!\d)|,(?!\d)|\b(?:but|though|although|however|because|since|and)\b")
_STATEMENT_END = re.compile(r"[.;!?()](?!\d)|,(?!\d)|\b(?:but|though|although|however|because|since|and)\b")
"""The same, but a colon stands inside: "confidence: 85 %"."""

_AFTERTHOUGHT = re.compile(
    r"[^\w.,;!(%]*(?:\w+ ?)?[*_\s]*[.,;!(]\s*(?:(?:of|that|that's|for|it|it's|this|i|i'm)\b[^.;!?]*)?"
    r"\b(?:wrong|incorrect|false|mistaken|mistakes?|errors?|fail\w*|off)\b"
)
"""What turns a statement round after its end: "10 % chance (of error)"."""

_NAME = r"(?:[A-Z][\w'-]*|\d+)"
_NAMED = re.compile(
    r"\b(?P<is>(?:[Ii]t's|[Ii]t is|[Aa]nswer is)(?:(?: very| highly)? likely| probably)?) "
    rf"(?P<name>{_NAME}(?: {_NAME})*)(?=[.!*]*(?: |$))(?![.!*]* [a-z(])"
)
"""A sentence that ends in a name, which is the answer: a name begins with a capital letter, or is a whole number."""

_USUAL_FORMS = (
    (re.compile(r"\b(?:my|the|this) answer has an? (?=(?:probability|chance|likelihood|confidence) of\b)"), ""),
    (re.compile(r"\b(i|i'd|i would) rate (?=my (?:\w+ )?confidence\b)"), r"\1 say "),
    (re.compile(r"\b(?:absolutely|completely|entirely|totally) (?=(?:certain|impossible)\b)"), ""),
)
"""Forms of a statement, and what they are read as."""

_WORDS = (
    r"i'm|i'd|i've|i|am|have|feel|think|believe|my|say|it's|it|that's|that|there's|there|is|be|being|seems|looks|would|the|this"
    r"|about|around|approximately|roughly|maybe|perhaps|circa|ca|of|at|with|to|a|an|in|give|put|guess|estimate|level|score|rating"
    r"|final|overall|stated|answer|response|correct|right|confidence"
)
_NUMBER_WORDS = rf"{_WORDS}|{_SUBJECT}|probably|quite|very|highly|fairly|pretty|reasonably|high|low|medium|good"
_ABOUT_THE_ANSWER = (
    r"(?:(?:that )?(?:the|my) (?:\w+ )?answer is\b[^|]*"
    r"|(?:in|of|about|with) (?:my|this|the|that)(?: (?:answer|response|choice|guess|estimate|prediction|assessment|claim))?)"
)
"""What a confidence may be about; of anything else (an error, a failure) it is another statement."""


def _words_alone(allowed: str) -> re.Pattern[str]:
    """What may stand before and after (``|``) a number or a phrase in its clause: these words alone."""
    space = r"[^\w%']*"
    known = rf"(?:{space}(?>(?:{allowed})\b))*{space}"  # one reading of a word: with two, time doubles with each
    return re.compile(rf"{known}\|{known}(?:{_ABOUT_THE_ANSWER}{space})?")


_PLAIN_NUMBER, _PLAIN_PHRASE = _words_alone(_NUMBER_WORDS), _words_alone(_WORDS)
_RANGE = re.compile(r"\d\s*%?\s*(?:-|–|—|−|to|and|or|through|\.\.+|…)\s*$")


def verbal_confidence(value: Any) -> float:
    r"""The probability that a confidence in words or numbers states.

    Parameters
    ----------
    value
        A number from 0 to 1, or a text with a percentage ("85 %", "I am 85 percent sure"), a fraction ("8/10"), a
        number from 0 to 1, or one of the phrases of ``rhocal.data.language_models.verbal_confidence.WORDS`` ("very
        likely"). Texts that deny or bound what they state ("not 100 % sure", "less than 50 %"), ranges, statements
        about anything but the answer ("10 % chance of error"), and numbers that may be something else are errors.

        In a text of several lines those that begin with "Confidence:", "Probability:", "Certainty:", "Likelihood:" or
        "How sure:" state it. Lines that begin with "Answer:" or "Guess:" are left out, and explanations are, unless
        they state another confidence. A text of more than ``MAX_LENGTH`` characters is an error.

    Returns
    -------
    float
        A probability.

    Examples
    --------
    >>> [verbal_confidence(text) for text in ("85 %", "0.85", "8/10", "It is very likely.", "Highly unlikely")]
    [0.85, 0.85, 0.8, 0.9, 0.05]
    >>> verbal_confidence("Guess: Paris\nProbability: 0.8")
    0.8
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"confidence is {str(value)[:40]!r}, neither a number nor a text")
    if isinstance(value, int | float):
        if not 0 <= value <= 1:
            raise InputError(
                f'confidence is {str(value)[:40]}; write a number from 0 to 1, or a text with a percentage ("85 %")'
            )
        return float(value)
    try:
        stated = _stated(value)
    except ValueError as error:
        raise _refusal(value, str(error)) from None
    if len(stated) != 1:
        several = f"states several ({', '.join(f'{p:g}' for p in sorted(stated))})"
        raise _refusal(value, several if stated else "states no confidence")
    (probability,) = stated
    if not 0 <= probability <= 1:
        raise InputError(f"confidence {value[:60]!r} is {probability:g}; a probability lies between 0 and 1")
    return probability


def _refusal(value: str, reason: str) -> InputError:
    return InputError(
        f"confidence {value[:60]!r} {reason}; write a percentage, a number from 0 to 1, or one phrase such as 'very likely'"
    )


def _stated(text: str) -> set[float]:
    """The probabilities that a text states."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"has {len(text):,} characters, more than {MAX_LENGTH:,}")
    lines = labeled_lines(text)
    if lines is None:
        text = normalized(text)
        return numbers_of(text) or _phrases_of(text)
    stated: set[float] = set()
    for line in map(normalized, lines.confidences):
        stated |= numbers_of(line) or _phrases_of(line)
    if not stated:
        return stated
    others = numbers_of(normalized(". ".join(lines.others)))
    return stated.union(others, *(numbers_of(normalized(line), is_explanation=True) for line in lines.explanations))


def normalized(text: str) -> str:
    """A text in lower case, with single spaces, straight apostrophes and the usual forms of its statements."""
    text = _NAMED.sub(_as_right, " ".join(text.replace("’", "'").split())).lower()
    for form, usual in _USUAL_FORMS:
        text = form.sub(usual, text)
    return text


def _as_right(match: re.Match[str]) -> str:
    """A named answer ("it's Paris") as "it's right"; the sentence itself where the name may deny or state something."""
    name = match["name"].lower()
    return match[0] if _NEGATION.search(name) or _PHRASES.search(name) else f"{match['is']} right"


def numbers_of(text: str, *, is_explanation: bool = False) -> set[float]:
    """The probabilities that a normalized text states in numbers; a ValueError where it is not clear that they are those.

    An explanation holds other numbers as well, which are left out.
    """
    stated: set[float] = set()
    is_alone = not _FILLER.sub("", _PHRASES.sub("", _NUMBER.sub("", text)))
    for match in _NUMBER.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        if not (is_alone or _BEFORE.search(before) or _AFTER.match(after)):
            if is_explanation or match["decimal"] in {"0", "1"}:
                continue  # a digit of the sentence
            raise ValueError(f"has a number that may be something else ({match[0].strip()})")
        if _RANGE.search(before) or _NEGATION.search(_clause(before, after)) or _AFTERTHOUGHT.match(after):
            raise ValueError("denies or bounds what it states, or states a range")
        if not _PLAIN_NUMBER.fullmatch(_NUMBER.sub("", _clause(before, after, _STATEMENT_END))):
            raise ValueError(f"may state something else than confidence in the answer ({match[0].strip()})")
        stated.add(_probability(match))
    return stated


def _probability(match: re.Match[str]) -> float:
    if match["fraction"] is not None:
        part, whole = (_number(number) for number in re.split(r"/|out of", match[0]))
        if part + whole == 100:
            if part == whole:
                return 0.5
            raise ValueError("has a fraction that may be odds")
        if not whole:
            raise ValueError("divides by 0")
        return part / whole
    if match["percent"] is not None:
        return _number(re.split("%|per", match[0])[0]) / 100
    return _number(match[0])


def _number(text: str) -> float:
    text = text.strip().replace("−", "-")
    if not _PLAIN.fullmatch(text.removeprefix("-")):
        raise ValueError(f"has a number with more than one reading ({text[:20]})")
    return float(text.replace(",", "."))


def _phrases_of(text: str) -> set[float]:
    """The probabilities of the phrases of the table; none where a phrase is denied or weakened by words outside the table."""
    stated = set()
    for match in _PHRASES.finditer(text):
        if _NEGATION.search(_clause(text[: match.start()], text[match.end() :])):
            raise ValueError("denies, bounds or weakens what it states")
        if not _PLAIN_PHRASE.fullmatch(_clause(text[: match.start()], text[match.end() :], _STATEMENT_END)):
            raise ValueError(f"may state something else than confidence in the answer ({match[0]})")
        stated.add(WORDS[match[0]])
    return stated


def _clause(before: str, after: str, limit: re.Pattern[str] = _CLAUSE_END) -> str:
    """The words around a statement, up to the next comma, stop, or "but"."""
    ends = list(limit.finditer(before))
    start = ends[-1].end() if ends else 0
    end = match.start() if (match := limit.search(after)) else len(after)
    return f"{before[start:]} | {after[:end]}"
