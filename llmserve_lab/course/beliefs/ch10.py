"""Chapter 10: how often generate runs the model, over which rows, and for whom."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

PROMPT, TOKENS, ROWS = 24, 6, 8


def a_call_for_every_token() -> str:
    from llmserve_lab.course.forward_calls import forward_calls

    network, ids = _model_and_ids(rows=1)
    with forward_calls(network) as calls:
        written = _generated(network, ids)
    assert len(calls) == TOKENS == written.shape[1] - PROMPT
    assert [call.num_tokens for call in calls] == [PROMPT] + [1] * (TOKENS - 1)
    return (
        f"For {TOKENS} new tokens generate called the model {len(calls)} times: once with the "
        f"{PROMPT} tokens of the prompt, then {TOKENS - 1} times with the one token that had just "
        "come."
    )


def every_layer_computes_one_row() -> str:
    network, ids = _model_and_ids(rows=1)
    with_cache, without = (_mlp_rows(network, ids, use_cache) for use_cache in (True, False))
    layers = network.config.num_hidden_layers
    assert with_cache == [PROMPT] * layers + [1] * (layers * (TOKENS - 1))
    assert sum(without) == layers * sum(range(PROMPT, PROMPT + TOKENS))
    return (
        f"With past_key_values the MLPs of {layers} layers ran over {sum(with_cache):,} rows for "
        f"{TOKENS} tokens after a prompt of {PROMPT}; without, over {sum(without):,}. In the last "
        f"call each MLP had {with_cache[-1]} row with the cache and {without[-1]} without."
    )


def a_batch_shares_every_call() -> str:
    from llmserve_lab import LLM, SamplingParams, load
    from llmserve_lab.course.forward_calls import forward_calls

    network, ids = _model_and_ids(rows=ROWS)
    counts = []
    for batch in (ids[:1], ids):
        with forward_calls(network) as calls:
            _generated(network, batch)
        counts.append(len(calls))
    assert counts == [TOKENS, TOKENS]
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    read = []
    for batch in (ids[:1], ids):
        llm = LLM(load("lab-target", dtype="float32"))
        llm.generate([{"prompt_token_ids": row} for row in batch.tolist()], params)
        read.append(llm.metrics)
    alone, together = read
    assert alone.steps == together.steps == TOKENS
    assert together.computed_tokens == ROWS * alone.computed_tokens
    assert together.num_bytes < ROWS / 2 * alone.num_bytes
    return (
        f"For 1 row and for {ROWS} generate called the model {TOKENS} times, and the engine took "
        f"{TOKENS} steps. {ROWS} rows are {ROWS} times the tokens, but each call reads the weights "
        f"once for all of them: {together.num_bytes / alone.num_bytes:.1f} times the bytes."
    )


def _model_and_ids(rows: int) -> tuple[Any, Any]:
    """The network and (rows, PROMPT) token ids."""
    import torch

    from llmserve_lab import load
    from llmserve_lab.course.experiments import held_out_prompts

    model = load("lab-target", dtype="float32")
    prompts = held_out_prompts(model.tokenizer, count=rows, num_tokens=PROMPT)
    ids = [prompt["prompt_token_ids"] for prompt in prompts]
    return model.model, torch.tensor(ids, device=model.model.device)


def _generated(network: Any, ids: Any, use_cache: bool = True) -> Any:
    import torch

    return network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=TOKENS,
        min_new_tokens=TOKENS,
        do_sample=False,
        use_cache=use_cache,
        pad_token_id=0,
    )


def _mlp_rows(network: Any, ids: Any, use_cache: bool) -> list[int]:
    """Tokens that went through an MLP, for each call of one, in order."""
    seen: list[int] = []
    hooks = [
        layer.mlp.register_forward_hook(lambda module, args, out: seen.append(args[0].shape[1]))
        for layer in network.model.layers
    ]
    try:
        _generated(network, ids, use_cache)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


MISCONCEPTIONS = (
    Misconception(
        key="10.generate-once",
        belief="generate() runs the model once and gets the whole answer.",
        wrong="This is wrong: it is a loop, and every new token is one more call of the model.",
        mechanism=(
            "A call gives the distribution of one next token, p(x_t | x_<t). What stands behind "
            "the bar has to be known before, so the token just chosen goes into the next call. The "
            "first call reads the prompt, T_prefill; the others make up T_decode."
        ),
        experiment=a_call_for_every_token,
    ),
    Misconception(
        key="10.attention-only",
        belief="past_key_values speeds up attention alone: the feed-forward layers still run over "
        "all tokens.",
        wrong="This is wrong: with the cache one row passes through the whole layer.",
        mechanism=(
            "Only attention looks at other tokens, and at their keys and values alone. As these "
            "are kept, nothing else of the old tokens is asked for: no projection, no MLP. That is "
            "where most of the saving is; attention itself still reads every key."
        ),
        experiment=every_layer_computes_one_row,
    ),
    Misconception(
        key="10.independent-rows",
        belief="batch_size=8 means eight independent computations.",
        wrong="This is wrong: the rows go through the model together, in one call per step.",
        mechanism=(
            "The rows are independent as texts: none sees another's tokens. They are not as work: "
            "one matrix product takes all of them, and the weights are read once for it. That is "
            "why a batch gains throughput, and why its rows wait for each other in every call."
        ),
        experiment=a_batch_shares_every_call,
    ),
)
