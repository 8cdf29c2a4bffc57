"""LLMServe Lab: a small library that serves language models, and the course built on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.lazy import export

if TYPE_CHECKING:
    from llmserve_lab.doctor import doctor
    from llmserve_lab.engine.llm import LLM
    from llmserve_lab.engine.outputs import RequestOutput, TokenEvent
    from llmserve_lab.engine.sampling_params import SamplingParams
    from llmserve_lab.engine.scheduler import Scheduler
    from llmserve_lab.engine.trace import Trace
    from llmserve_lab.models.load import load

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "RequestOutput",
    "SamplingParams",
    "Scheduler",
    "TokenEvent",
    "Trace",
    "doctor",
    "load",
]

export(
    __name__,
    {
        "LLM": "llmserve_lab.engine.llm",
        "RequestOutput": "llmserve_lab.engine.outputs",
        "SamplingParams": "llmserve_lab.engine.sampling_params",
        "Scheduler": "llmserve_lab.engine.scheduler",
        "TokenEvent": "llmserve_lab.engine.outputs",
        "Trace": "llmserve_lab.engine.trace",
        "doctor": "llmserve_lab.doctor",
        "load": "llmserve_lab.models.load",
    },
)
