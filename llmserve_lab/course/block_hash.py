"""A hash of a block of tokens and of what came before it, for an exercise."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

DIGEST_BYTES = 8
NUM_VALUES = 2 ** (8 * DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class BlockHash:
    """Call it with the key before (for a first block: the salt) and the block's tokens; it gives
    the block's key, an int below `num_values`. With few values different blocks collide."""

    num_values: int = NUM_VALUES

    def __call__(self, before: int | str, tokens: Sequence[int]) -> int:
        """
        Raises:
            TypeError: `before` is neither a key nor a salt, or the tokens are not ints.
        """
        if not isinstance(before, int | str):
            raise TypeError(f"h(before, tokens) takes a key or a salt first, not {before!r:.60}")
        if isinstance(tokens, str) or not all(isinstance(token, int) for token in tokens):
            raise TypeError(f"h(before, tokens) takes the block's token ids, not {tokens!r:.60}")
        text = repr((before, *(int(token) for token in tokens))).encode()
        digest = hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()
        return int.from_bytes(digest, "big") % self.num_values

    def __repr__(self) -> str:
        few = self.num_values < NUM_VALUES
        return f"<a hash of {self.num_values} values>" if few else "<a hash>"
