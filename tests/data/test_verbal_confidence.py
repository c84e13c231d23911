"""Confidence that is stated in words."""

import pytest

import rhocal
from helpers import ROOT
from rhocal.data.language_models.verbal_confidence import MAX_LENGTH, WORDS
from rhocal.errors import InputError


@pytest.mark.parametrize(
    ("text", "probability"),
    [
        ("85%", 0.85), ("I am about 70 percent sure", 0.7), ("0.5", 0.5), ("1", 1.0), ("9/10", 0.9), ("8 out of 10", 0.8),
        ("99,5 %", 0.995), ("Almost certain!", 0.95), ("It's unlikely", 0.2), ("probably not", 0.25), (0.3, 0.3),
        ("50/50", 0.5), ("0.95 confident", 0.95), ("0.95 (very likely)", 0.95), ("I'd say 75%", 0.75), ("~ 85 %", 0.85),
        ("I have 95% confidence. It is likely Paris", 0.95), ("I cannot be certain, but I am 85% sure", 0.85),
        ("I am 85 percent sure that the answer is 42", 0.85), ("More likely than not", 0.6), ("Confidence: **95%**", 0.95),
        ("My confidence in this answer is 85%", 0.85), ("I'm quite confident: 80%", 0.8), ("85% (0.85)", 0.85),
        ("There is a 90% chance it is right", 0.9),
        ("Confidence level: very likely", 0.9), ("I think it is likely", 0.7), ("I'm confident in my answer", 0.8),
        ("90% sure about this", 0.9), ("Unlikely (20%)", 0.2), ("I'd give it a 70% chance of being correct", 0.7),
        ("I'm 90% sure it's Paris", 0.9), ("My answer has a probability of 0.8", 0.8), ("I rate my confidence 8/10", 0.8),
        ("The answer is likely B.", 0.7), ("I'm absolutely certain", 0.99), ("I'm 90% sure that it is New York!", 0.9),
    ],
)  # fmt: skip
def test_confidence_in_words(text, probability):
    assert rhocal.verbal_confidence(text) == pytest.approx(probability)


@pytest.mark.parametrize(
    ("text", "probability"),
    [
        ("Guess: Paris\nProbability: 0.8", 0.8), ("Answer: Paris\r\nConfidence: 80%", 0.8), ("Answer: 42%\nHow sure: 80%", 0.8),
        ("**Answer:** 0.3\n\n**Confidence:** 90%", 0.9), ("- Answer: Rome\n- Certainty = 0.7", 0.7), ("Likelihood:\n85%", 0.85),
        ("Confidence: very likely\nExplanation: In 2.5 % of the years it was not.", 0.9),
        ("Answer: The probability is 0.3\nConfidence: 0.9", 0.9), ("Confidence: 80%\nParis is the capital.", 0.8),
        ("I'm 80% sure it's Paris.\nConfidence: 80%", 0.8), ("Overall confidence score: 8/10\nAnswer: A", 0.8),
    ],
)  # fmt: skip
def test_a_line_with_a_label_states_the_confidence(text, probability):
    assert rhocal.verbal_confidence(text) == pytest.approx(probability)


@pytest.mark.parametrize(
    "text",
    [
        "Guess: Paris\nProbability: 0.8\nGuess: London\nProbability: 0.1",
        "Guess: Paris\nProbability: 0.5\nGuess: London\nProbability: 0.5",
        "Answer: Paris\nProbability: 10%\nthat the answer is wrong",
        "Probability: 10%\nOf being wrong",
        "Confidence: less than\n50%",
        "Confidence: 80%\n- 90%",
        "Answer: Paris\nProbability of error: 5%",
        "Answer: Paris\nError probability: 5%",
        "Answer: Paris\nUncertainty: 10%",
        "Answer: Paris\nConfidence: not 90%",
        "Answer: Paris\nConfidence: 80 - 90%",
        "Risk of failure:\nProbability: 5%",
        "How likely is it that the answer is wrong?\nProbability: 10%",
        "Event: the answer is wrong\nProbability: 0.1",
        "Explanation: I am 50% sure.\nConfidence: 80%",
        "I am 50% sure.\nConfidence: 80%",
        "Confidence: 80%\nActually, 30%",
        "Confidence: 80%\nConfidence: 60%",
        "Answer: Paris\nLikelihood: 1 in 10",
        "Answer: Paris\nConfidence: high",
        "Answer: Paris",
        "There is a 10% chance\nof error",
    ],
)
def test_lines_that_state_something_else(text):
    with pytest.raises(InputError, match="confidence"):
        rhocal.verbal_confidence(text)


