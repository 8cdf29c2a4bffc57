"""Wrong answers to exercise 06, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

Mutants = dict[str, Callable[..., Any]]
Model = dict[str, Any]

WEIGHTS: Mutants = {
    "bits taken for bytes": lambda parameters, bits: parameters * bits,
    "always two bytes": lambda parameters, bits: parameters * 2,
    "whole bytes a parameter": lambda parameters, bits: parameters * (bits // 8),
    "in GiB": lambda parameters, bits: parameters * bits / 8 / 2**30,
    "in thousands of bytes": lambda parameters, bits: parameters * bits / 8000,
}


def _token(model: Model, bits: int, heads: str = "kv_heads", both: int = 2) -> Any:
    """A right answer, unless told to count other heads or not both keys and values."""
    per_layer = model["latent"] or both * model[heads] * model["head_dim"]
    return model["layers"] * per_layer * bits / 8


TOKEN: Mutants = {
    "all query heads": lambda model, bits: _token(model, bits, heads="heads"),
    "keys without values": lambda model, bits: _token(model, bits, both=1),
    "one layer": lambda model, bits: _token(model, bits) / model["layers"],
    "bits taken for bytes": lambda model, bits: _token(model, bits) * 8,
    "always 16 bits": lambda model, bits: _token(model, 16),
    "takes no notice of the latent": lambda model, bits: _token({**model, "latent": None}, bits),
    "keeps the latent twice": lambda model, bits: (
        _token(model, bits) * (2 if model["latent"] else 1)
    ),
    "a latent for each KV head": lambda model, bits: (
        _token(model, bits) * (model["kv_heads"] if model["latent"] else 1)
    ),
    "the hidden width": lambda model, bits: (
        model["layers"] * (model["latent"] or 2 * model["hidden"]) * bits / 8
    ),
}

REQUEST: Mutants = {
    "no whole blocks": lambda tokens, size, each: tokens * each,
    "rounds down": lambda tokens, size, each: tokens // size * size * each,
    "one block too many": lambda tokens, size, each: (tokens // size + 1) * size * each,
    "rounds to the nearest": lambda tokens, size, each: max(1, round(tokens / size)) * size * each,
    "blocks taken for tokens": lambda tokens, size, each: ceil(tokens / size) * each,
    "counts blocks": lambda tokens, size, each: ceil(tokens / size),
}


def _batch(capacity: float, weights: float, activation: float, request: float) -> int:
    return int(max(0, capacity - weights - activation) // request)


BATCH: Mutants = {
    "below zero": lambda capacity, weights, activation, request: int(
        (capacity - weights - activation) // request
    ),
    "at least one": lambda *given: max(1, _batch(*given)),
    "rounds up": lambda capacity, weights, activation, request: ceil(
        max(0, capacity - weights - activation) / request
    ),
    "a part of a request": lambda capacity, weights, activation, request: (
        max(0, capacity - weights - activation) / request
    ),
    "forgets the activation": lambda capacity, weights, activation, request: _batch(
        capacity, weights, 0, request
    ),
    "forgets the weights": lambda capacity, weights, activation, request: _batch(
        capacity, 0, activation, request
    ),
    "weights for each request": lambda capacity, weights, activation, request: _batch(
        capacity, 0, activation, request + weights
    ),
}


def _plan(model: Model, capacity: float, setting: Any, **other: Any) -> dict[str, Any]:
    """A right plan, unless `other` replaces a number that it is made of."""
    size, batch = setting["block_size"], setting["batch"]
    in_layer = setting["step_tokens"] * (3 * model["mlp_width"] + 4 * model["hidden"])
    numbers = {
        "weights": model["parameters"] * setting["weight_bits"] / 8,
        "activation": 2 * max(in_layer, batch * model["vocabulary"]),
        "token": _token(model, setting["kv_bits"]),
        "tokens": ceil(setting["context"] / size) * size,
        **other,
    }
    request = numbers["tokens"] * numbers["token"]
    return {
        "weights": numbers["weights"],
        "kv": batch * request,
        "activation": numbers["activation"],
        "largest_batch": _batch(capacity, numbers["weights"], numbers["activation"], request),
    }


def _half_used(model: Model, capacity: float, setting: Any) -> dict[str, Any]:
    plan = _plan(model, capacity, setting)
    left = capacity - plan["weights"] - plan["activation"] - plan["kv"]
    plan["largest_batch"] = int(max(0, left) // (plan["kv"] / setting["batch"]))
    return plan


def _one_request(model: Model, capacity: float, setting: Any) -> dict[str, Any]:
    plan = _plan(model, capacity, setting)
    return plan | {"kv": plan["kv"] / setting["batch"]}


PLAN: Mutants = {
    "holds the active parameters only": lambda model, capacity, setting: _plan(
        model, capacity, setting, weights=model["active_parameters"] * setting["weight_bits"] / 8
    ),
    "the weights' bits for the KV cache": lambda model, capacity, setting: _plan(
        model, capacity, setting, token=_token(model, setting["weight_bits"])
    ),
    "no whole blocks": lambda model, capacity, setting: _plan(
        model, capacity, setting, tokens=setting["context"]
    ),
    "takes no notice of the latent": lambda model, capacity, setting: _plan(
        model, capacity, setting, token=_token({**model, "latent": None}, setting["kv_bits"])
    ),
    "no activation": lambda model, capacity, setting: _plan(model, capacity, setting, activation=0),
    "activation over all layers": lambda model, capacity, setting: _plan(
        model, capacity, setting,
        activation=model["layers"] * _plan(model, capacity, setting)["activation"],
    ),
    "the batch beside the batch": _half_used,
    "the KV cache of one request": _one_request,
    "leaves a key out": lambda *given: {"weights": _plan(*given)["weights"]},
}  # fmt: skip
