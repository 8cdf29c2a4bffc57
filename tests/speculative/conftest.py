"""A tiny target with drafts of every quality, and engines that speculate."""

import copy

import pytest
import torch

from llmserve_lab.models.load import LoadedModel
from tests.conftest import character_tokenizer, tiny_llama


def disturbed(model, noise, seed=1):
    """A copy whose every weight is off by about `noise` times its spread."""
    other = copy.deepcopy(model)
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            if weight.dim() > 1:
                weight += noise * weight.std() * torch.randn(weight.shape, generator=source)
    return other


@pytest.fixture(scope="session")
def drafts(tiny):
    """By name: the target itself, one much like it, and one that knows nothing."""
    models = {
        "same": tiny.model,
        "near": disturbed(tiny.model, 0.1),
        "far": tiny_llama(seed=7),
    }
    return {
        name: LoadedModel(name, model, character_tokenizer(), "a test")
        for name, model in models.items()
    }


@pytest.fixture
def make_spec(make_llm, drafts):
    """Engines with a draft by name, or a proposer, over NaN-filled caches; nothing may be left."""
    made = []

    def make(draft="near", **settings):
        chosen = drafts[draft] if isinstance(draft, str) else draft
        llm = make_llm(draft=chosen, **settings)
        runner = getattr(llm._engine.speculation.drafter, "runner", None)
        for part in runner.cache.by_block() if runner else ():
            part[:-1] = float("nan") if part.is_floating_point() else part.new_tensor(255)
        made.append(llm)
        return llm

    yield make
    for llm in made:
        speculation = llm._engine.speculation
        assert not any((speculation._requests, speculation._sources, speculation.grants._before))


class Script:
    """Proposes what `guess(token_ids, num_tokens)` returns, and notes what it was asked."""

    def __init__(self, guess):
        self.guess, self.asked = guess, []

    def propose(self, token_ids, num_tokens):
        self.asked.append((tuple(token_ids), num_tokens))
        return self.guess(token_ids, num_tokens)
