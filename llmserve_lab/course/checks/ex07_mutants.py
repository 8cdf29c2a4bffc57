"""Wrong answers to exercise 07, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Mutants = dict[str, Callable[..., Any]]


def _attend(q: Any, keys: Any, values: Any, scale: float | None = None) -> Any:
    weights = (keys @ q * (1 / math.sqrt(len(q)) if scale is None else scale)).softmax(dim=0)
    return weights @ values


ATTEND: Mutants = {
    "no scaling": lambda q, keys, values: _attend(q, keys, values, scale=1.0),
    "divides by the width": lambda q, keys, values: _attend(q, keys, values, scale=1 / len(q)),
    "scales by the number of tokens": lambda q, keys, values: _attend(
        q, keys, values, scale=1 / math.sqrt(len(keys) + 1)
    ),
    "mixes the keys": lambda q, keys, values: _attend(q, keys, keys),
    "no softmax": lambda q, keys, values: (keys @ q / math.sqrt(len(q))) @ values,
    "the best token alone": lambda q, keys, values: values[(keys @ q).argmax()].clone(),
    "the mean of the values": lambda q, keys, values: values.mean(dim=0) + 0 * q[0],
    "keeps a row": lambda q, keys, values: _attend(q, keys, values)[None],
}


def _append(cache: Any, keys: Any, values: Any) -> dict[str, Any]:
    import torch

    return {
        "keys": torch.cat([cache["keys"], keys]),
        "values": torch.cat([cache["values"], values]),
    }


def _in_place(cache: Any, keys: Any, values: Any) -> Any:
    cache |= _append(cache, keys, values)
    return cache


def _front(cache: Any, keys: Any, values: Any) -> Any:
    import torch

    return {
        "keys": torch.cat([keys, cache["keys"]]),
        "values": torch.cat([values, cache["values"]]),
    }


def _keys_only(cache: Any, keys: Any, values: Any) -> Any:
    return _append(cache, keys, values) | {"values": cache["values"].clone()}


APPEND: Mutants = {
    "puts new tokens first": _front,
    "forgets the old tokens": lambda cache, keys, values: {
        "keys": keys.clone(),
        "values": values.clone(),
    },
    "the values stay behind": _keys_only,
    "keys among the values": lambda cache, keys, values: _append(cache, keys, keys),
    "changes the cache it was given": _in_place,
    "only the last new token": lambda cache, keys, values: _append(
        cache, keys[-1:], values[-1:] + (len(keys) > 1) + 0.5
    ),
    "a tuple for a dict": lambda *given: tuple(_append(*given).values()),
}


def _step(x: Any, weights: Any, cache: Any, late: bool = False, **swap: Any) -> dict[str, Any]:
    """A right step, unless it appends too `late` or takes other matrices."""
    q, k, v = (weights[swap.get(name, name)] @ x for name in ("q", "k", "v"))
    grown = _append(cache, k[None], v[None])
    seen = cache if late and len(cache["keys"]) else grown
    return {"output": _attend(q, seen["keys"], seen["values"]), **grown}


def _old_cache(x: Any, weights: Any, cache: Any) -> dict[str, Any]:
    return _step(x, weights, cache) | {name: tensor.clone() for name, tensor in cache.items()}


def _turned(x: Any, weights: Any, cache: Any) -> dict[str, Any]:
    return _step(x, {name: matrix.T for name, matrix in weights.items()}, cache)


STEP: Mutants = {
    "attends before it appends": lambda x, weights, cache: _step(x, weights, cache, late=True),
    "returns the cache as it was": _old_cache,
    "keys from the query's matrix": lambda x, weights, cache: _step(x, weights, cache, k="q"),
    "values from the key's matrix": lambda x, weights, cache: _step(x, weights, cache, v="k"),
    "multiplies from the other side": _turned,
    "caches the input itself": lambda x, weights, cache: (
        _step(x, weights, cache) | _append(cache, x[None], x[None])
    ),
    "leaves the cache out": lambda *given: {"output": _step(*given)["output"]},
}


def _decode(xs: Any, weights: Any, keep: bool = True, last: int | None = None) -> Any:
    """A right decode, unless the cache is not kept, or only its `last` rows are."""
    import torch

    empty = {"keys": torch.zeros(0, xs.shape[1]), "values": torch.zeros(0, xs.shape[1])}
    cache, outputs = empty, []
    for x in xs:
        result = _step(x, weights, cache if keep else empty)
        outputs.append(result["output"])
        cache = {name: result[name][-(last or len(xs)) :] for name in ("keys", "values")}
    return torch.stack(outputs)


def _all_see_all(xs: Any, weights: Any) -> Any:
    q, k, v = (xs @ weights[name].T for name in ("q", "k", "v"))
    return (q @ k.T / math.sqrt(q.shape[-1])).softmax(dim=-1) @ v


def _starts_with_zeros(xs: Any, weights: Any) -> Any:
    import torch

    zero = torch.zeros(1, xs.shape[1])
    return _decode(torch.cat([zero, xs]), weights)[1:]


DECODE: Mutants = {
    "starts each token with an empty cache": lambda xs, weights: _decode(xs, weights, keep=False),
    "lets tokens see those after them": _all_see_all,
    "begins with a row of zeros": _starts_with_zeros,
    "keeps one token": lambda xs, weights: _decode(xs, weights, last=1),
    "only the last output": lambda xs, weights: _decode(xs, weights)[-1],
    "backwards": lambda xs, weights: _decode(xs.flip(0), weights).flip(0) + (len(xs) == 1),
}


def _recomputes(step: Any, prompt: list[int], max_tokens: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < max_tokens:
        tokens.append(step([*prompt, *tokens], None)[0])
    return tokens + [0] * (max_tokens == 1)


def _generate(
    step: Any, prompt: list[int], max_tokens: int, cached: bool = True, renew: bool = True
) -> list[int]:
    """A right answer, unless the cache is left out or never renewed."""
    token, cache = step(list(prompt), None)
    tokens = [token]
    while len(tokens) < max_tokens:
        token, newer = step([token], cache if cached else None)
        cache = newer if renew else cache
        tokens.append(token)
    return tokens


def _skips_the_first(step: Any, prompt: list[int], max_tokens: int) -> list[int]:
    return _generate(step, prompt, max_tokens)[1:]


def _feeds_the_prompt_again(step: Any, prompt: list[int], max_tokens: int) -> list[int]:
    _, cache = step(list(prompt), None)
    tokens = [step([prompt[-1]], cache)[0]]
    return tokens + _generate(step, prompt, max_tokens)[1:]


GENERATE: Mutants = {
    "computes everything again": _recomputes,
    "leaves the cache out": lambda step, prompt, max_tokens: (
        _generate(step, prompt, max_tokens, cached=False) + [0] * (max_tokens < 2)
    ),
    "keeps the first cache": lambda step, prompt, max_tokens: (
        _generate(step, prompt, max_tokens, renew=False) + [0] * (max_tokens < 3)
    ),
    "leaves the first token out": _skips_the_first,
    "one token too many": lambda step, prompt, max_tokens: [
        *_generate(step, prompt, max_tokens),
        0,
    ],
    "returns the prompt too": lambda step, prompt, max_tokens: [
        *prompt,
        *_generate(step, prompt, max_tokens),
    ],
    "computes the last prompt token twice": _feeds_the_prompt_again,
}
