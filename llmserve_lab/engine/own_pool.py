"""A block pool that the caller brings along, such as a learner's."""

from __future__ import annotations

from typing import Any

from llmserve_lab.kv_cache import BlockAllocator


def require_pool(
    pool: Any, num_blocks: int | None, block_size: int | None, enable_prefix_caching: bool
) -> BlockAllocator:
    """Raise unless it is an unused pool that agrees with the engine's other settings (None: not
    given).

    Raises:
        TypeError: not a pool, such as the class itself.
        ValueError: in use, or it contradicts a setting.
    """
    if not isinstance(pool, BlockAllocator) or not hasattr(pool, "num_blocks"):
        raise TypeError(
            "block_pool must be a BlockAllocator object, such as MyPool(num_blocks, block_size), "
            f"whose __init__ calls super().__init__(); not {pool!r:.80}."
        )
    if pool.num_free != pool.num_blocks or any(pool.refs()):
        raise ValueError(
            f"block_pool must be unused: {pool.num_free} of its {pool.num_blocks} blocks are free."
        )
    for name, value, own in (
        ("num_blocks", num_blocks, pool.num_blocks),
        ("block_size", block_size, pool.block_size),
        ("enable_prefix_caching", enable_prefix_caching or None, pool.enable_prefix_caching),
    ):
        if value is not None and value != own:
            raise ValueError(f"{name} is {value}, but that of block_pool is {own}; leave it out.")
    return pool
