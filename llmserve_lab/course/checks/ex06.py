"""Exercise 06: what a model's weights, KV cache and activation take, and which batch fits."""

from __future__ import annotations

import random
from typing import Any

from llmserve_lab.course.checks import ex06_mutants as mutants
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Number, Record

Model = dict[str, Any]

RANDOM_CASES = 6
GIB = 2**30
ACTIVATION_BYTES = 2
BITS = (4, 8, 16, 32)


def weight_bytes(parameters: int, bits: int) -> float:
    return parameters * bits / 8


def kv_token_bytes(model: Model, bits: int) -> float:
    per_layer = model["latent"] or 2 * model["kv_heads"] * model["head_dim"]
    return model["layers"] * per_layer * bits / 8


def request_bytes(num_tokens: int, block_size: int, token_bytes: float) -> float:
    return -(-num_tokens // block_size) * block_size * token_bytes


def largest_batch(capacity: float, weights: float, activation: float, request: float) -> int:
    return int(max(0, capacity - weights - activation) // request)


def activation_bytes(model: Model, step_tokens: int, batch: int) -> int:
    """Given in the notebook: as chapter 06 has it, in 16 bits."""
    in_layer = step_tokens * (3 * model["mlp_width"] + 4 * model["hidden"])
    return ACTIVATION_BYTES * max(in_layer, batch * model["vocabulary"])


def memory_plan(model: Model, capacity: int, setting: dict[str, int]) -> dict[str, float]:
    weights = weight_bytes(model["parameters"], setting["weight_bits"])
    activation = activation_bytes(model, setting["step_tokens"], setting["batch"])
    token = kv_token_bytes(model, setting["kv_bits"])
    request = request_bytes(setting["context"], setting["block_size"], token)
    return {
        "weights": weights,
        "kv": setting["batch"] * request,
        "activation": activation,
        "largest_batch": largest_batch(capacity, weights, activation, request),
    }


def _model(rng: random.Random, **fixed: Any) -> Model:
    heads = rng.choice((8, 12, 16, 32))
    experts = rng.choice((1, 4, 8))
    parameters = rng.randrange(1, 40) * 10**8
    drawn = {
        "parameters": parameters,
        "active_parameters": parameters // experts,
        "layers": rng.randint(2, 60),
        "hidden": 128 * rng.randint(2, 40),
        "mlp_width": 256 * rng.randint(2, 60),
        "vocabulary": 1000 * rng.randint(4, 150),
        "heads": heads,
        "kv_heads": rng.choice((1, 2, 4)),
        "head_dim": rng.choice((32, 64, 128)),
        "latent": rng.choice((None, None, 576)),
    }
    return {**drawn, **fixed}


def _weights(rng: random.Random) -> list[Arguments]:
    fixed = [(7_000_000_000, 16), (1000, 8), (1000, 4), (5_770_496, 32)]
    drawn = [(2 * rng.randrange(1, 10**9), rng.choice(BITS)) for _ in range(RANDOM_CASES)]
    return [{"parameters": count, "bits": bits} for count, bits in fixed + drawn]


def _tokens(rng: random.Random) -> list[Arguments]:
    small = {"parameters": 10**8, "active_parameters": 10**8, "layers": 4, "hidden": 256}
    fixed = [
        (_model(rng, **small, heads=8, kv_heads=8, head_dim=32, latent=None), 16),  # MHA
        (_model(rng, **small, heads=8, kv_heads=2, head_dim=64, latent=None), 16),  # GQA
        (_model(rng, **small, heads=8, kv_heads=1, head_dim=32, latent=None), 8),  # MQA
        (_model(rng, **small, heads=8, kv_heads=8, head_dim=32, latent=96), 16),  # MLA
        (_model(rng, **small, heads=12, kv_heads=2, head_dim=64, latent=None), 4),  # wider heads
    ]
    drawn = [(_model(rng), rng.choice(BITS)) for _ in range(RANDOM_CASES)]
    return [{"model": model, "bits": bits} for model, bits in fixed + drawn]


def _requests(rng: random.Random) -> list[Arguments]:
    fixed = [(32, 16, 100.0), (33, 16, 100.0), (1, 16, 100.0), (31, 16, 512.0), (40, 1, 8.0)]
    drawn = [
        (rng.randint(1, 5000), rng.choice((1, 8, 16, 32, 256)), float(rng.randint(1, 10**6)))
        for _ in range(RANDOM_CASES)
    ]
    names = ("num_tokens", "block_size", "token_bytes")
    return [dict(zip(names, case, strict=True)) for case in fixed + drawn]


def _batches(rng: random.Random) -> list[Arguments]:
    fixed = [
        (100.0, 40.0, 10.0, 10.0),  # exactly five
        (100.0, 40.0, 11.0, 10.0),  # not quite five
        (100.0, 120.0, 10.0, 10.0),  # the weights alone do not fit
        (100.0, 95.0, 10.0, 2.0),  # with the activation they do not
        (100.0, 90.0, 5.0, 10.0),  # they do, and no request beside them
        (100.0, 60.0, 40.0, 1.0),  # nothing is left
    ]
    drawn = []
    for _ in range(RANDOM_CASES):
        parts = [float(rng.randint(1, 60)) for _ in range(2)]
        drawn.append((float(rng.randint(20, 200)), *parts, rng.randint(1, 80) / 4))
    names = ("capacity", "weights", "activation", "request")
    return [dict(zip(names, case, strict=True)) for case in fixed + drawn]


def _plans(rng: random.Random) -> list[Arguments]:
    usual = {"weight_bits": 16, "kv_bits": 16, "block_size": 16, "step_tokens": 2048}
    dense = _model(rng, parameters=10**9, active_parameters=10**9, latent=None)
    mixture = _model(rng, parameters=4 * 10**9, active_parameters=10**9, latent=None)
    latent = _model(rng, latent=576)
    many = _model(rng, hidden=256, mlp_width=512, vocabulary=150_000, latent=None)
    fixed = [
        (dense, 16 * GIB, {**usual, "context": 1000, "batch": 4}),
        (mixture, 24 * GIB, {**usual, "context": 1001, "batch": 4}),
        (latent, 80 * GIB, {**usual, "weight_bits": 8, "context": 4000, "batch": 9}),
        (many, 80 * GIB, {**usual, "kv_bits": 8, "step_tokens": 64, "context": 50, "batch": 64}),
        (dense, GIB, {**usual, "context": 1000, "batch": 1}),  # the weights do not fit
    ]
    drawn = [(_model(rng), rng.randint(2, 100) * GIB, _setting(rng)) for _ in range(RANDOM_CASES)]
    return [
        {"model": model, "capacity": capacity, "setting": setting}
        for model, capacity, setting in fixed + drawn
    ]


def _setting(rng: random.Random) -> dict[str, int]:
    return {
        "weight_bits": rng.choice((4, 8, 16)),
        "kv_bits": rng.choice((4, 8, 16)),
        "block_size": rng.choice((16, 32)),
        "step_tokens": 256 * rng.randint(1, 16),
        "context": rng.randint(10, 9000),
        "batch": rng.randint(1, 400),
    }


BYTES = Number("bytes")
GRADERS = (
    Grader(
        key="06.1",
        name="ex06_weight_bytes",
        reference=weight_bytes,
        shape=BYTES,
        cases=_weights,
        hints=(
            "Every parameter is one number. How many bytes does one of `bits` bits take?",
            "A byte has 8 bits: 16 bits are 2 bytes, 4 bits are half a byte.",
            "Multiply parameters by bits and divide by 8.",
        ),
        mutants=mutants.WEIGHTS,
    ),
    Grader(
        key="06.2",
        name="ex06_kv_token_bytes",
        reference=kv_token_bytes,
        shape=BYTES,
        cases=_tokens,
        hints=(
            "Which heads are kept for later steps: those of the queries, or those of keys and "
            "values?",
            "Per layer: a key and a value of head_dim numbers for each KV head, unless the model "
            "has a latent. Then it keeps that many numbers in their place.",
            'per_layer = model["latent"] or 2 * model["kv_heads"] * model["head_dim"]; then times '
            "layers, times bits / 8.",
        ),
        mutants=mutants.TOKEN,
    ),
    Grader(
        key="06.3",
        name="ex06_request_bytes",
        reference=request_bytes,
        shape=BYTES,
        cases=_requests,
        hints=(
            "A request that needs part of a block gets all of it.",
            "Divide tokens by block_size and round up: that many blocks of block_size tokens.",
            "ceil(num_tokens / block_size) * block_size * token_bytes",
        ),
        mutants=mutants.REQUEST,
    ),
    Grader(
        key="06.4",
        name="ex06_largest_batch",
        reference=largest_batch,
        shape=Number("requests", whole=True),
        cases=_batches,
        hints=(
            "What is left for the KV cache once weights and activation have their part?",
            "How many whole requests does the rest hold? And if there is no rest?",
            "int(max(0, capacity - weights - activation) // request)",
        ),
        mutants=mutants.BATCH,
    ),
    Grader(
        key="06.5",
        name="ex06_memory_plan",
        reference=memory_plan,
        shape=Record(
            {
                "weights": BYTES,
                "kv": BYTES,
                "activation": BYTES,
                "largest_batch": Number("requests", whole=True),
            }
        ),
        cases=_plans,
        hints=(
            "Your four functions and activation_bytes do the work. Which of a model's two counts "
            "of parameters must be held?",
            "weights from all parameters; a token's KV, then a request's; the KV cache holds "
            "`batch` requests; the largest batch does not depend on its KV.",
            'request = request_bytes(setting["context"], setting["block_size"], '
            'kv_token_bytes(model, setting["kv_bits"])); then "kv" is batch * request.',
        ),
        mutants=mutants.PLAN,
    ),
)
