"""What the engine keeps of a prompt: its keys and values, read back through the block table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from llmserve_lab.kv_cache import slots_of

if TYPE_CHECKING:
    import torch

BLOCK_SIZE = 16


class Rows(NamedTuple):
    """Of one layer; each (tokens, KV heads, head dimension)."""

    keys: torch.Tensor
    values: torch.Tensor

    def apart(self, other: Rows, newest: int) -> tuple[float, float]:
        """How far the keys, and the values, of the last `newest` tokens are from those of `other`;
        see `apart`."""
        return (
            apart(self.keys[-newest:], other.keys[-newest:]),
            apart(self.values[-newest:], other.values[-newest:]),
        )


def cached_rows(model: Any, token_ids: list[int]) -> list[Rows]:
    """The engine's KV cache after it has read a prompt, one entry a layer. model: what `load`
    returned.

    Raises:
        ValueError: no token, or more than the model takes.
    """
    import torch

    from llmserve_lab import LLM, SamplingParams

    num_blocks = -(-(len(token_ids) + 2) // BLOCK_SIZE)
    llm = LLM(model, block_size=BLOCK_SIZE, num_blocks=num_blocks, trace=True)
    llm.add_request({"prompt_token_ids": token_ids}, SamplingParams(max_tokens=2, ignore_eos=True))
    llm.step()
    (view,) = llm.trace[-1].running
    slots = slots_of(list(view.block_table), 0, len(token_ids), BLOCK_SIZE)
    where = torch.tensor(slots, device=llm.model.device)
    count = llm.model.config.num_hidden_layers
    return [Rows(*llm.kv_cache.read(layer, where)) for layer in range(count)]


def apart(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    """How far two tensors of one shape are from each other: the root mean square of the difference
    over that of `mine`; 0 is equal, and about 1.4 unrelated."""
    return float((mine - theirs).norm() / mine.norm())
