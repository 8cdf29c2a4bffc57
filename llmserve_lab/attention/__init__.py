"""Attention over a paged KV cache, and how a transformers model comes to use it."""

from llmserve_lab.attention.backend import attention_backend
from llmserve_lab.attention.hook import paged
from llmserve_lab.attention.metadata import BatchMetadata, Segment
from llmserve_lab.attention.options import UnsupportedAttentionError
from llmserve_lab.attention.support import require_decoder, required_features

__all__ = [
    "BatchMetadata",
    "Segment",
    "UnsupportedAttentionError",
    "attention_backend",
    "paged",
    "require_decoder",
    "required_features",
]
