"""One forward pass of the model over a scheduled batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmserve_lab.attention import BatchMetadata, Segment, attention_backend, required_features
from llmserve_lab.attention.backend import AUTO, Attention
from llmserve_lab.attention.own import OneToken, OwnAttention
from llmserve_lab.attention.upload import upload
from llmserve_lab.engine.capacity import Capacity
from llmserve_lab.engine.cuda_graphs import DecodeGraphs, capture_decode
from llmserve_lab.engine.forward import Forward
from llmserve_lab.engine.preemption import BlockStore
from llmserve_lab.engine.scheduler import Scheduled
from llmserve_lab.engine.scorer import scored
from llmserve_lab.kv_cache import KVCache, KVShape, QuantizedKVCache, make_kv_cache

if TYPE_CHECKING:
    import torch

    from llmserve_lab.engine.unread import Unread


class ModelRunner:
    """Runs a transformers model over a flattened batch, through a paged KV cache."""

    def __init__(
        self,
        model: Any,
        cache: KVCache,
        attention: str | OneToken = AUTO,
        *,
        max_model_len: int,
        compiled: bool = False,
    ) -> None:
        self.model, self.cache = model, cache
        self.store: BlockStore = cache
        self.device = one_device(model)
        self.forward = Forward(model, compiled)
        self.graphs: DecodeGraphs | None = None  # of decode steps, where they were captured
        self.attention = self._attention(attention, max_model_len)

    def _attention(self, choice: str | OneToken, max_model_len: int) -> Attention:
        """By a backend's name, or by a function for one token."""
        cache = self.cache
        needs = required_features(self.model, cache.shape, max_model_len)
        if not isinstance(choice, str):
            return OwnAttention(choice, cache, needs)
        return attention_backend(
            choice, self.device, self.model.dtype, isinstance(cache, QuantizedKVCache), needs,
            cache.block_size, cache.shape.head_dim,
        )  # fmt: skip

    def run(self, batch: list[Scheduled], unread: Unread | None = None) -> torch.Tensor:
        """Compute the batch's tokens. Returns (rows, vocabulary) logits: `num_rows` of each item,
        in order, then one for each prompt position that is to be scored. unread: tokens of the
        batch that only the device knows."""
        if self.graphs is not None and self.graphs.takes(batch):
            return self.graphs.run(batch, unread)
        tokens, positions, segments, rows = flatten(batch)
        known = self._tensor(tokens)
        if unread is not None:
            unread.fill(known, batch)
        return self.compute(known, positions, segments, rows)

    def compute(
        self,
        tokens: list[int] | torch.Tensor,
        positions: list[int],
        segments: list[Segment],
        rows: list[int],
    ) -> torch.Tensor:
        """What `flatten` makes of a batch: returns (rows, vocabulary) logits."""
        import torch

        with torch.inference_mode():
            return self.forward(
                self._tensor(tokens),
                self._tensor(positions),
                self._tensor(rows),
                BatchMetadata(self.cache, segments, self.device),
                self.attention,
            )

    def _tensor(self, values: list[int] | torch.Tensor) -> torch.Tensor:
        return upload(values, self.device)


def make_runner(
    model: Any,
    capacity: Capacity,
    kv_cache_dtype: str,
    attention: str | OneToken,
    graph_rows: int = 0,
    compiled: bool = False,
) -> ModelRunner:
    """A runner with a cache of the planned size. graph_rows: capture decode steps of up to so many
    requests as CUDA graphs; 0: none. compiled: see `Forward`."""
    spare = 1 if graph_rows else 0  # a block that no pool hands out, for rows that are padding
    cache = make_cache(model, KVShape.of(model.config), capacity, kv_cache_dtype, spare)
    longest = capacity.max_model_len
    runner = ModelRunner(model, cache, attention, max_model_len=longest, compiled=compiled)
    if graph_rows:
        runner.graphs = capture_decode(runner, capacity.num_blocks, graph_rows, longest)
    return runner


def make_cache(
    model: Any, shape: KVShape, capacity: Capacity, kv_cache_dtype: str, spare: int = 0
) -> KVCache:
    """A cache of the planned size, and `spare` blocks more, on the model's device."""
    return make_kv_cache(
        kv_cache_dtype, shape, capacity.num_blocks + spare, capacity.block_size,
        model.dtype, model.device,
    )  # fmt: skip


def one_device(model: Any) -> torch.device:
    """The device that all of the model is on.

    Raises:
        ValueError: it is spread over several, of which only one at a time would compute.
    """
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ValueError(
            f"This model is spread over {names}, layer by layer; the engine serves one that is "
            "whole, or split by load(..., tensor_parallel=True)."
        )
    return devices.pop()


def flatten(
    batch: list[Scheduled],
) -> tuple[list[int], list[int], list[Segment], list[int]]:
    """Token ids, positions, segments, and the rows whose logits are wanted: first those of each
    token that is to be sampled after."""
    tokens: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    last_rows: list[int] = []
    scored_rows: list[int] = []
    for item in batch:
        row, (request, start, count) = len(tokens), item
        segments.append(Segment(row, start, count, request.block_table))
        tokens += item.token_ids()
        positions += range(start, start + count)
        last_rows += range(row + count - item.num_rows, row + count)
        scored_rows += [row + place - start for place in scored(item)]
    return tokens, positions, segments, last_rows + scored_rows
