"""This engine. Settings: those of `LLM`, and "text": whether output is turned into text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

import llmserve_lab
from benchmarks.peers.protocol import serve
from llmserve_lab import LLM, SamplingParams
from llmserve_lab.models.load import LoadedModel, load


class Ours:
    """Makes a fresh engine before each run, so that no cache is warm."""

    def __init__(self, setup: dict[str, Any]) -> None:
        torch.set_num_threads(setup["threads"])
        self.loaded = load(setup["folder"], setup["dtype"], "cpu")
        self.llm: LLM | None = None

    def facts(self) -> dict[str, Any]:
        return {
            "engine": f"llmserve_lab {llmserve_lab.__version__}",
            "dtype": str(self.loaded.model.dtype),
            "threads": torch.get_num_threads(),
        }

    def prepare(self, job: dict[str, Any]) -> None:
        settings = dict(job["settings"])
        text = settings.pop("text", False)
        self.llm = LLM(self.loaded if text else without_tokenizer(self.loaded), **settings)

    def run(self, job: dict[str, Any]) -> list[list[int]]:
        assert self.llm is not None
        outputs = self.llm.generate(prompts_of(job), params_of(job))
        return [list(output.outputs[0].token_ids) for output in outputs]


def without_tokenizer(loaded: LoadedModel) -> LoadedModel:
    """The engine then makes no text, as the peers make none."""
    return replace(loaded, tokenizer=None)


def prompts_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"prompt_token_ids": ids} for ids in job["prompts"]]


def params_of(job: dict[str, Any]) -> list[SamplingParams]:
    return [
        SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
        for count in job["max_tokens"]
    ]


if __name__ == "__main__":
    serve(Ours)
