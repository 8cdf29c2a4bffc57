"""Chapter 00: where a streamed answer comes from."""

from __future__ import annotations

from llmserve_lab.course.misconceptions import Misconception

TOKENS = 12


def stream_while_computing() -> str:
    from llmserve_lab import LLM, SamplingParams

    llm = LLM("lab-target", trace=True)
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    steps_when_seen = [len(llm.trace) for _ in llm.stream("def parse(text):", params)]
    assert len(steps_when_seen) == TOKENS
    assert steps_when_seen == sorted(set(steps_when_seen)), "two tokens came from one step"
    assert steps_when_seen[0] < steps_when_seen[-1] == len(llm.trace)
    return (
        f"When the first of {TOKENS} tokens arrived, the engine had run "
        f"{steps_when_seen[0]} of the {len(llm.trace)} steps that the answer took: the other "
        f"{TOKENS - 1} tokens did not exist yet, and each needed a step of its own."
    )


MISCONCEPTIONS = (
    Misconception(
        key="00.answer-is-ready",
        belief="The model has its whole answer at once; the server only types it out slowly.",
        wrong="This is wrong: at the moment you see a token, the next one has not been computed.",
        mechanism=(
            "A language model gives the probabilities of one next token. The token that is chosen "
            "becomes part of the input of the next step, so no step can begin before the one "
            "before it has ended. Streaming shows tokens as they come into being."
        ),
        experiment=stream_while_computing,
    ),
)
