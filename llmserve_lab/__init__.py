"""LLMServe Lab: a small library that serves language models, and the course built on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.lazy import export

if TYPE_CHECKING:
    from llmserve_lab.doctor import doctor
    from llmserve_lab.engine.engine_metrics import EngineMetrics
    from llmserve_lab.engine.errors import ProposerError, SchedulerError
    from llmserve_lab.engine.kv_use import KVUse
    from llmserve_lab.engine.llm import LLM
    from llmserve_lab.engine.outputs import RequestOutput, TokenEvent
    from llmserve_lab.engine.peak import measure_peak
    from llmserve_lab.engine.preemption import Recompute, SwapToHost
    from llmserve_lab.engine.priority import PriorityScheduler
    from llmserve_lab.engine.reserving_scheduler import ReservingScheduler
    from llmserve_lab.engine.sampling_params import SamplingParams
    from llmserve_lab.engine.scheduler import Scheduled, Scheduler
    from llmserve_lab.engine.static_scheduler import StaticBatchingScheduler
    from llmserve_lab.engine.trace import Trace
    from llmserve_lab.models.load import load
    from llmserve_lab.speculative.prompt_lookup import PromptLookup

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "EngineMetrics",
    "KVUse",
    "PriorityScheduler",
    "PromptLookup",
    "ProposerError",
    "Recompute",
    "RequestOutput",
    "ReservingScheduler",
    "SamplingParams",
    "Scheduled",
    "Scheduler",
    "SchedulerError",
    "StaticBatchingScheduler",
    "SwapToHost",
    "TokenEvent",
    "Trace",
    "doctor",
    "load",
    "measure_peak",
]

export(
    __name__,
    {
        "EngineMetrics": "llmserve_lab.engine.engine_metrics",
        "KVUse": "llmserve_lab.engine.kv_use",
        "LLM": "llmserve_lab.engine.llm",
        "PriorityScheduler": "llmserve_lab.engine.priority",
        "PromptLookup": "llmserve_lab.speculative.prompt_lookup",
        "ProposerError": "llmserve_lab.engine.errors",
        "Recompute": "llmserve_lab.engine.preemption",
        "RequestOutput": "llmserve_lab.engine.outputs",
        "ReservingScheduler": "llmserve_lab.engine.reserving_scheduler",
        "SamplingParams": "llmserve_lab.engine.sampling_params",
        "Scheduled": "llmserve_lab.engine.scheduler",
        "Scheduler": "llmserve_lab.engine.scheduler",
        "SchedulerError": "llmserve_lab.engine.errors",
        "StaticBatchingScheduler": "llmserve_lab.engine.static_scheduler",
        "SwapToHost": "llmserve_lab.engine.preemption",
        "TokenEvent": "llmserve_lab.engine.outputs",
        "Trace": "llmserve_lab.engine.trace",
        "doctor": "llmserve_lab.doctor",
        "load": "llmserve_lab.models.load",
        "measure_peak": "llmserve_lab.engine.peak",
    },
)
