"""From tokens to text while they arrive: whole characters, and no part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNFINISHED = "\ufffd"  # what a decoder shows for the first bytes of a character
CONTEXT = 4  # prompt tokens decoded along, since some tokenizers join words by what came before


class Detokenizer:
    """The text of one request's output. Each token is decoded with a few before it: linear in
    the length of the output."""

    def __init__(
        self, tokenizer: Any, prompt_token_ids: Sequence[int], stop: Sequence[str] = ()
    ) -> None:
        self._backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        self._stop = stop
        self._longest_stop = max(map(len, stop), default=0)
        self._window = list(prompt_token_ids[-CONTEXT:])
        if self._decode(self._window).endswith(UNFINISHED):
            self._window = []  # a character that the prompt began is not the output's
        self._known = len(self._window)
        self._num_given = 0
        self.text = ""
        self.stopped = False

    def append(self, token_id: int, may_stop: bool = True) -> str:
        """Add a token; returns the text that is now certain. A stop string counts only where
        `may_stop` is true when it is completed."""
        self._window.append(token_id)
        old = self._decode(self._window[: self._known])
        new = self._decode(self._window)
        if len(new) > len(old) and not new.endswith(UNFINISHED):
            self._window = self._window[self._known :]
            self._known = len(self._window)
            self._extend(new[len(old) :], may_stop)
        return self._give(len(self.text) - self._held_back())

    def finish(self) -> str:
        """The text that was held back, once no more tokens come. It may still hold a stop string:
        one that came in the same token as half a character."""
        if not self.stopped:
            old = self._decode(self._window[: self._known])
            self._extend(self._decode(self._window)[len(old) :], may_stop=True)
        return self._give(len(self.text))

    def _extend(self, piece: str, may_stop: bool) -> None:
        known = len(self.text)
        self.text += piece
        if may_stop:
            ends = [end for string in self._stop for end in self._completed(string, known)]
            if ends:
                self.text = self.text[: min(ends)[1]]
                self.stopped = True

    def _completed(self, string: str, known: int) -> list[tuple[int, int]]:
        """Where `string` first ends past character `known`, if it does: (end, start)."""
        start = self.text.find(string, max(0, known - len(string) + 1))
        return [(start + len(string), start)] if start >= 0 else []

    def _held_back(self) -> int:
        """How many last characters could be the beginning of a stop string."""
        if self.stopped:
            return 0
        for length in range(min(self._longest_stop, len(self.text)), 0, -1):
            ending = self.text[-length:]
            if any(string.startswith(ending) for string in self._stop):
                return length
        return 0

    def _give(self, end: int) -> str:
        piece = self.text[self._num_given : end]
        self._num_given = max(self._num_given, end)
        return piece

    def _decode(self, ids: list[int]) -> str:
        return self._backend.decode(ids, skip_special_tokens=True)


class NoText:
    """Stands in for a `Detokenizer` where tokens have no text, as in a simulation."""

    text = ""
    stopped = False

    def append(self, token_id: int, may_stop: bool = True) -> str:
        return ""

    def finish(self) -> str:
        return ""
