"""A workload on a real engine, in real time: what a simulation is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmserve_lab.simulate.clock import WallClock
from llmserve_lab.simulate.load_result import LoadResult
from llmserve_lab.simulate.load_run import LoadRun
from llmserve_lab.simulate.prompts import RandomPrompts
from llmserve_lab.simulate.workload import Workload

if TYPE_CHECKING:
    from llmserve_lab.engine.llm import LLM


def run_live(llm: LLM, workload: Workload, seed: int = 0) -> LoadResult:
    """Serve random prompts with the workload's lengths and times, greedily and to their full
    length. Another seed gives other prompts: with prefix caching the same ones are found again.
    Waits by sleeping, or as the engine's clock does if it has a `wait_until`.

    Raises:
        ValueError: the engine has other work under way.
    """
    engine = llm._engine
    if engine.has_work:
        raise ValueError("The engine has requests under way; run a workload on an idle one.")
    vocabulary = llm.model.config.get_text_config().vocab_size
    prompts = RandomPrompts(vocabulary, seed)
    clock: Any = engine.clock if hasattr(engine.clock, "wait_until") else WallClock(engine.clock)
    return LoadRun(engine, clock, prompts, workload).run()
