"""How long it takes to read the keys and values that a run attends to, at this machine's rate.

Attention reads the keys and values of each request once in every step that the request is in, and
those of a long batch come from main memory: no kernel reads them faster than memory gives them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llmserve_lab.engine.peak import measure_peak
from llmserve_lab.engine.trace import StepSnapshot
from llmserve_lab.kv_cache import KVShape


def tokens_read(steps: Iterable[StepSnapshot]) -> int:
    """Tokens whose keys and values the steps read: of each scheduled request, all that it has."""
    return sum(item.start + item.num_tokens for step in steps for item in step.scheduled)


def bytes_read(model: Any, steps: Iterable[StepSnapshot]) -> int:
    """In all layers, of a cache in the model's dtype."""
    per_token = KVShape.of(model.config).bytes_per_token(model.dtype.itemsize)
    return tokens_read(steps) * per_token


def bandwidth() -> float:
    """Bytes per second that torch's threads read of a large matrix in float32, whatever the model's
    dtype: processors without bf16 instructions multiply it slower than they read it."""
    import torch

    return measure_peak("cpu", torch.float32).bytes_per_second
