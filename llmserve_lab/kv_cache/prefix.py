"""The identity of a full block: its tokens and everything before them, chained."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BYTES_PER_ID = 8
DIGEST_BYTES = 16
Hash = Callable[[bytes], bytes]


def blake2b(data: bytes) -> bytes:
    """A 128-bit digest."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """One block's worth of tokens that follows `parent`. The digest finds it; `same_as` proves it,
    so that two prefixes are never taken for one another, whatever the hash does."""

    parent: Prefix | None
    tokens: tuple[int, ...]
    salt: str
    digest: bytes

    @classmethod
    def after(
        cls, parent: Prefix | None, tokens: Sequence[int], salt: str = "", hash: Hash = blake2b
    ) -> Prefix:
        """The prefix that extends `parent` by one block. `salt` separates tenants."""
        before = parent.digest if parent else b"salt:" + salt.encode()
        ids = b"".join(token.to_bytes(BYTES_PER_ID, "little") for token in tokens)
        return cls(parent, tuple(tokens), salt, hash(len(before).to_bytes(2, "big") + before + ids))

    def same_as(self, other: Prefix) -> bool:
        """Token by token, back to the start; stops early where both share a parent object."""
        mine: Prefix | None = self
        theirs: Prefix | None = other
        while mine is not theirs:
            if mine is None or theirs is None:
                return False
            if mine.tokens != theirs.tokens or mine.salt != theirs.salt:
                return False
            mine, theirs = mine.parent, theirs.parent
        return True


class Chain:
    """The prefixes of the sequence that was looked up last. A request that waits is looked up in
    every step: its blocks are hashed once. Tokens are compared, so that another sequence, or one
    that has changed, is never taken for it.

    extend: makes the prefix of a block from its parent, tokens and salt.
    """

    def __init__(self, extend: Callable[[Prefix | None, Sequence[int], str], Prefix]) -> None:
        self._extend = extend
        self._prefixes: list[Prefix] = []

    def at(self, index: int, tokens: Sequence[int], salt: str) -> Prefix:
        """The prefix of block `index`, after those of all blocks before it were asked for."""
        known = self._prefixes
        same = index < len(known) and known[index].salt == salt
        if same and known[index].tokens == tuple(tokens):
            return known[index]
        del known[index:]
        known.append(self._extend(known[index - 1] if index else None, tokens, salt))
        return known[index]

    def settle(self, index: int, prefix: Prefix) -> Prefix:
        """Go on from an equal prefix that others hold too: comparing its children is quick then."""
        if self._prefixes[index] is not prefix:
            self._prefixes[index:] = [prefix]
        return prefix

    def clear(self) -> None:
        self._prefixes.clear()
