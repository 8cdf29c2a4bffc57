"""Floating-point operations of a forward pass, counted while it runs."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.past import with_past
from llmserve_lab.engine.checks import require_count

MATRIX_PRODUCTS = "aten.bmm"  # of attention: one for each head; linear layers are aten.mm


def counted_flops(model: Any, num_tokens: int, num_cached: int = 0) -> dict[str, int]:
    """What torch's `FlopCounterMode` counts in one pass over `num_tokens` tokens, after others of
    which `num_cached` lie in a KV cache: `"linear"`, all products with weights (of the output layer
    only the last token's), and `"attention"`, queries with keys and probabilities with values.
    model: what `load` returned.

    Attention runs as plain matrix products over all query-key pairs, the masked ones included: the
    counter does not see into fused kernels on a CPU.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    require_count("num_tokens", num_tokens, at_least=1)
    require_count("num_cached", num_cached, at_least=0)
    network, config = model.model, model.model.config
    ids = torch.zeros((1, num_tokens), dtype=torch.int64, device=network.device)
    before, config._attn_implementation = config._attn_implementation, "eager"
    try:
        past = _filled(network, num_cached) if num_cached else None
        with torch.inference_mode(), FlopCounterMode(display=False) as counter:
            if past is None:
                network(ids, use_cache=False, logits_to_keep=1)
            else:
                with_past(network, ids, past)
    finally:
        config._attn_implementation = before
    by_kind = {str(kind): count for kind, count in counter.get_flop_counts()["Global"].items()}
    attention = by_kind.get(MATRIX_PRODUCTS, 0)
    return {"linear": counter.get_total_flops() - attention, "attention": attention}


def _filled(network: Any, num_tokens: int) -> Any:
    """transformers' cache with the keys and values of so many tokens."""
    import torch

    ids = torch.zeros((1, num_tokens), dtype=torch.int64, device=network.device)
    return with_past(network, ids)[1]
