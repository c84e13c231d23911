"""Write the Inspect logs among the test files again: its mock model on made-up questions, through Inspect AI itself.

pip install inspect_ai; python experiments/inspect_logs/make_logs.py FOLDER
"""

import math
import random
import sys
from pathlib import Path

from inspect_ai import Task, eval  # type: ignore[import-not-found] # noqa: A004 - its name
from inspect_ai.dataset import Sample  # type: ignore[import-not-found]
from inspect_ai.model import (  # type: ignore[import-not-found]
    ChatCompletionChoice,
    ChatMessageAssistant,
    Logprob,
    Logprobs,
    ModelOutput,
    ModelUsage,
    TopLogprob,
    get_model,
)
from inspect_ai.scorer import choice, match  # type: ignore[import-not-found]
from inspect_ai.solver import generate, multiple_choice  # type: ignore[import-not-found]

WORDS = ["apple", "river", "stone", "cloud", "violin", "ladder", "kettle", "Brücke"]
RNG = random.Random(0)  # noqa: S311 - no secret


def token(text: str, logprob: float, top: dict[str, float]) -> Logprob:
    others = [TopLogprob(token=name, logprob=value, bytes=list(name.encode())) for name, value in top.items()]
    return Logprob(token=text, logprob=logprob, bytes=list(text.encode()), top_logprobs=others)


def output(text: str, tokens: list[Logprob] | None = None) -> ModelOutput:
    message = ChatMessageAssistant(content=text)
    logprobs = None if tokens is None else Logprobs(content=tokens)
    answers = [ChatCompletionChoice(message=message, stop_reason="stop", logprobs=logprobs)]
    return ModelOutput(model="mock", choices=answers, usage=ModelUsage())


def letters_task(n: int = 24) -> tuple[Task, list[ModelOutput]]:
    """Multiple choice with 3 or 4 options; the answer is "ANSWER: B", its letter with the log-probabilities of 5 tokens."""
    samples, outputs = [], []
    for k in range(n):
        options = RNG.sample(WORDS, RNG.choice([3, 4]))
        target = "ABCD"[RNG.randrange(len(options))]
        samples.append(
            Sample(
                id=f"q{k}",
                input=f"Which word comes first in list {k}?",
                choices=options,
                target=target,
                metadata={"subject": RNG.choice(["lists", "words"])},
            )
        )
        scores = {name: RNG.gauss(3 * (name == target), 1.5) for name in [*"ABCD"[: len(options)], " A", "The"]}
        total = math.log(sum(map(math.exp, scores.values())) * 1.02)  # 2 % for the rest of the vocabulary
        top = dict(sorted(((name, value - total) for name, value in scores.items()), key=lambda item: -item[1])[:5])
        best = max((name for name in top if name in "ABCD"), key=top.__getitem__)
        words = [
            token("ANSWER", -0.01, {"ANSWER": -0.01}),
            token(":", -0.001, {":": -0.001}),
            token(best, top[best], top),
        ]
        outputs.append(output(f"ANSWER: {best}", words))
    return Task(dataset=samples, solver=multiple_choice(), scorer=choice(), name="letters"), outputs


def confidence_task(n: int = 15, epochs: int = 2) -> tuple[Task, list[ModelOutput]]:
    """Free answers with a confidence in words or per cent, each question asked twice."""
    samples = [
        Sample(
            id=k + 1, input=f"What is {k} + {k}? State your confidence.", target=str(2 * k), metadata={"topic": "sums"}
        )
        for k in range(n)
    ]
    outputs = []
    for k in list(range(n)) * epochs:  # one epoch after the other
        confidence = RNG.choice(["85 %", "95%", "very likely", "60 %", "Almost certain", "about 70 percent"])
        right = RNG.random() < 0.8
        outputs.append(output(f"Confidence: {confidence}\nAnswer: {2 * k if right else 2 * k + 1}"))
    return Task(dataset=samples, solver=generate(), scorer=match(), epochs=epochs, name="sums"), outputs


def main(folder: Path) -> None:
    for make, formats in ((letters_task, ("eval", "json")), (confidence_task, ("eval",))):
        task, outputs = make()
        for form in formats:
            eval(
                task,
                model=get_model("mockllm/model", custom_outputs=outputs, memoize=False),
                log_dir=str(folder),
                log_format=form,
                display="none",
                max_connections=1,
                max_samples=1,
                limit=6 if form == "json" else None,  # its lines are long
                log_samples=True,
                log_model_api=False,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
