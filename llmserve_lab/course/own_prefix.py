"""A learner's own prefix cache inside the real engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llmserve_lab.course.block_hash import BlockHash
from llmserve_lab.kv_cache import BlockPool, Prefix


class Entry(NamedTuple):
    """A block that can be found. tokens: all from the start of the prompt to the block's end."""

    block: int
    salt: str
    tokens: tuple[int, ...]


Table = dict[int, Entry]  # by a block's key
Match = Callable[..., list[int]]  # (tokens, size, salt, table, h)
Publish = Callable[..., Table]  # (table, block, tokens, size, salt, h)


class OwnPrefixPool(BlockPool):
    """Finds cached blocks with `match`, and makes them findable with `publish`.

    h: the hash that both are given. forget: take a block's entry out of the table when the block is
    handed out again; without that the table goes on naming blocks that hold something else.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        match: Match,
        publish: Publish,
        h: BlockHash | None = None,
        forget: bool = True,
    ) -> None:
        super().__init__(num_blocks, block_size, enable_prefix_caching=True)
        self.table: Table = {}
        self._own_match, self._own_publish = match, publish
        self._h, self._forgets = h or BlockHash(), forget

    def match(self, token_ids: Sequence[int], salt: str = "") -> tuple[list[int], list[Prefix]]:
        tokens, size = list(token_ids), self.block_size
        found = self._own_match(tokens, size, salt, dict(self.table), self._h)
        blocks = self._checked(found, len(tokens))
        prefixes: list[Prefix] = []
        for index in range(len(blocks)):
            parent = prefixes[-1] if prefixes else None
            prefixes.append(self.extend(parent, tokens[index * size : (index + 1) * size], salt))
        return blocks, prefixes

    def publish(self, block: int, prefix: Prefix) -> None:
        super().publish(block, prefix)
        tokens = _tokens_of(prefix)
        table = self._own_publish(
            dict(self.table), block, tokens, self.block_size, prefix.salt, self._h
        )
        if type(table) is not dict or not all(type(e) is Entry for e in table.values()):
            raise TypeError(f"Your publish returned {table!r:.60}: return a dict of key to Entry.")
        self.table = table

    def _forget(self, block: int) -> None:
        super()._forget(block)
        if self._forgets:
            self.table = {k: entry for k, entry in self.table.items() if entry.block != block}

    def _checked(self, blocks: Any, num_tokens: int) -> list[int]:
        numbers = range(self.num_blocks)
        if type(blocks) is not list or not all(type(b) is int and b in numbers for b in blocks):
            raise ValueError(
                f"Your match returned {blocks!r:.60}: return a list of block numbers from 0 to "
                f"{self.num_blocks - 1}."
            )
        if blocks and len(blocks) * self.block_size >= num_tokens:
            raise ValueError(
                f"Your match found {len(blocks)} blocks for {num_tokens} tokens: leave at least "
                "one token to compute, or there are no logits."
            )
        return list(blocks)


def _tokens_of(prefix: Prefix) -> list[int]:
    """All tokens from the start to the end of this block."""
    parts: list[tuple[int, ...]] = []
    link: Prefix | None = prefix
    while link is not None:
        parts.append(link.tokens)
        link = link.parent
    return [token for part in reversed(parts) for token in part]
