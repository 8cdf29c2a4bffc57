"""What of a growing text can be shown: whole characters, and no part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from llmserve_lab.engine.request import Request
from llmserve_lab.engine.token_text import TextStream, TokenText


class Detokenizer:
    """The text of one request's output, after `echo`. Holds back what may be the beginning of a
    stop string, and no more: the work per token does not grow with the length of the output."""

    def __init__(self, stream: TextStream, stop: Sequence[str] = (), echo: str = "") -> None:
        self._stream, self._stop = stream, stop
        self._longest_stop = max(map(len, stop), default=0)
        self._echo = echo  # until the first text is given
        self._held = ""
        self.stopped = False

    def append(self, token_id: int, may_stop: bool = True) -> str:
        """Add a token; returns the text that is now certain. A stop string counts only where
        `may_stop` is true when it is completed."""
        self._extend(self._stream.append(token_id), may_stop)
        return self._give(len(self._held) - self._num_undecided())

    def finish(self) -> str:
        """The text that was held back, once no more tokens come. It may still hold a stop string:
        one that came in the same token as half a character."""
        if not self.stopped:
            self._extend(self._stream.finish(), may_stop=True)
        return self._give(len(self._held))

    def _extend(self, piece: str, may_stop: bool) -> None:
        known = len(self._held)
        self._held += piece
        if not self._stop:
            return
        ends = [end for string in self._stop for end in self._completed(string, known)]
        if ends and may_stop:
            self._held = self._held[: min(ends)[1]]
            self.stopped = True

    def _completed(self, string: str, known: int) -> list[tuple[int, int]]:
        """Where `string` first ends past character `known`, if it does: (end, start)."""
        start = self._held.find(string, max(0, known - len(string) + 1))
        return [(start + len(string), start)] if start >= 0 else []

    def _num_undecided(self) -> int:
        """How many last characters could be the beginning of a stop string."""
        if self.stopped or not self._stop:
            return 0
        for length in range(min(self._longest_stop, len(self._held)), 0, -1):
            ending = self._held[-length:]
            if any(string.startswith(ending) for string in self._stop):
                return length
        return 0

    def _give(self, end: int) -> str:
        piece, self._held = self._echo + self._held[:end], self._held[end:]
        self._echo = ""
        return piece


class NoText:
    """Stands in for a `Detokenizer` where tokens have no text, as in a simulation."""

    stopped = False

    def append(self, token_id: int, may_stop: bool = True) -> str:
        return ""

    def finish(self) -> str:
        return ""


def detokenizer_of(request: Request, text: TokenText | None) -> Detokenizer | NoText:
    """For a request's output, after its prompt where that is to be shown."""
    if text is None:
        return NoText()
    prompt, params = request.prompt_token_ids, request.params
    echo = request.prompt if params.echo else ""
    echo = text.of(prompt) if echo is None else echo
    return Detokenizer(text.stream(prompt), params.stop_strings, echo)
