"""The KV cache: where it lies (`paged`), who owns it (`block_pool`), how it is found (`prefix`)."""

from llmserve_lab.kv_cache.block_pool import BlockPool, OutOfBlocksError
from llmserve_lab.kv_cache.paged import KVShape, PagedKVCache, slots_of
from llmserve_lab.kv_cache.prefix import Prefix

__all__ = ["BlockPool", "KVShape", "OutOfBlocksError", "PagedKVCache", "Prefix", "slots_of"]
