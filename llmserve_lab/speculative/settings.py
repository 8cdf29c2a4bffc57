"""What `LLM(draft=..., num_draft_tokens=...)` asks for, checked and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmserve_lab.attention import require_decoder
from llmserve_lab.engine.capacity import Capacity
from llmserve_lab.engine.checks import require_count
from llmserve_lab.engine.runner import ModelRunner, make_runner
from llmserve_lab.engine.sampler import Sampler
from llmserve_lab.engine.scheduler import Scheduler
from llmserve_lab.engine.work import ModelWork
from llmserve_lab.models.load import LoadedModel, load
from llmserve_lab.speculative.draft_model import DraftModel
from llmserve_lab.speculative.proposer import Proposals, Proposer
from llmserve_lab.speculative.speculation import Drafter, Drafts

NUM_DRAFT_TOKENS = 4


class DraftSettings:
    """A draft model that fits the target, a proposer, or neither.

    model: the draft model, or None. num_draft_tokens: at most so many a step for each request.

    Raises:
        TypeError: the draft is none of these.
        ValueError: a draft with another vocabulary or on another device; a number without a draft;
            a draft together with CUDA graphs.
    """

    def __init__(
        self, draft: Any, num_draft_tokens: int | None, target: LoadedModel, cuda_graphs: bool
    ) -> None:
        if draft is None and num_draft_tokens is not None:
            raise ValueError("num_draft_tokens needs a draft: LLM(..., draft=...) names one.")
        self.num_draft_tokens = NUM_DRAFT_TOKENS if num_draft_tokens is None else num_draft_tokens
        require_count("num_draft_tokens", self.num_draft_tokens, at_least=1)
        if draft is not None and cuda_graphs:
            raise ValueError(
                "cuda_graphs replays steps of one token for each request, and a draft makes them "
                "longer: leave one of the two out."
            )
        self._vocabulary = target.model.config.get_text_config().vocab_size
        self.model: Any = None
        self._proposer: Proposer | None = None
        if isinstance(draft, (str, Path, LoadedModel)):
            self.model = _fitting(draft, target).model
        elif draft is not None:
            self._proposer = _proposer(draft)

    def runner(self, capacity: Capacity, kv_cache_dtype: str, attention: str) -> ModelRunner | None:
        """Of the draft model, over as many blocks as the target has."""
        if self.model is None:
            return None
        return make_runner(self.model, capacity, kv_cache_dtype, attention)

    def speculation(
        self,
        runner: ModelRunner | None,
        sampler: Sampler,
        scheduler: Scheduler,
        capacity: Capacity,
    ) -> Drafts | None:
        """What the engine runs: None without a draft."""
        drafter: Drafter
        if runner is not None:
            kv_bytes = capacity.draft_bytes // capacity.block_size
            drafter = DraftModel(runner, sampler, ModelWork.of(self.model, kv_bytes))
        elif self._proposer is not None:
            drafter = Proposals(self._proposer, self._vocabulary)
        else:
            return None
        return Drafts(drafter, scheduler, self.num_draft_tokens)


def _proposer(draft: Any) -> Proposer:
    if isinstance(draft, type) or not isinstance(draft, Proposer):
        raise TypeError(
            "draft must be a model's name or folder, what load() returned, or an object with "
            f"propose(token_ids, num_tokens), such as PromptLookup(); not {draft!r:.60}."
        )
    return draft


def _fitting(draft: str | Path | LoadedModel, target: LoadedModel) -> LoadedModel:
    """The draft, loaded like the target if it is not loaded yet; raise unless the two fit."""
    if not isinstance(draft, LoadedModel):
        draft = load(draft, target.model.dtype, target.model.device)
    require_decoder(draft.model)
    ours, theirs = (m.model.config.get_text_config().vocab_size for m in (target, draft))
    if ours != theirs:
        raise ValueError(
            f"{draft.name} has a vocabulary of {theirs} tokens and {target.name} of {ours}: a "
            "draft needs the same one."
        )
    tokenizers = [each.tokenizer for each in (target, draft) if each.tokenizer is not None]
    if len({frozenset(each.get_vocab().items()) for each in tokenizers}) > 1:
        raise ValueError(
            f"{draft.name} and {target.name} have different tokenizers: a draft needs the same one."
        )
    if draft.model.device != target.model.device:
        raise ValueError(
            f"{draft.name} is on {draft.model.device} and {target.name} on {target.model.device}: "
            "load both on one device."
        )
    return draft
