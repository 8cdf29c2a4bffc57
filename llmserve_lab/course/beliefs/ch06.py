"""Chapter 06: context takes memory, and so do the experts that a token does not use."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

REQUESTS, TOKENS = 8, 16
SHORT, LONG = 32, 480  # prompt tokens
BLOCKS = 64
EXPERTS, USED = 8, 2


def context_fills_the_cache() -> str:
    from llmserve_lab import LLM, SamplingParams, load
    from llmserve_lab.course.experiments import held_out_prompts

    model = load("lab-target")
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    together, per_request = [], []
    for length in (SHORT, LONG):
        llm = LLM(model, max_num_seqs=REQUESTS, num_blocks=BLOCKS, trace=True)
        llm.generate(held_out_prompts(model.tokenizer, REQUESTS, length), params)
        together.append(max(len(step.running) + len(step.finished) for step in llm.trace))
        blocks = max(len(view.block_table) for step in llm.trace for view in step.finished)
        per_request.append(blocks * llm.capacity.block_bytes // 1024)
    assert per_request[1] > 10 * per_request[0]
    assert together == [REQUESTS, BLOCKS // -(-(LONG + TOKENS) // 16)]
    return (
        f"The same model and the same {BLOCKS} KV blocks: with prompts of {SHORT} tokens a request "
        f"came to hold {per_request[0]} KiB and {together[0]} ran together; with {LONG} tokens it "
        f"held {per_request[1]} KiB, and {together[1]} of {REQUESTS} ran together."
    )


def every_expert_is_used() -> str:
    from llmserve_lab import LLM, SamplingParams, load
    from llmserve_lab.course.allocations import allocations
    from llmserve_lab.course.architectures import Architecture
    from llmserve_lab.models.load import LoadedModel

    config = _mixture()
    with allocations() as seen:
        model = _built(config)
    chosen = _watch_routers(model)
    loaded = LoadedModel("a small mixture", model, load("lab-target").tokenizer, "as built")
    prompts = [{"prompt_token_ids": list(range(first, first + 64))} for first in (1, 1000)]
    LLM(loaded).generate(prompts, SamplingParams(temperature=0.0, max_tokens=TOKENS))
    dims = Architecture.of("a small mixture", config)
    used = [len(experts) for experts in chosen.values()]
    assert used == [EXPERTS] * config.num_hidden_layers
    assert seen.kept >= dims.parameters * 4 > 2 * dims.active_parameters * 4
    return (
        f"Each token was routed to {USED} of {EXPERTS} experts, {dims.active_parameters:,} of "
        f"{dims.parameters:,} parameters. But two requests were enough for all {EXPERTS} experts "
        f"of each of the {len(used)} layers to be chosen, and {seen.kept:,} bytes were allocated: "
        f"4 for every parameter, used or not."
    )


def _mixture() -> Any:
    from transformers import MixtralConfig

    return MixtralConfig(
        vocab_size=4096, hidden_size=64, intermediate_size=512, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
        num_local_experts=EXPERTS, num_experts_per_tok=USED, sliding_window=None,
        bos_token_id=0, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip


def _built(config: Any) -> Any:
    """With random weights, the same in each run; the caller's random numbers stay as they were."""
    import torch
    from transformers import MixtralForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MixtralForCausalLM(config).eval()


def _watch_routers(model: Any) -> dict[int, set[int]]:
    """The experts that any token was sent to, by layer; filled while the model runs."""
    chosen: dict[int, set[int]] = {}
    for index, layer in enumerate(model.model.layers):
        experts = chosen.setdefault(index, set())

        def note(module: Any, inputs: Any, output: Any, experts: set[int] = experts) -> None:
            assert output[-1].shape[-1] == USED
            experts.update(output[-1].flatten().tolist())

        layer.mlp.gate.register_forward_hook(note)
    return chosen


MISCONCEPTIONS = (
    Misconception(
        key="06.context-is-free",
        belief="The context's length does not matter for memory: the model has the same size.",
        wrong="This is wrong: the weights stay the same, and the KV cache grows with every token.",
        mechanism=(
            "Each token of a request leaves a key and a value in every layer, and they stay until "
            "the request is done. Twice the context takes twice the KV cache, and leaves room for "
            "half as many requests."
        ),
        experiment=context_fills_the_cache,
    ),
    Misconception(
        key="06.moe-active",
        belief="A mixture of experts needs only the memory of its active parameters.",
        wrong="This is wrong: the active ones say how much is computed, not how much is held.",
        mechanism=(
            "A router chooses a few experts for each token, and others for the next. Nobody knows "
            "beforehand which, and a batch soon needs all of them. So every expert must be in "
            "memory; what a token saves is arithmetic, and reading, while few tokens share a step."
        ),
        experiment=every_expert_is_used,
    ),
)
