"""What paged attention is compared with: each query's softmax written out in float64."""

import torch

from llmserve_lab.attention import BatchMetadata, Segment
from llmserve_lab.kv_cache import KVShape, PagedKVCache

CPU = torch.device("cpu")


def dense(queries, keys, values, start, scaling, window=None, softcap=None):
    """queries: (tokens, heads, dim) at positions from `start`; keys, values: of all positions."""
    groups = queries.shape[1] // keys.shape[1]
    keys, values = (t.repeat_interleave(groups, 1).double() for t in (keys, values))
    output = torch.empty(queries.shape, dtype=torch.float64)
    for row in range(len(queries)):
        seen = slice(max(0, start + row + 1 - (window or 2**30)), start + row + 1)
        scores = torch.einsum("hd,khd->hk", queries[row].double(), keys[seen]) * scaling
        scores = softcap * (scores / softcap).tanh() if softcap else scores
        output[row] = torch.einsum("hk,khd->hd", scores.softmax(-1), values[seen])
    return output


class PagedCase:
    """A random batch over a cache whose unwritten slots are all NaN, the null block's too, with
    shuffled block tables. segments: (tokens in the past, new tokens) each."""

    def __init__(self, segments, heads, dim, block_size, dtype, seed=0):
        self.random, self.dtype, self.scaling = (
            torch.Generator().manual_seed(seed),
            dtype,
            dim**-0.5,
        )
        num_heads, num_kv_heads = heads
        tables, num_blocks = self.tables(segments, block_size)
        shape = KVShape(1, num_kv_heads, dim)
        self.cache = PagedKVCache(shape, num_blocks, block_size, dtype, CPU)
        for pool in (self.cache.keys[0], self.cache.values[0]):
            pool.fill_(float("nan"))
        self.segments, self.all = [], []
        rows = 0
        for (past, new), table in zip(segments, tables, strict=True):
            q = self.draw(past + new, num_heads, dim)
            k, v = (self.draw(past + new, num_kv_heads, dim) for _ in range(2))
            if past:
                before = BatchMetadata(self.cache, [Segment(0, 0, past, table)], CPU)
                self.cache.write(0, before.slot_mapping, k[:past], v[:past])
            self.segments.append(Segment(rows, past, new, table))
            self.all.append((q, k, v, past))
            rows += new

    def draw(self, *size):
        return torch.randn(size, generator=self.random).to(self.dtype)

    def tables(self, segments, block_size):
        counts = [-(-sum(segment) // block_size) for segment in segments]
        num_blocks = sum(counts) + len(counts)
        order = torch.randperm(num_blocks, generator=self.random).tolist()
        return [[order.pop() for _ in range(count)] for count in counts], num_blocks

    def batch(self):
        return BatchMetadata(self.cache, self.segments, CPU)

    def new(self, which):
        """Queries, keys or values (0 to 2) of the new tokens, as one batch."""
        return torch.cat([parts[which][parts[3] :] for parts in self.all])

    def run(self, paged_attention, **options):
        """queries are given as a model gives them: (heads, tokens, dim) in memory."""
        queries = self.new(0).transpose(0, 1).contiguous().transpose(0, 1)
        return paged_attention(
            0, queries, self.new(1), self.new(2), self.batch(), self.scaling, **options
        )

    def wanted(self, **options):
        return torch.cat(
            [dense(q[past:], k, v, past, self.scaling, **options) for q, k, v, past in self.all]
        )
