"""Engines on tiny models, with the lean decoder or without, and the logits they sample from."""

import random

import torch

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.models.load import LoadedModel
from tests.conftest import character_tokenizer
from tests.engine.reference import ids


def engine(model, **settings):
    loaded = LoadedModel("a test", model, character_tokenizer(), "a test")
    return LLM(loaded, **{"num_blocks": 400, "block_size": 4} | settings)


def forward_of(llm):
    return llm._engine.runner.forward


def prompts_of(*lengths):
    source = random.Random(0)
    return [[source.randrange(1, 64) for _ in range(length)] for length in lengths]


def logits_of(llm, prompts, max_tokens=3):
    """Every row of logits that sampling sees in a run over these prompts, in order."""
    seen = []
    sampler = llm._engine.sampler
    sample = sampler.sample

    def noting(logits, requests):
        seen.append(logits.float())
        return sample(logits, requests)

    sampler.sample = noting
    settings = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    llm.generate(ids(*prompts), settings)
    sampler.sample = sample
    return torch.cat(seen)


def through_transformers(model, **settings):
    """An engine whose forward is that of transformers' own modules."""
    llm = engine(model, **settings)
    forward_of(llm).decoder = lambda: None
    return llm
