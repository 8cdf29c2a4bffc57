"""How much a KV cache may hold, and whether a request fits at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.engine.checks import require_count, require_number
from llmserve_lab.kv_cache import KVShape
from llmserve_lab.kv_cache.shape import AUTO
from llmserve_lab.models.load import LoadedModel

CPU_CACHE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Capacity:
    """Sizes that are fixed for the engine's life. `block_bytes`: keys and values of one block, in
    each process where several share the model; `draft_bytes`: those of a draft model in the same
    block."""

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
        loaded: LoadedModel,
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
        and `max_num_seqs` full sequences could use. draft: a model with a cache of its own.
        Of processes that share the model, the one with the least memory decides."""
        model = loaded.model
        models = [model] if draft is None else [model, draft]
        context = min(m.config.get_text_config().max_position_embeddings for m in models)
        longest = context if max_model_len is None else max_model_len
        require_count("max_model_len", longest, at_least=2, at_most=context)
        require_number("gpu_memory_utilization", gpu_share, 0.0, 1.0)
        shapes = [loaded.kv_shape, *(KVShape.of(m.config) for m in models[1:])]
        sizes = [
            shape.block_bytes(block_size, m.dtype.itemsize, kv_cache_dtype)
            for shape, m in zip(shapes, models, strict=True)
        ]
        if memory_bytes is not None:
            require_count("kv_cache_memory_bytes", memory_bytes, at_least=sum(sizes))
        if num_blocks is None:
            budget = memory_bytes or min(loaded.each(_device_budget, gpu_share))
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


def _device_budget(model: Any, gpu_share: float) -> int:
    import torch

    device = model.device
    if device.type != "cuda":
        return CPU_CACHE_BYTES
    free, total = torch.cuda.mem_get_info(device)
    return max(0, int(total * gpu_share) - (total - free))
