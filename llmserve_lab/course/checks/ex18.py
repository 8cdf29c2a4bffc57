"""Exercise 18: attention through a block table, and a block pool with reference counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.course.checks import ex18_cases as cases
from llmserve_lab.course.checks import ex18_mutants as mutants
from llmserve_lab.course.checks import ex18_pool_mutants as pool_mutants
from llmserve_lab.course.checks import ex18_write_mutants as write_mutants
from llmserve_lab.course.checks.ex18_pools import CountedPool, FreeList, MyPool
from llmserve_lab.course.checks.grader import Grader
from llmserve_lab.course.checks.pool_grader import Pool, PoolGrader
from llmserve_lab.course.checks.tensor import Tensor

if TYPE_CHECKING:
    import torch


def gather(blocks: torch.Tensor, block_table: list[int], num_tokens: int) -> torch.Tensor:
    return blocks[block_table].flatten(0, 1)[:num_tokens]


def paged_attention(
    query: torch.Tensor,
    key_blocks: torch.Tensor,
    value_blocks: torch.Tensor,
    block_table: list[int],
    num_tokens: int,
    scale: float,
) -> torch.Tensor:
    import torch

    keys = gather(key_blocks, block_table, num_tokens)
    values = gather(value_blocks, block_table, num_tokens)
    group = len(query) // keys.shape[1]
    keys, values = (kind.repeat_interleave(group, dim=1) for kind in (keys, values))
    scores = torch.einsum("hd,thd->ht", query, keys) * scale
    return torch.einsum("ht,thd->hd", scores.softmax(dim=-1), values)


GRADERS = (
    Grader(
        key="18.1",
        name="ex18_gather",
        reference=gather,
        shape=Tensor(),
        cases=cases.gathers,
        hints=(
            "The table says which blocks come first, second, third. What is in their slots?",
            "Indexing with the table gives the blocks in order; then slots become one dimension.",
            "blocks[block_table].flatten(0, 1), and of that the first num_tokens rows.",
        ),
        mutants=mutants.GATHER,
    ),
    Grader(
        key="18.2",
        name="ex18_paged_attention",
        reference=paged_attention,
        shape=Tensor(),
        cases=cases.queries,
        hints=(
            "Once keys and values are gathered, nothing is paged any more. What does attention do "
            "with them, and how many query heads share a KV head?",
            "kind.repeat_interleave(group, dim=1) gives each query head its keys and values; a "
            "score for each head and token, times scale, then softmax over the tokens.",
            'scores = torch.einsum("hd,thd->ht", query, keys) * scale; then '
            'torch.einsum("ht,thd->hd", scores.softmax(dim=-1), values).',
        ),
        mutants=mutants.ATTENTION,
    ),
    PoolGrader(
        key="18.3",
        name="ex18_free_list",
        reference=FreeList,
        shape=Pool(),
        cases=cases.unshared,
        hints=(
            "Two blocks are free and three are wanted. What becomes of the two?",
            "Compare first and raise OutOfBlocksError; only then take blocks from the list, and "
            "count one reference for each.",
            "blocks = [self.free.pop() for _ in range(count)], then self.count[block] = 1 for "
            "each; return blocks.",
        ),
        mutants=pool_mutants.FREE_LIST,
    ),
    PoolGrader(
        key="18.4",
        name="ex18_counted_pool",
        reference=CountedPool,
        shape=Pool(),
        cases=cases.shared,
        hints=(
            "A block has two owners and one of them ends. When may it be handed out again?",
            "share adds one to the count of each block, release takes one away; the block joins "
            "the free list when the count reaches 0, and not before.",
            "In release: raise ValueError if the count is 0; subtract 1; if it is 0 now, append "
            "the block to self.free. In share: if the count is 0, remove it from self.free; add 1.",
        ),
        mutants=pool_mutants.COUNTED,
    ),
    PoolGrader(
        key="18.5",
        name="ex18_my_pool",
        reference=MyPool,
        shape=Pool(),
        cases=cases.written,
        hints=(
            "Which blocks will be written, and which of these have other owners? Full blocks "
            "before the start are only read.",
            "Find the places in the table from start // block_size on whose count is above 1. "
            "Allocate that many first: if it raises, nothing has changed. Then replace, release.",
            "fresh = self.allocate(len(places)); for each place note (block_table[i], new), put "
            "the new one into the table; release the sources; return the pairs.",
        ),
        mutants=write_mutants.MY_POOL,
    ),
)
