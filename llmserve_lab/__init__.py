"""LLMServe Lab: a small library that serves language models, and the course built on it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmserve_lab.doctor import doctor
    from llmserve_lab.engine.llm import LLM
    from llmserve_lab.engine.outputs import RequestOutput, TokenEvent
    from llmserve_lab.engine.sampling_params import SamplingParams
    from llmserve_lab.engine.scheduler import Scheduler
    from llmserve_lab.engine.trace import Trace
    from llmserve_lab.models.load import load

__version__ = "0.1.0"

_HOMES = {
    "LLM": "llmserve_lab.engine.llm",
    "RequestOutput": "llmserve_lab.engine.outputs",
    "SamplingParams": "llmserve_lab.engine.sampling_params",
    "Scheduler": "llmserve_lab.engine.scheduler",
    "TokenEvent": "llmserve_lab.engine.outputs",
    "Trace": "llmserve_lab.engine.trace",
    "doctor": "llmserve_lab.doctor",
    "load": "llmserve_lab.models.load",
}

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


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import llmserve_lab` itself loads no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'llmserve_lab' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
