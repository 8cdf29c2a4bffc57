"""The text of tokens, one by one: bytes for byte-level BPE, a window of tokens for all others."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any, Protocol

UNFINISHED = "\ufffd"  # what a decoder shows for the first bytes of a character
CONTEXT = 4  # prompt tokens decoded along, since some tokenizers join words by what came before


class TextStream(Protocol):
    """The growing text of one output."""

    def append(self, token_id: int) -> str:
        """The characters that this token completes."""

    def finish(self) -> str:
        """What is left when no more tokens come: half a character is shown as U+FFFD."""


class TokenText:
    """Makes text of a tokenizer's tokens. Special tokens are no text."""

    def __init__(self, tokenizer: Any) -> None:
        self._backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        self._bytes = TokenBytes(self._backend) if is_byte_level(self._backend) else None
        self._names: dict[int, str] = {}

    def stream(self, prompt_token_ids: Sequence[int]) -> TextStream:
        """The text of the tokens that come after a prompt, as if decoded without it."""
        if self._bytes is not None:
            return ByteStream(self._bytes)
        return WindowStream(self._backend, prompt_token_ids)

    def of(self, token_ids: Sequence[int]) -> str:
        """The text of some tokens."""
        return self._backend.decode(list(token_ids), skip_special_tokens=True)

    def name(self, token_id: int) -> str:
        """One token as it reads alone, special ones too."""
        if token_id not in self._names:
            self._names[token_id] = self._backend.decode([token_id], skip_special_tokens=False)
        return self._names[token_id]


def is_byte_level(backend: Any) -> bool:
    """Whether every token of a `tokenizers.Tokenizer` stands for bytes, wherever it is."""
    from tokenizers import Tokenizer, decoders

    return isinstance(backend, Tokenizer) and isinstance(backend.decoder, decoders.ByteLevel)


class TokenBytes(dict[int, bytes]):
    """Token id to bytes, worked out when first asked for. Byte-level BPE (GPT-2, Radford et al.
    2019) writes a token as one printable character per byte."""

    def __init__(self, backend: Any) -> None:
        super().__init__()
        self._backend = backend
        self._byte_of = byte_alphabet()
        added = backend.get_added_tokens_decoder()
        self.update({token: b"" for token, added_token in added.items() if added_token.special})

    def __missing__(self, token_id: int) -> bytes:
        characters = self._backend.id_to_token(token_id) or ""
        if all(character in self._byte_of for character in characters):
            found = bytes(self._byte_of[character] for character in characters)
        else:  # an added token, which is written as it is
            found = characters.encode()
        self[token_id] = found
        return found


def byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte: itself where it is printable and no blank, else the
    next one from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1)]
    printable += range(ord("®"), ord("ÿ") + 1)
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + place): byte for place, byte in enumerate(others)}


class ByteStream:
    """Decodes UTF-8 as the bytes come: constant time for each."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def append(self, token_id: int) -> str:
        return self._decoder.decode(self._bytes[token_id])

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class WindowStream:
    """Decodes each token with a few before it, since its text may depend on them."""

    def __init__(self, backend: Any, prompt_token_ids: Sequence[int]) -> None:
        self._backend = backend
        self._window = list(prompt_token_ids[-CONTEXT:])
        if self._decode(self._window).endswith(UNFINISHED):
            self._window = []  # a character that the prompt began is not the output's
        self._known = len(self._window)

    def append(self, token_id: int) -> str:
        self._window.append(token_id)
        old = self._decode(self._window[: self._known])
        new = self._decode(self._window)
        if len(new) <= len(old) or new.endswith(UNFINISHED):
            return ""
        self._window = self._window[self._known :]
        self._known = len(self._window)
        return new[len(old) :]

    def finish(self) -> str:
        old = self._decode(self._window[: self._known])
        return self._decode(self._window)[len(old) :]

    def _decode(self, ids: list[int]) -> str:
        return self._backend.decode(ids, skip_special_tokens=True)
