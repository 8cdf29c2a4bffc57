"""Decode steps captured as CUDA graphs: replaying one launches all of a step's kernels at once,
where launching them one by one takes longer than small batches compute.

Not yet run on a GPU. What surrounds the graphs is tested on a CPU, with `EagerGraph` in the place
of `CudaGraph`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from llmserve_lab.attention.backend import Attention, backend_name
from llmserve_lab.engine.decode_buffers import DecodeBuffers
from llmserve_lab.engine.forward import Forward
from llmserve_lab.engine.scheduler import Scheduled

if TYPE_CHECKING:
    import torch

    from llmserve_lab.engine.runner import ModelRunner
    from llmserve_lab.engine.unread import Unread

BACKENDS = ("triton",)  # those that ask nothing of the GPU while they prepare a launch
SMALL = (1, 2, 4)
STEP = 8  # between larger sizes
Step = Callable[[], "torch.Tensor"]


class Graph(Protocol):
    """A step that was captured once; `replay` runs it again over the same memory."""

    def __init__(self, step: Step, pool: Any) -> None: ...

    def replay(self) -> torch.Tensor: ...

    @staticmethod
    def new_pool() -> Any: ...


class CudaGraph:
    """pool: memory that all graphs share, since only one runs at a time."""

    def __init__(self, step: Step, pool: Any) -> None:
        import torch

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # kernels are compiled and chosen before the capture
            step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.output = step()

    def replay(self) -> torch.Tensor:
        self.graph.replay()
        return self.output

    @staticmethod
    def new_pool() -> Any:
        import torch

        return torch.cuda.graph_pool_handle()


class EagerGraph:
    """Runs the step each time: what a graph would do, for machines without CUDA."""

    def __init__(self, step: Step, pool: Any) -> None:
        self.step = step
        step()

    def replay(self) -> torch.Tensor:
        return self.step()

    @staticmethod
    def new_pool() -> Any:
        return None


class DecodeGraphs:
    """A graph of model, output layer and greedy choice for each batch size, of which the smallest
    that holds a batch runs it. The model must not change any more."""

    def __init__(
        self,
        forward: Forward,
        attention: Attention,
        buffers: DecodeBuffers,
        kind: type[Graph],
    ) -> None:
        self.forward, self.attention, self.buffers = forward, attention, buffers
        self.sizes = batch_sizes(len(buffers.rows))
        pool = kind.new_pool()
        self.graphs: dict[int, Graph] = {}
        for size in reversed(self.sizes):  # the largest first: the others fit into its memory
            buffers.fill([], size)
            self.graphs[size] = kind(partial(self._step, size), pool)

    def takes(self, batch: list[Scheduled]) -> bool:
        """Whether the batch is a decode step: one token for each, to be sampled after. (No logits
        of a prompt are wanted then: those of its last token are the ones to sample from.)"""
        return 0 < len(batch) <= self.sizes[-1] and all(
            item.num_tokens == 1 and item.samples for item in batch
        )

    def run(self, batch: list[Scheduled], unread: Unread | None = None) -> torch.Tensor:
        """As `ModelRunner.run`, for a batch that it takes. The logits are overwritten by the next
        call."""
        size = next(size for size in self.sizes if size >= len(batch))
        self.buffers.fill(batch, size)
        if unread is not None:
            unread.fill(self.buffers.tokens, batch)
        return self.graphs[size].replay()[: len(batch)]

    def _step(self, size: int) -> torch.Tensor:
        import torch

        held = self.buffers
        with torch.inference_mode():
            logits = self.forward(
                held.tokens[:size],
                held.positions[:size],
                held.rows[:size],
                held.metadata(size),
                self.attention,
            )
            held.next_tokens[:size] = logits.argmax(-1)
        return logits


def capture_decode(
    runner: ModelRunner, dummy_block: int, num_rows: int, max_model_len: int
) -> DecodeGraphs:
    """The runner's decode steps for batches of up to `num_rows` requests.

    Raises:
        ValueError: its attention cannot be captured.
    """
    name = backend_name(runner.attention)
    if name not in BACKENDS:
        raise ValueError(
            f"cuda_graphs needs a CUDA GPU and the {BACKENDS[0]} attention backend; here it is "
            f"{name} on {runner.device.type}."
        )
    buffers = DecodeBuffers(runner.cache, dummy_block, num_rows, max_model_len, runner.device)
    return DecodeGraphs(runner.forward, runner.attention, buffers, CudaGraph)


def batch_sizes(largest: int) -> list[int]:
    """1, 2, 4, 8, 16, 24 and so on up to `largest`, which is one of them. At most 7 rows are
    padding."""
    sizes = [*SMALL, *range(STEP, largest, STEP)]
    return [size for size in sizes if size < largest] + [largest]
