"""How much a KV cache may hold, and whether a request fits at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.engine.checks import require_count, require_number
from llmserve_lab.kv_cache import KVShape
from llmserve_lab.kv_cache.shape import AUTO

CPU_CACHE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Capacity:
    """Sizes that are fixed for the engine's life. `block_bytes`: keys and values of one block;
    `draft_bytes`: those of a draft model in the same block."""

    max_model_len: int
    num_blocks: int
    block_size: int
    block_bytes: int
    draft_bytes: int = 0

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of one token."""
        return self.block_bytes // self.block_size

    @classmethod
    def plan(
        cls,
        model: Any,
        max_model_len: int | None,
        max_num_seqs: int,
        block_size: int,
        num_blocks: int | None,
        memory_bytes: int | None,
        gpu_share: float,
        kv_cache_dtype: str = AUTO,
        draft: Any = None,
    ) -> Capacity:
        """Choose what is not given: the models' own context, and as many blocks as memory allows
        and `max_num_seqs` full sequences could use. draft: a model with a cache of its own."""
        models = [model] if draft is None else [model, draft]
        context = min(m.config.get_text_config().max_position_embeddings for m in models)
        longest = context if max_model_len is None else max_model_len
        require_count("max_model_len", longest, at_least=2, at_most=context)
        require_number("gpu_memory_utilization", gpu_share, 0.0, 1.0)
        sizes = [_block_bytes(m, block_size, kv_cache_dtype) for m in models]
        if memory_bytes is not None:
            require_count("kv_cache_memory_bytes", memory_bytes, at_least=sum(sizes))
        if num_blocks is None:
            budget = memory_bytes or _device_budget(model.device, gpu_share)
            usable = max_num_seqs * -(-longest // block_size)
            num_blocks = min(usable, budget // sum(sizes))
        require_count("num_blocks", num_blocks, at_least=1)
        return cls(longest, num_blocks, block_size, *sizes)

    def require_room(self, num_prompt_tokens: int, max_tokens: int) -> None:
        """Refuse at once what could never finish.

        Raises:
            ValueError: the request needs more blocks than there are.
        """
        longest = min(num_prompt_tokens + max_tokens, self.max_model_len)
        wanted = -(-longest // self.block_size)
        if wanted > self.num_blocks:
            raise ValueError(
                f"The request may grow to {longest} tokens, {wanted} blocks of {self.block_size}; "
                f"the KV cache has {self.num_blocks}. Lower max_tokens or raise num_blocks."
            )


def _block_bytes(model: Any, block_size: int, kv_cache_dtype: str) -> int:
    shape = KVShape.of(model.config)
    return shape.block_bytes(block_size, model.dtype.itemsize, kv_cache_dtype)


def _device_budget(device: Any, gpu_share: float) -> int:
    import torch

    if device.type != "cuda":
        return CPU_CACHE_BYTES
    free, total = torch.cuda.mem_get_info(device)
    return max(0, int(total * gpu_share) - (total - free))
