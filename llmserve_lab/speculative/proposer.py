"""Who guesses how a text goes on, and what the engine asks of the guesses."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.errors import ProposerError
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.work import Work


@runtime_checkable
class Proposer(Protocol):
    """Guesses tokens: `LLM(..., draft=MyProposer())`. A wrong guess costs time and changes nothing
    else; the closer the guesses, the more tokens come out of a step."""

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> Sequence[int]:
        """Up to `num_tokens` token ids that may come after `token_ids`, the prompt and output of
        one request so far. An empty list where there is nothing to guess from."""


class Proposals:
    """Asks a proposer for every request of a step, and checks what it says."""

    done = Work(0, 0)  # no matrix is multiplied

    def __init__(self, proposer: Proposer, vocabulary: int) -> None:
        self.proposer, self.vocabulary = proposer, vocabulary

    def draft(self, batch: Sequence[Scheduled], room: dict[Request, int]) -> dict[Request, Any]:
        """Give each request of `room` its drafts, at most so many. None is drawn at random.

        Raises:
            ProposerError: too many tokens, or what is no token.
        """
        for request, most in room.items():
            guesses = self.proposer.propose(tuple(request.token_ids), most)
            request.draft_token_ids = self._checked(request, guesses, most)
        return {}

    def num_computed(self, num_accepted: int, num_drafts: int) -> int:
        """Of a request's right drafts, those whose keys and values are all there."""
        return num_accepted

    def _checked(self, request: Request, guesses: Any, most: int) -> list[int]:
        name = request.request_id
        if isinstance(guesses, (str, bytes)) or not hasattr(guesses, "__iter__"):
            raise ProposerError(
                f"Request {name!r}: propose() must return a list of token ids, not {guesses!r:.60}."
            )
        found = list(guesses)
        if len(found) > most:
            raise ProposerError(
                f"Request {name!r}: {len(found)} tokens were proposed; propose() was asked for at "
                f"most {most}."
            )
        for token in found:
            whole = isinstance(token, Integral) and not isinstance(token, bool)
            if not whole or not 0 <= token < self.vocabulary:
                raise ProposerError(
                    f"Request {name!r}: {token!r:.60} was proposed; a token id is a whole number "
                    f"from 0 to {self.vocabulary - 1}."
                )
        return [int(token) for token in found]
