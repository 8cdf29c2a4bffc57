"""The KV cache: where it lies (`paged`, `contiguous`), who owns it (`block_pool`), how it is found
(`prefix`)."""

from llmserve_lab.kv_cache.block_allocator import BlockAllocator, OutOfBlocksError
from llmserve_lab.kv_cache.block_pool import BlockPool
from llmserve_lab.kv_cache.contiguous import (
    ContiguousAllocator,
    ContiguousKVCache,
    OutOfMemoryError,
)
from llmserve_lab.kv_cache.memory_map import MemoryMap, Region
from llmserve_lab.kv_cache.paged import PagedKVCache, slots_of
from llmserve_lab.kv_cache.prefix import Prefix
from llmserve_lab.kv_cache.quantized import KVCache, QuantizedKVCache, make_kv_cache
from llmserve_lab.kv_cache.shape import KVShape

__all__ = [
    "BlockAllocator",
    "BlockPool",
    "ContiguousAllocator",
    "ContiguousKVCache",
    "KVCache",
    "KVShape",
    "MemoryMap",
    "OutOfBlocksError",
    "OutOfMemoryError",
    "PagedKVCache",
    "Prefix",
    "QuantizedKVCache",
    "Region",
    "make_kv_cache",
    "slots_of",
]
