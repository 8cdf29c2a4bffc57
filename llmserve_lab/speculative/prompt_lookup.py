"""Drafts from the text itself: what came after the same words before (prompt lookup decoding,
Saxena 2023; LLMA, Yang et al. 2023, section 3)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from llmserve_lab.engine.checks import require_count

LONGEST = 4  # tokens to look up
TOKEN = "q"  # the array type of a token id
SIZE = array(TOKEN).itemsize  # bytes of one


class PromptLookup:
    """Looks up the last tokens in all that came before, and proposes what followed them there.

    First the last `longest` tokens are looked up, then fewer, down to `shortest`; of several places
    the latest counts. It needs no model. It guesses well where an output repeats its prompt: a
    summary with quotations, edited code, a structure filled in.
    """

    def __init__(self, longest: int = LONGEST, shortest: int = 1) -> None:
        require_count("shortest", shortest, at_least=1)
        require_count("longest", longest, at_least=shortest)
        self.longest, self.shortest = longest, shortest

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> list[int]:
        """Up to `num_tokens` tokens that followed the same ones before; none if they are new."""
        text = array(TOKEN, token_ids)
        for size in range(min(self.longest, len(text) - 1), self.shortest - 1, -1):
            place = _latest(text, size)
            if place is not None:
                return text[place + size : place + size + num_tokens].tolist()
        return []


def _latest(text: array, size: int) -> int | None:
    """Where the last `size` tokens were before, the latest place."""
    data, pattern = text.tobytes(), text[-size:].tobytes()
    end = len(data) - SIZE  # the match must end before the text does
    while True:
        found = data.rfind(pattern, 0, end)
        if found < 0:
            return None
        if found % SIZE == 0:
            return found // SIZE
        end = found + len(pattern) - 1  # between two tokens: look further left
