"""The engine as its user meets it. Public names are those of vLLM's offline API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from llmserve_lab.attention import require_decoder
from llmserve_lab.attention.own import OneToken
from llmserve_lab.engine.calls import Calls
from llmserve_lab.engine.capacity import Capacity
from llmserve_lab.engine.checks import require_count, require_flag
from llmserve_lab.engine.continuations import continuations
from llmserve_lab.engine.core import Clock
from llmserve_lab.engine.engine_metrics import EngineMetrics
from llmserve_lab.engine.late_engine import engine_kind
from llmserve_lab.engine.outputs import CompletionOutput, RequestOutput, TokenEvent
from llmserve_lab.engine.own_attention import choose_attention
from llmserve_lab.engine.own_pool import require_pool
from llmserve_lab.engine.priority import priority_per_prompt
from llmserve_lab.engine.prompts import (
    as_list,
    check_params,
    params_per_prompt,
    read_prompt,
)
from llmserve_lab.engine.recorder import Recorder
from llmserve_lab.engine.results import Results
from llmserve_lab.engine.sampler import Sampler, eos_token_ids
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.engine.scheduler import Limits, Scheduler
from llmserve_lab.engine.shared_runner import runner_for
from llmserve_lab.engine.threads import computing_with, require_threads
from llmserve_lab.engine.trace import Trace
from llmserve_lab.engine.validate import require_scheduler
from llmserve_lab.engine.work import ModelWork
from llmserve_lab.kv_cache import BlockAllocator, BlockPool, KVCache
from llmserve_lab.kv_cache.side_by_side import SideBySide
from llmserve_lab.models.load import LoadedModel, as_loaded
from llmserve_lab.speculative.settings import DraftSettings

BLOCK_SIZE = 16


class LLM:
    """Serves one model with continuous batching over a paged KV cache.

    model: a name or folder for `load`, or what `load` returned. tensor_parallel: see `load`.
    max_model_len: tokens of prompt and output. num_blocks: size of the KV cache, else from
    `kv_cache_memory_bytes` or the device's memory. kv_cache_dtype: "auto" (the model's), "int8" or
    "int4". attention_backend: "auto" or a name, see `attention.attention_backend`. cuda_graphs:
    capture decode steps, with the triton backend; async_scheduling: read a step's tokens while the
    next one runs; neither has been run on a GPU. scheduler: a `Scheduler` of your own. block_pool:
    a `BlockAllocator` of your own, which decides num_blocks and block_size. attention: a function
    of your own for one token, see `attention.own`; slow. draft: speculative decoding, by a small
    model with the same tokenizer (named or loaded) or a `Proposer` such as `PromptLookup()`;
    num_draft_tokens: of a request in a step, else 4. compile: the model's layers by torch.compile,
    which takes a while, see `models.compiled`. num_threads: that compute a step on a CPU, else as
    many as torch takes, see `threads`. trace: keep every step.

    Raises:
        ValueError, TypeError: a setting that makes no sense, by name.
        ModelNotFoundError: see `load`.
        UnsupportedAttentionError: a model that this engine would not compute exactly.
        CompileError: torch.compile does not work here.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel = "lab-target",
        *,
        dtype: Any = "auto",
        device: Any = "auto",
        tensor_parallel: bool = False,
        max_model_len: int | None = None,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 2048,
        block_size: int = BLOCK_SIZE,
        num_blocks: int | None = None,
        kv_cache_memory_bytes: int | None = None,
        kv_cache_dtype: str = "auto",
        gpu_memory_utilization: float = 0.9,
        enable_prefix_caching: bool = False,
        attention_backend: str = "auto",
        cuda_graphs: bool = False,
        async_scheduling: bool = False,
        scheduler: Scheduler | None = None,
        block_pool: BlockAllocator | None = None,
        attention: OneToken | None = None,
        draft: Any = None,
        num_draft_tokens: int | None = None,
        compile: bool = False,
        num_threads: int | None = None,
        trace: bool = False,
        clock: Clock = time.perf_counter,
    ) -> None:
        require_count("max_num_seqs", max_num_seqs, at_least=1)
        require_count("max_num_batched_tokens", max_num_batched_tokens, at_least=1)
        require_count("block_size", block_size, at_least=1)
        require_flag("compile", compile)
        require_threads(num_threads)
        attend = choose_attention(attention, attention_backend, cuda_graphs)
        if block_pool is not None:
            given = block_size if block_size != BLOCK_SIZE else None
            require_pool(block_pool, num_blocks, given, enable_prefix_caching)
            num_blocks, block_size = block_pool.num_blocks, block_pool.block_size
        loaded = as_loaded(model, dtype, device, tensor_parallel)
        require_decoder(loaded.model)
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        drafts = DraftSettings(draft, num_draft_tokens, loaded, cuda_graphs)
        self.capacity = Capacity.plan(
            loaded, max_model_len, max_num_seqs, block_size, num_blocks,
            kv_cache_memory_bytes, gpu_memory_utilization, kv_cache_dtype, drafts.model,
        )  # fmt: skip
        if block_pool is None:
            block_pool = BlockPool(self.capacity.num_blocks, block_size, enable_prefix_caching)
        self.pool = block_pool
        self.scheduler = Scheduler() if scheduler is None else require_scheduler(scheduler)
        graph_rows = max_num_seqs if cuda_graphs else 0
        with computing_with(num_threads):  # kernels are compiled for so many
            runner = runner_for(loaded, self.capacity, kv_cache_dtype, attend, graph_rows, compile)
            draft_runner = drafts.runner(self.capacity, kv_cache_dtype, attention_backend)
        limits = Limits(max_num_seqs, max_num_batched_tokens, self.capacity.max_model_len)
        stores = [each.store for each in (runner, draft_runner) if each is not None]
        self.scheduler.bind(self.pool, limits, clock, SideBySide(*stores))
        self._recorder = Recorder() if trace else None
        sampler = Sampler(eos_token_ids(self.model, self.tokenizer))
        kind = engine_kind(async_scheduling, draft, trace, loaded.shared)
        self._engine = kind(
            runner, self.scheduler, sampler, self.tokenizer, self.capacity.max_model_len, clock,
            self._recorder,
            work=ModelWork.of(loaded.model, self.capacity.bytes_per_token, loaded.kv_shape),
            speculation=drafts.speculation(draft_runner, sampler, self.scheduler, self.capacity),
        )  # fmt: skip
        self._ids = count()
        self._calls = Calls(self._engine, num_threads)

    @property
    def max_model_len(self) -> int:
        return self.capacity.max_model_len

    @property
    def kv_cache(self) -> KVCache:
        """Keys and values of every layer, by slot: `slots_of` has those of a block table."""
        return self._engine.runner.cache

    @property
    def trace(self) -> Trace:
        """The steps so far.

        Raises:
            ValueError: the engine keeps none.
        """
        if self._recorder is None:
            raise ValueError("This engine keeps no trace: make it with LLM(..., trace=True).")
        return self._recorder.trace

    @property
    def metrics(self) -> EngineMetrics:
        """What this engine has done so far; see also `measure_peak`."""
        return self._engine.meter.snapshot()

    def reset_metrics(self) -> None:
        """Count from here on, as after a warm-up."""
        self._engine.meter.reset()

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return self._engine.has_work

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | list[SamplingParams] | None = None,
        *,
        priority: int | list[int] | None = None,
    ) -> list[RequestOutput]:
        """Run all prompts to their end; results come in the prompts' order.

        prompts: a string, {"prompt": "..."} or {"prompt_token_ids": [...]}, or a list of these. A
        "cache_salt" in the dict keeps its cached prefixes apart from others'. sampling_params: one
        for all, or a list with one for each. priority: likewise, smaller is more urgent; for a
        scheduler that honours it, such as `PriorityScheduler`.
        """
        results = self._prepare(prompts, sampling_params, priority)
        for _ in self._calls.run(results):
            pass
        return results.outputs()

    def stream(
        self,
        prompts: Any,
        sampling_params: SamplingParams | list[SamplingParams] | None = None,
        *,
        priority: int | list[int] | None = None,
    ) -> Iterator[TokenEvent]:
        """Like `generate`, but yields every token as it comes. Closing the iterator aborts what is
        unfinished."""
        return self._calls.run(self._prepare(prompts, sampling_params, priority))

    def add_request(
        self, prompt: Any, params: SamplingParams | None = None, *, priority: int | None = None
    ) -> list[str]:
        """Queue one prompt for `step`; returns the ids of its `n` requests."""
        results = self._prepare([prompt], params, priority)
        self._calls.queue(results)
        return list(results.requests)

    def step(self) -> list[TokenEvent]:
        """Run one step; returns what came of the requests that `add_request` queued. The tokens
        of an open `stream` run too, and go to that stream."""
        return self._calls.step()

    def abort(self, request_id: str) -> None:
        """End a request, or all `n` of a prompt by the id they share; their blocks are free after
        the next step. Unknown ids are ignored. May be called from any thread."""
        for known in (request_id, *self._calls.members(request_id)):
            self._engine.abort(known)

    def _prepare(self, prompts: Any, params: Any, priority: Any) -> Results:
        """Check everything before anything is queued: a bad prompt leaves nothing half-done."""
        listed = as_list(prompts)
        settings = params_per_prompt(params, len(listed))
        priorities = priority_per_prompt(priority, len(listed), self.scheduler)
        vocabulary = self.model.config.get_text_config().vocab_size
        longest = self.max_model_len - 1
        read = [read_prompt(p, self.tokenizer, vocabulary, longest) for p in listed]
        for prompt, setting in zip(read, settings, strict=True):
            check_params(setting, vocabulary, self._engine.sampler.eos_token_ids)
            self.capacity.require_room(len(prompt.token_ids), setting.max_tokens)
        results = Results()
        for prompt, setting, urgency in zip(read, settings, priorities, strict=True):
            number, can_fork = next(self._ids), self.scheduler.can_fork
            results.add(prompt, continuations(prompt, setting, urgency, number, can_fork))
        return results


__all__ = ["LLM", "CompletionOutput", "RequestOutput", "SamplingParams", "TokenEvent"]