def test_a_long_text_is_refused_before_it_is_read():
    assert rhocal.verbal_confidence("Confidence: 80%".ljust(MAX_LENGTH)) == 0.8
    with pytest.raises(InputError, match=r"has 14,000 characters, more than 2,000"):
        rhocal.verbal_confidence("confidence 0.5" * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "not very likely",
        "85",
        "120 %",
        "-5 %",
        "between 60 % and 80 %",
        "no idea",
        "",
        85,
        None,
        True,
        "7/0",
        "likely or unlikely",
        "not 100 % sure",
        "I'm not 90% sure",
        "cannot be certain",
        "I can’t be certain",
        "far from certain",
        "less than certain",
        "I don't feel confident",
        "doesn't seem likely",
        "80 – 90 %",
        "80-90%",
        "80 to 90 %",
        "1,000 %",
        "I'm confident that the answer is 42%",
        "The answer is 42 %",
        "I'm confident that the answer is 3/4",
        "less than 50 %",
        "> 90 %",
        "60/40",
        "very likely wrong",
        "90% sure this is wrong",
        "5 % chance of being wrong",
        "somewhat likely",
        "3/4/2024",
        "chance is 1 in 3",
        "Likelihood: 1 in 10",
        "uncertainty 10%",
        "Uncertainty: 0.1",
        "90% uncertain",
        "100% unsure",
        "There is a 10% chance of error",
        "There is a 10% chance of a mistake",
        "error probability 5%",
        "chance 5% failure",
        "risk of error: 10%",
        "70% likely to fail",
        "70% unlikely",
        "99% impossible",
        "I'd give it a 20% chance that I'm off",
        "I'm 90% sure that the answer is off",
        "I'm confident it's a mistake",
        "likely a mistake",
        "certain to fail",
        "fairly certain",
        "confident enough",
        "95% confidence interval 40%",
        "the odds are 1/4, odds 1/4",
        "I'm 90% sure it's False",
        "I'm 90% sure it's a trap",
        "I'm 90% sure it's Paris or London",
        "I'm 90% sure it's Paris that fails",
        "I'M 90% SURE IT'S BAD",
        "My answer has a probability of 0.8 of being wrong",
        "My answer has an error probability of 0.8",
        "I rate my confidence 8/10 to 9/10",
        "Error rate of certainty: 8/10",
        "The answer is likely Wrong.",
        "The answer is likely A or B.",
        "The answer is likely not B.",
        "The answer is unlikely B.",
        "I'm not absolutely certain",
        "reasonably confident",
        "pretty likely",
        "chance 10% (of error)",
        "Confidence: 10% (that it's wrong)",
        "10% chance, of error",
        "90% sure. This is wrong",
    ],
)
def test_confidence_that_states_nothing_or_several_things(text):
    with pytest.raises(InputError, match="confidence"):
        rhocal.verbal_confidence(text)


def test_many_equal_words_are_read_once():
    with pytest.raises(InputError, match="something else"):
        rhocal.verbal_confidence("confidence " * 100 + "0.5 of them")


def test_the_table_of_phrases_is_documented():
    page = (ROOT / "docs" / "language_models.md").read_text(encoding="utf-8")
    lines = (
        line.split("|")[1:3] for line in page.splitlines() if line.startswith("| ") and line.rstrip(" |")[-1].isdigit()
    )
    documented = {phrase.strip(): float(value) for phrases, value in lines for phrase in phrases.split(",")}
    assert documented == WORDS
