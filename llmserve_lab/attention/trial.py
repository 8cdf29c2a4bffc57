"""A model's logits through the paged cache against those of its plain forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmserve_lab.attention import reference
from llmserve_lab.attention.hook import implementation, paged
from llmserve_lab.attention.metadata import BatchMetadata, Segment
from llmserve_lab.attention.options import UnsupportedAttentionError
from llmserve_lab.kv_cache import KVShape, PagedKVCache

if TYPE_CHECKING:
    import torch

BLOCK_SIZE = 2
# Of the logits' length. Rounding makes 1e-6 in float32; in 16 bits up to 0.03 over 8 tokens, so
# only what is gross shows there: tokens that see others' (0.14 to 0.8 with the bundled models).
TOLERANCE, TOLERANCE_16_BIT = 0.01, 0.15
BYTES_16_BIT = 2


def require_own_logits(model: Any, shape: KVShape, ids: list[int]) -> None:
    """Compute all of `ids` but the last, then the last one beside another request's tokens.

    Raises:
        UnsupportedAttentionError: the last token's logits are not those of a plain forward.
    """
    import torch

    # Written out in full: transformers' sdpa left Gemma 2's soft cap out as late as in 5.15.
    with torch.inference_mode(), implementation(model, "eager"):
        plain = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False)
    own, ours = plain.logits[0, -1].float(), _through_the_cache(model, shape, ids).float()
    if not own.isfinite().all():
        return  # nothing to compare with
    error = float((ours - own).norm() / own.norm().clamp(min=torch.finfo(own.dtype).tiny))
    narrow = model.dtype.itemsize <= BYTES_16_BIT
    if not error <= (TOLERANCE_16_BIT if narrow else TOLERANCE):
        raise UnsupportedAttentionError(
            "its logits in a batch differ from those of its plain forward by "
            f"{error:.0%}, so something besides attention connects its tokens"
        )


def _through_the_cache(model: Any, shape: KVShape, ids: list[int]) -> torch.Tensor:
    """(vocabulary,): the logits after the last id."""

    count = len(ids)
    blocks = range(2 * -(-count // BLOCK_SIZE))
    mine, other = list(blocks[::2]), list(blocks[1::2])
    cache = PagedKVCache(shape, len(blocks), BLOCK_SIZE, model.dtype, model.device)
    _forward(model, cache, ids[:-1], range(count - 1), [Segment(0, 0, count - 1, mine)])
    segments = [Segment(0, 0, count, other), Segment(count, count - 1, 1, mine)]
    return _forward(model, cache, [*ids[::-1], ids[-1]], [*range(count), count - 1], segments)


def _forward(
    model: Any, cache: PagedKVCache, ids: list[int], positions: Any, segments: list[Segment]
) -> torch.Tensor:
    import torch

    device = model.device
    batch = BatchMetadata(cache, segments, device)
    with torch.inference_mode(), paged(model, batch, reference.paged_attention):
        output = model(
            input_ids=torch.tensor([ids], device=device),
            position_ids=torch.tensor([list(positions)], device=device),
            logits_to_keep=torch.tensor([len(ids) - 1], device=device),
            use_cache=False,
        )
    if output.logits.shape[1] != 1:
        raise UnsupportedAttentionError("its forward takes no tensor of logits_to_keep")
    return output.logits[0, 0]
