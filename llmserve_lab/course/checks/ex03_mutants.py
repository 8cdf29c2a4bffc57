"""Wrong answers to exercise 03, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Mutants = dict[str, Callable[..., Any]]


def _scores(q: Any, k: Any) -> Any:
    return q @ k.T / math.sqrt(q.shape[-1])


SCORES: Mutants = {
    "forgets the root of d": lambda q, k: q @ k.T,
    "divides by d": lambda q, k: q @ k.T / q.shape[-1],
    "the root of the number of keys": lambda q, k: q @ k.T / math.sqrt(len(k)),
    "the root of the number of queries": lambda q, k: q @ k.T / math.sqrt(len(q)),
    "keys by queries": lambda q, k: _scores(q, k).T,
    "as lists": lambda q, k: _scores(q, k).tolist(),
    "in double precision": lambda q, k: _scores(q, k).double(),
    "scales its input": lambda q, k: q.div_(math.sqrt(q.shape[-1])) @ k.T,
}


def _weights(s: Any, offset: Callable[[int, int], int], dim: int = -1) -> Any:
    import torch

    m, n = s.shape
    seen = torch.ones(m, n, dtype=torch.bool).tril(diagonal=offset(m, n))
    return s.masked_fill(~seen, -math.inf).softmax(dim=dim)


def _newest(m: int, n: int) -> int:
    return n - m


def _zeros_for_minus_infinity(s: Any) -> Any:
    import torch

    m, n = s.shape
    return (s * torch.ones(m, n).tril(diagonal=n - m)).softmax(dim=-1)


def _masked_after_the_softmax(s: Any) -> Any:
    m, n = s.shape
    return s.softmax(dim=-1).tril(diagonal=n - m)


def _without_the_maximum(s: Any) -> Any:
    """exp() of large scores is infinite."""
    m, n = s.shape
    powers = s.exp().tril(diagonal=n - m)
    return powers / powers.sum(dim=-1, keepdim=True)


def _masks_its_input(s: Any) -> Any:
    import torch

    m, n = s.shape
    s.masked_fill_(torch.ones(m, n, dtype=torch.bool).triu(diagonal=n - m + 1), -math.inf)
    return s.softmax(dim=-1)


CAUSAL_WEIGHTS: Mutants = {
    "no mask": lambda s: s.softmax(dim=-1),
    "the queries as the first tokens": lambda s: _weights(s, lambda m, n: 0),
    "hides the token itself": lambda s: _weights(s, lambda m, n: n - m - 1),
    "sees one token too far": lambda s: _weights(s, lambda m, n: n - m + 1),
    "softmax over the queries": lambda s: _weights(s, _newest, dim=0).nan_to_num(),
    "a score of 0 for a masked key": _zeros_for_minus_infinity,
    "masks after the softmax": _masked_after_the_softmax,
    "exponentials that overflow": _without_the_maximum,
    "no softmax": lambda s: s.tril(diagonal=s.shape[1] - s.shape[0]),
    "writes into its input": _masks_its_input,
}


ATTENTION: Mutants = {
    "no mask": lambda q, k, v: _scores(q, k).softmax(dim=-1) @ v,
    "no scale": lambda q, k, v: _weights(q @ k.T, _newest) @ v,
    "the queries as the first tokens": lambda q, k, v: _weights(_scores(q, k), lambda m, n: 0) @ v,
    "no softmax": lambda q, k, v: _scores(q, k).tril(diagonal=len(k) - len(q)) @ v,
    "the weights alone": lambda q, k, v: _weights(_scores(q, k), _newest),
    "the newest value": lambda q, k, v: v[-len(q) :].clone(),
    "the mean of the values": lambda q, k, v: v.mean(dim=0, keepdim=True).repeat(len(q), 1),
    "keys for values": lambda q, k, v: _weights(_scores(q, k), _newest) @ k,
}


def _flops(
    n: int, layers: int, hidden: int, kv: int, mlp: int, *, two: int = 2, **changes: Any
) -> dict[str, Any]:
    """A right count, unless told otherwise."""
    projections = changes.get("projections", 2 * hidden * (hidden + kv))
    weights = layers * (projections + changes.get("mlp_matrices", 3) * hidden * mlp)
    pairs = changes.get("pairs", n * n)
    products = changes.get("products", 2)
    attention = two * products * layers * pairs * changes.get("width", hidden)
    return {"linear": two * n * weights, "attention": attention}


PREFILL_FLOPS: Mutants = {
    "multiplications only": lambda n, *sizes: _flops(n, *sizes, two=1),
    "one product of attention": lambda n, *sizes: _flops(n, *sizes, products=1),
    "attention linear in n": lambda n, *sizes: _flops(n, *sizes, pairs=n),
    "the causal half": lambda n, *sizes: _flops(n, *sizes, pairs=n * (n + 1) // 2),
    "two MLP matrices": lambda n, *sizes: _flops(n, *sizes, mlp_matrices=2),
    "keys as wide as queries": lambda n, layers, hidden, kv, mlp: _flops(
        n, layers, hidden, kv, mlp, projections=4 * hidden * hidden
    ),
    "attention as wide as the keys": lambda n, layers, hidden, kv, mlp: _flops(
        n, layers, hidden, kv, mlp, width=kv
    ),
    "one layer": lambda n, layers, *sizes: _flops(n, 1, *sizes),
    "one token": lambda n, *sizes: _flops(n, *sizes) | {"linear": _flops(1, *sizes)["linear"]},
    "as floats": lambda n, *sizes: {key: float(v) for key, v in _flops(n, *sizes).items()},
    "a tuple for a dict": lambda n, *sizes: tuple(_flops(n, *sizes).values()),
}


def _ratio(*sizes: int, **changes: Any) -> float:
    one = _flops(1, *sizes, **changes)
    return float(one["linear"] / one["attention"])


CROSSOVER: Mutants = {
    "where both are equal, rounded up": lambda *sizes: math.ceil(_ratio(*sizes)),
    "rounded down": lambda *sizes: math.floor(_ratio(*sizes)),
    "not a whole number": lambda *sizes: _ratio(*sizes),
    "the causal half": lambda *sizes: math.floor(2 * _ratio(*sizes)) + 1,
    "the root": lambda *sizes: math.floor(math.sqrt(_ratio(*sizes))) + 1,
    "one product of attention": lambda *sizes: math.floor(_ratio(*sizes, products=1)) + 1,
    "times the layers": lambda layers, *sizes: math.floor(layers * _ratio(layers, *sizes)) + 1,
    "six times the width": lambda layers, hidden, *_: 6 * hidden + 1,
}
