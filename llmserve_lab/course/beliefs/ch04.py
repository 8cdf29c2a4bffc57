"""Chapter 04: a decode step waits for bytes, not for arithmetic."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

TOKENS = 48  # read in one step, and written one by one
CONTEXT = 1024  # tokens of the request on a GPU


def the_same_arithmetic_more_bytes() -> str:
    from llmserve_lab import LLM, SamplingParams, load

    llm = LLM(load("lab-target"))
    llm.generate("import os", SamplingParams(max_tokens=2))  # warm up
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS + 1, ignore_eos=True)
    llm.add_request("def", params)
    llm.step()  # the first new token: the others come from one decode step each
    written, text = _decode(llm)
    read = _read(llm, text[:TOKENS])
    assert (written.steps, read.steps) == (TOKENS, 1)
    assert written.computed_tokens == read.computed_tokens == TOKENS
    assert written.flops < 1.5 * read.flops and written.num_bytes > TOKENS / 2 * read.num_bytes
    return (
        f"{TOKENS} tokens were read in {read.steps} step and written in {written.steps}. The "
        f"operations are {written.flops / read.flops:.2f} times as many (each token that is "
        f"written also passes the output layer); but the steps moved "
        f"{written.num_bytes / read.num_bytes:.0f} times the bytes. On this machine writing took "
        f"{written.seconds / read.seconds:.0f} times as long as reading."
    )


def twice_the_flops_no_faster() -> str:
    from llmserve_lab.simulate import GPUS, ModelSize, decode_estimate

    model, old, new = ModelSize.llama2_7b(), GPUS["T4"], GPUS["L4"]
    before, after = (decode_estimate(model, gpu, 1, CONTEXT) for gpu in (old, new))
    assert new.flops > 1.8 * old.flops and new.bandwidth < old.bandwidth
    assert before.bound == after.bound == "bandwidth" and after.seconds > before.seconds
    spare = min(gpu.flops / gpu.bandwidth for gpu in GPUS.values())
    assert spare > 100
    twin, wider = (decode_estimate(model, GPUS[name], 1, CONTEXT) for name in ("H100", "H200"))
    assert GPUS["H100"].flops == GPUS["H200"].flops and wider.seconds < twin.seconds
    return (
        f"Calculated from the data sheets, {model.name}, one request: an L4 has "
        f"{new.flops / old.flops:.1f} times the FLOP/s of a T4 and needs at least "
        f"{1000 * after.seconds:.1f} ms a token, the T4 {1000 * before.seconds:.1f}. An H200 has "
        f"the FLOP/s of an H100, and needs {1000 * wider.seconds:.1f} ms where that one needs "
        f"{1000 * twin.seconds:.1f}: its memory is faster. Every GPU of the table can do "
        f"{spare:.0f} operations or more in the time of one byte."
    )


def _decode(llm: Any) -> tuple[Any, list[int]]:
    """The metrics of all decode steps of the one request under way, and its tokens from there."""
    llm.reset_metrics()
    tokens = []
    while llm.has_work:
        tokens += [event.token_id for event in llm.step()]
    return llm.metrics, tokens


def _read(llm: Any, tokens: list[int]) -> Any:
    """The metrics of reading these tokens as a prompt."""
    from llmserve_lab import SamplingParams

    llm.reset_metrics()
    llm.generate({"prompt_token_ids": tokens}, SamplingParams(temperature=0.0, max_tokens=1))
    return llm.metrics


MISCONCEPTIONS = (
    Misconception(
        key="04.decode-is-arithmetic",
        belief="Decode is slow because each token takes so much arithmetic.",
        wrong="This is wrong: a token takes the same arithmetic when it is read in a prompt, fast.",
        mechanism=(
            "Read or written, a token passes every weight once. In a prompt all tokens share one "
            "reading of the weights. While the model writes, each token reads them anew, because "
            "the next token is not there yet. What is slow is moving bytes, and the steps' number."
        ),
        experiment=the_same_arithmetic_more_bytes,
    ),
    Misconception(
        key="04.flops-decide",
        belief="A GPU with twice the FLOP/s decodes twice as fast.",
        wrong="This is wrong for small batches: there the memory's bandwidth sets the pace.",
        mechanism=(
            "A decode step alone does about one operation for each byte of 16-bit weights. A GPU "
            "could do a hundred and more in that time, so its arithmetic waits for memory. More "
            "FLOP/s let it wait faster. Bandwidth, fewer bytes, or a larger batch help."
        ),
        experiment=twice_the_flops_no_faster,
    ),
)
