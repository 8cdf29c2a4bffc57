"""Wrong answers to exercise 16, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llmserve_lab.course.own_prefix import Entry

Mutants = dict[str, Callable[..., Any]]


def _full_blocks(tokens: Any, size: int) -> list[list[int]]:
    return [tokens[i : i + size] for i in range(0, len(tokens) - size + 1, size)]


def _keys(tokens: Any, size: int, salt: str, h: Any) -> list[int]:
    found: list[int] = []
    before: Any = salt
    for block in _full_blocks(list(tokens), size):
        before = h(before, block)
        found.append(before)
    return found


FULL_BLOCKS: Mutants = {
    "takes the part at the end too": lambda tokens, size: [
        tokens[i : i + size] for i in range(0, len(tokens), size)
    ],
    "leaves the last full block out": lambda tokens, size: _full_blocks(tokens[:-1], size),
    "a window for each token": lambda tokens, size: [
        tokens[i : i + size] for i in range(len(tokens) - size + 1)
    ],
    "numbers of blocks": lambda tokens, size: list(range(len(tokens) // size)),
    "one flat list": lambda tokens, size: tokens[: len(tokens) // size * size],
    "blocks from the end": lambda tokens, size: _full_blocks(tokens, size)[::-1] or [[0]],
}


def _salt_for_all(tokens: Any, size: int, salt: str, h: Any) -> list[int]:
    return [h(salt, block) for block in _full_blocks(tokens, size)]


def _partial_too(tokens: Any, size: int, salt: str, h: Any) -> list[int]:
    found: list[int] = []
    before: Any = salt
    for start in range(0, len(tokens), size):
        before = h(before, tokens[start : start + size])
        found.append(before)
    return found


KEYS: Mutants = {
    "does not chain": _salt_for_all,
    "leaves the salt out": lambda tokens, size, salt, h: _keys(tokens, size, "", h),
    "hashes the part at the end too": _partial_too,
    "only the last key": lambda *given: _keys(*given)[-1:],
    "the salt among the keys": lambda tokens, size, salt, h: [salt, *_keys(tokens, size, salt, h)],
    "hashes the whole beginning at once": lambda tokens, size, salt, h: [
        h(salt, tokens[:end]) for end in range(size, len(tokens) + 1, size)
    ],
    "the key before, not its own": lambda tokens, size, salt, h: [
        0,
        *_keys(tokens, size, salt, h)[:-1],
    ],
}


LONGEST: Mutants = {
    "goes on behind a gap": lambda wanted, table: [table[k].block for k in wanted if k in table],
    "all or nothing": lambda wanted, table: (
        [table[k].block for k in wanted] if all(k in table for k in wanted) else []
    ),
    "everything in the table": lambda wanted, table: [entry.block for entry in table.values()],
    "keys for blocks": lambda wanted, table: list(wanted[: len(_run(wanted, table))]),
    "how many, not which": lambda wanted, table: [len(_run(wanted, table))],
    "one too few": lambda wanted, table: _run(wanted, table)[:-1],
    "in the order of their numbers": lambda wanted, table: sorted(_run(wanted, table)),
    "the last block alone": lambda wanted, table: _run(wanted, table)[-1:],
}


def _run(wanted: Any, table: Any) -> list[int]:
    blocks: list[int] = []
    for key in wanted:
        if key not in table:
            return blocks
        blocks.append(table[key].block)
    return blocks


def _match(
    tokens: Any,
    size: int,
    salt: str,
    table: Any,
    h: Any,
    leave: int = 1,
    same: Callable[..., bool] | None = None,
    chain: Callable[..., list[int]] = _keys,
    stop: bool = True,
) -> list[int]:
    """A right answer, unless it leaves another number of tokens over, compares in another way,
    takes other keys, or does not stop."""
    blocks = []
    for index, key in enumerate(chain(tokens[: len(tokens) - leave], size, salt, h)):
        entry, end = table.get(key), (index + 1) * size
        same_text = entry is not None and entry.tokens == tuple(tokens[:end])
        right = same_text and entry.salt == salt
        if entry is not None and same is not None:
            right = same(entry, tokens, end, size, salt)
        if not right and stop:
            break
        if right:
            blocks.append(entry.block)
    return blocks


def _drops_a_block(tokens: Any, size: int, salt: str, table: Any, h: Any) -> list[int]:
    return _match(tokens, size, salt, table, h, leave=0)[:-1]


def _takes_all(tokens: Any, size: int, salt: str, table: Any, h: Any) -> list[int]:
    return _match(tokens, size, salt, table, h, leave=0)


MATCH: Mutants = {
    "leaves no token to compute": _takes_all,
    "always leaves a whole block over": _drops_a_block,
    "trusts the key": partial(_match, same=lambda *_: True),
    "compares the block alone": partial(
        _match,
        same=lambda entry, tokens, end, size, salt: (
            entry.tokens[-size:] == tuple(tokens[end - size : end]) and entry.salt == salt
        ),
    ),
    "compares no salt": partial(
        _match, same=lambda entry, tokens, end, *_: entry.tokens == tuple(tokens[:end])
    ),
    "compares the salt alone": partial(
        _match, same=lambda entry, tokens, end, size, salt: entry.salt == salt
    ),
    "compares a list with a tuple": partial(
        _match, same=lambda entry, tokens, end, *_: entry.tokens == tokens[:end]
    ),
    "compares with the whole prompt": partial(
        _match,
        same=lambda entry, tokens, end, size, salt: (
            entry.tokens == tuple(tokens) and entry.salt == salt
        ),
    ),
    "keys without a chain": partial(_match, chain=_salt_for_all),
    "keys without the salt": partial(
        _match, chain=lambda tokens, size, salt, h: _keys(tokens, size, "", h)
    ),
    "goes on behind a gap": partial(_match, stop=False),
    "finds nothing": lambda *given: [],
}


def _publish(
    table: Any, block: int, tokens: Any, size: int, salt: str, h: Any, over: bool = False
) -> dict[int, Any]:
    """A right answer, unless it puts the new entry over an old one."""
    new = dict(table)
    if tokens and len(tokens) % size == 0:
        key = _keys(tokens, size, salt, h)[-1]
        if over or key not in new:
            new[key] = Entry(block, salt, tuple(tokens))
    return new


def _added(table: Any, *given: Any) -> set[int]:
    return set(_publish(table, *given)) - set(table)


def _in_place(table: Any, *given: Any) -> Any:
    table.update(_publish(table, *given))
    return dict(table)


def _rewritten(change: Callable[..., Entry]) -> Callable[..., Any]:
    """A right answer whose new entry is `change`d."""

    def answer(table: Any, block: int, tokens: Any, size: int, salt: str, h: Any) -> Any:
        new = _publish(table, block, tokens, size, salt, h)
        for key in set(new) - set(table):
            new[key] = change(new[key], size)
        return new

    return answer


def _unchained(table: Any, block: int, tokens: Any, size: int, salt: str, h: Any) -> Any:
    new = dict(table)
    if tokens and len(tokens) % size == 0:
        new.setdefault(h(salt, tokens[-size:]), Entry(block, salt, tuple(tokens)))
    return new


def _rounds_down(table: Any, block: int, tokens: Any, size: int, salt: str, h: Any) -> Any:
    whole = tokens[: len(tokens) // size * size]
    return _publish(table, block, whole, size, salt, h)


PUBLISH: Mutants = {
    "overwrites an entry": partial(_publish, over=True),
    "publishes a block that is not full": _rounds_down,
    "the key of the block alone": _unchained,
    "changes the table it was given": _in_place,
    "only the new entry": lambda table, *given: {
        key: _publish(table, *given)[key] for key in _added(table, *given)
    },
    "keeps the block's tokens alone": _rewritten(
        lambda entry, size: entry._replace(tokens=entry.tokens[-size:])
    ),
    "forgets the salt": _rewritten(lambda entry, size: entry._replace(salt="")),
    "a key for every block": lambda table, block, tokens, size, salt, h: (
        {key: Entry(block, salt, tuple(tokens)) for key in _keys(tokens, size, salt, h)} | table
    ),
    "a list of tokens": _rewritten(lambda entry, size: entry._replace(tokens=list(entry.tokens))),
    "a plain tuple": lambda *given: {key: tuple(entry) for key, entry in _publish(*given).items()},
    "nothing at all": lambda table, *given: dict(table),
}
