"""An engine without a model: the real loop, scheduler and block pool on a virtual clock."""

from __future__ import annotations

from typing import Any

from llmserve_lab.engine.checks import require_count
from llmserve_lab.engine.core import Engine
from llmserve_lab.engine.recorder import Recorder
from llmserve_lab.engine.scheduler import Limits, Scheduler
from llmserve_lab.engine.validate import require_scheduler
from llmserve_lab.kv_cache import BlockPool
from llmserve_lab.simulate.clock import VirtualClock
from llmserve_lab.simulate.cost_runner import CostRunner, CostStore, Machine
from llmserve_lab.simulate.load_result import LoadResult
from llmserve_lab.simulate.load_run import LoadRun
from llmserve_lab.simulate.prompts import NumberedPrompts
from llmserve_lab.simulate.workload import Workload


class Simulator:
    """Serves workloads on a machine that need not be here.

    machine: a `Deployment`, what `calibrate` returns, or an object of your own with
    `seconds(load)`, `num_blocks(block_size)` and, for preemption by swapping,
    `copy_seconds(num_tokens)`. The other settings are those of `LLM`.

    Raises:
        ValueError, TypeError: a setting that makes no sense, by name.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        scheduler: Scheduler | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 2048,
        block_size: int = 16,
        num_blocks: int | None = None,
        enable_prefix_caching: bool = False,
        trace: bool = False,
    ) -> None:
        self.pool = _pool(machine, num_blocks, block_size, enable_prefix_caching)
        longest = self.pool.num_blocks * block_size if max_model_len is None else max_model_len
        limits = _limits(max_num_seqs, max_num_batched_tokens, longest)
        self.clock = VirtualClock()
        self.scheduler = Scheduler() if scheduler is None else require_scheduler(scheduler)
        self.scheduler.bind(
            self.pool, limits, self.clock, CostStore(machine, self.clock, block_size)
        )
        runner: Any = CostRunner(machine, self.clock)
        recorder = Recorder() if trace else None
        self.engine = Engine(runner, self.scheduler, runner, None, longest, self.clock, recorder)
        self._prompts, self._num_asked = NumberedPrompts(), 0

    def run(self, workload: Workload) -> LoadResult:
        """Serve a workload to the end. A second one starts when the first has ended, with the
        prefix cache as it is then."""
        load = LoadRun(self.engine, self.clock, self._prompts, workload, self._num_asked)
        self._num_asked += len(workload.asks)
        return load.run()


def _pool(
    machine: Machine, num_blocks: int | None, block_size: int, enable_prefix_caching: bool
) -> BlockPool:
    """Of `num_blocks`, or of as many as the machine holds."""
    require_count("block_size", block_size, at_least=1)
    if num_blocks is None:
        num_blocks = machine.num_blocks(block_size)
    require_count("num_blocks", num_blocks, at_least=1)
    return BlockPool(num_blocks, block_size, enable_prefix_caching)


def _limits(max_num_seqs: int, max_num_batched_tokens: int, max_model_len: int) -> Limits:
    require_count("max_num_seqs", max_num_seqs, at_least=1)
    require_count("max_num_batched_tokens", max_num_batched_tokens, at_least=1)
    require_count("max_model_len", max_model_len, at_least=2)
    return Limits(max_num_seqs, max_num_batched_tokens, max_model_len)
