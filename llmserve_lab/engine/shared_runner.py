"""Forward passes of a model that several processes share: rank 0 decides, all compute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.attention.own import OneToken
from llmserve_lab.engine.capacity import Capacity
from llmserve_lab.engine.runner import ModelRunner, flatten, make_cache, make_runner
from llmserve_lab.engine.scheduler import Scheduled
from llmserve_lab.kv_cache.block_tensors import BlockTensors
from llmserve_lab.models.load import LoadedModel

if TYPE_CHECKING:
    import torch

    from llmserve_lab.parallel.ranks import Ranks, Twin


class SharedRunner:
    """As `ModelRunner`, of which every process has one: with its part of each layer, and a KV cache
    for the heads in it. cache, attention, forward, device: those of this process."""

    def __init__(self, ranks: Ranks, runner: Twin, cache: Twin) -> None:
        own: ModelRunner = ranks.own(runner)
        self._ranks, self._runner = ranks, runner
        self.cache, self.attention, self.device = own.cache, own.attention, own.device
        self.forward, self.store = own.forward, SharedStore(ranks, cache)

    def run(self, batch: list[Scheduled]) -> torch.Tensor:
        """As `ModelRunner.run`: the logits are whole in every process, and used in this one."""
        return self._ranks.call(ModelRunner.compute, self._runner, *flatten(batch))


class SharedStore:
    """Whole blocks of a KV cache that lies in several processes (a `BlockStore`)."""

    def __init__(self, ranks: Ranks, cache: Twin) -> None:
        self._ranks, self._cache = ranks, cache

    def copy_blocks(self, copies: Iterable[tuple[int, int]]) -> None:
        self._ranks.call(BlockTensors.copy_blocks, self._cache, list(copies))

    def read_blocks(self, blocks: Sequence[int]) -> Twin:
        return self._ranks.make(BlockTensors.read_blocks, self._cache, list(blocks))

    def write_blocks(self, blocks: Sequence[int], content: Twin) -> None:
        self._ranks.call(BlockTensors.write_blocks, self._cache, list(blocks), content)


Runner = ModelRunner | SharedRunner


def runner_for(
    loaded: LoadedModel,
    capacity: Capacity,
    kv_cache_dtype: str,
    attention: str | OneToken,
    graph_rows: int,
    compiled: bool,
) -> Runner:
    """A runner in this process, or in each of those that share the model. The rest: see
    `make_runner`."""
    if loaded.shared is None:
        return make_runner(loaded.model, capacity, kv_cache_dtype, attention, graph_rows, compiled)
    if graph_rows or compiled or not isinstance(attention, str):
        raise ValueError(
            "cuda_graphs, compile and an attention of your own work in one process: leave them out "
            "for a model that several share."
        )
    ranks, part = loaded.shared.ranks, loaded.shared.part
    cache = ranks.make(make_cache, part, loaded.kv_shape, capacity, kv_cache_dtype)
    runner = ranks.make(_make_runner, part, cache, attention, capacity.max_model_len)
    return SharedRunner(ranks, runner, cache)


def _make_runner(model: Any, cache: Any, attention: str, max_model_len: int) -> ModelRunner:
    return ModelRunner(model, cache, attention, max_model_len=max_model_len)
