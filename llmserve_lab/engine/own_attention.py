"""An attention function that the caller brings along, such as a learner's."""

from __future__ import annotations

from typing import Any

from llmserve_lab.attention.backend import AUTO
from llmserve_lab.attention.own import OneToken


def choose_attention(attention: Any, backend: str, cuda_graphs: bool) -> str | OneToken:
    """The function, or the backend's name where none is given.

    Raises:
        TypeError: not a function.
        ValueError: it contradicts another setting.
    """
    if attention is None:
        return backend
    if not callable(attention) or isinstance(attention, type):
        raise TypeError(
            "attention must be a function of (query, key_blocks, value_blocks, block_table, "
            f"num_tokens, scale), not {attention!r:.80}; a backend's name goes to "
            "attention_backend."
        )
    if backend != AUTO:
        raise ValueError(f"attention and attention_backend={backend!r} exclude each other.")
    if cuda_graphs:
        raise ValueError("cuda_graphs needs the triton backend: leave out attention.")
    return attention  # type: ignore[no-any-return]
