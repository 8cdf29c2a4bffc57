"""Attention over a paged KV cache, and how a transformers model comes to use it."""

from llmserve_lab.attention.backend import attention_backend
from llmserve_lab.attention.hook import UnsupportedAttentionError, paged
from llmserve_lab.attention.metadata import BatchMetadata, Segment

__all__ = [
    "BatchMetadata",
    "Segment",
    "UnsupportedAttentionError",
    "attention_backend",
    "paged",
]
