"""Confidence in words: "85 %", "0.85", "8/10", "very likely" as probabilities."""

from __future__ import annotations

import re
from typing import Any

from rhocal.errors import InputError

WORDS = {
    "certain": 0.99, "almost certain": 0.95, "nearly certain": 0.95, "very likely": 0.90, "highly likely": 0.90,
    "very probable": 0.90, "very confident": 0.90, "highly confident": 0.90, "very good chance": 0.80, "confident": 0.80,
    "likely": 0.70, "probable": 0.70, "probably": 0.70, "fairly confident": 0.70, "better than even": 0.60,
    "about even": 0.50, "even chance": 0.50, "uncertain": 0.50, "unsure": 0.50, "not sure": 0.50, "probably not": 0.25,
    "not confident": 0.25, "not likely": 0.20, "unlikely": 0.20, "improbable": 0.20, "little chance": 0.10,
    "very unlikely": 0.05, "highly unlikely": 0.05, "almost no chance": 0.02, "almost impossible": 0.02, "impossible": 0.01,
}  # fmt: skip
"""Round values near the medians of surveys of such words. Readers disagree by 10 points and more: they are a start, and a fit
maps each of them to the share of answers that are right."""

_PHRASES = re.compile(r"\b(?:" + "|".join(sorted(map(re.escape, WORDS), key=len, reverse=True)) + r")\b")
_PERCENT = re.compile(r"(-?\d+(?:[.,]\d+)?)\s*(?:%|per\s?cent\b)")
_FRACTION = re.compile(r"(?<![\d.,])(\d+(?:\.\d+)?)\s*(?:/|out of)\s*(\d+)(?![\d.,])")
_NUMBER = re.compile(r"\s*(\d*[.]\d+|[01])\s*")
_NEGATION = re.compile(r"\b(?:not|never|no|isn't|hardly)\b[\w\s]{0,12}$")


def verbal_confidence(value: Any) -> float:
    """The probability that a confidence in words or numbers states.

    Parameters
    ----------
    value
        A number from 0 to 1, or a text with a percentage ("85 %", "I am 85 percent sure"), a fraction ("8/10"), a number
        from 0 to 1, or one of the phrases of ``rhocal.data.verbal_confidence.WORDS`` ("very likely").

    Returns
    -------
    float
        A probability.

    Examples
    --------
    >>> [verbal_confidence(text) for text in ("85 %", "0.85", "8/10", "It is very likely.", "Highly unlikely")]
    [0.85, 0.85, 0.8, 0.9, 0.05]
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"confidence is {str(value)[:40]!r}, neither a number nor a text")
    if isinstance(value, int | float):
        if not 0 <= value <= 1:
            raise InputError(
                f'confidence is {value!r}; write a number from 0 to 1, or a text with a percentage ("85 %")'
            )
        return float(value)
    stated = _stated(value)
    if len(stated) != 1:
        reason = (
            "states no confidence" if not stated else f"states several ({', '.join(f'{p:g}' for p in sorted(stated))})"
        )
        raise InputError(
            f"confidence {value[:60]!r} {reason}; write a percentage, a number from 0 to 1, or one phrase such as 'very likely'"
        )
    (probability,) = stated
    if not 0 <= probability <= 1:
        raise InputError(f"confidence {value[:60]!r} is {probability:g}; a probability lies between 0 and 1")
    return probability


def _stated(text: str) -> set[float]:
    """All probabilities that a text states: numbers, and phrases where it has no numbers."""
    lowered = " ".join(text.lower().replace("’", "'").split())
    if _NUMBER.fullmatch(lowered):
        return {float(lowered)}
    numbers = {float(match[1].replace(",", ".")) / 100 for match in _PERCENT.finditer(lowered)}
    fractions = (match for match in _FRACTION.finditer(lowered) if float(match[2]) > 0)
    numbers |= {float(match[1]) / float(match[2]) for match in fractions}
    if numbers:
        return numbers
    stated = set()
    for match in _PHRASES.finditer(lowered):
        if _NEGATION.search(lowered[: match.start()]):
            return set()  # "not very likely" is no phrase of the table
        stated.add(WORDS[match[0]])
    return stated
