"""Zeros as torch makes them, in memory that is taken only once it is written."""

import os
import sys
from pathlib import Path

import pytest
import torch

from llmserve_lab.kv_cache import KVShape, PagedKVCache
from llmserve_lab.kv_cache.zeros import CACHE_LINE, zeros

CPU = torch.device("cpu")
MIB = 2**20


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.uint8])
@pytest.mark.parametrize("size", [(5,), (3, 7), (2, 1, 3, 5), (0, 4)])
def test_it_is_what_torch_makes(dtype, size):
    mine, theirs = zeros(size, dtype, CPU), torch.zeros(size, dtype=dtype)
    assert (mine.shape, mine.stride(), mine.dtype) == (theirs.shape, theirs.stride(), dtype)
    assert torch.equal(mine, theirs)
    mine += 1
    assert torch.equal(mine, theirs + 1)


def test_rows_begin_where_a_cache_line_begins():
    kept = [zeros((n, 16), torch.float32, CPU) for n in (1, 3, 1000)]
    assert not any(tensor.data_ptr() % CACHE_LINE for tensor in kept)


def test_other_devices_make_their_own():
    assert zeros((2, 3), torch.float32, torch.device("meta")).device.type == "meta"


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of the process")
def test_a_cache_takes_the_memory_of_what_it_holds():
    """Two blocks of 256 MiB: a few pages, however large the operating system makes them."""
    before = resident_bytes()
    cache = PagedKVCache(KVShape(2, 4, 64), 4095, 16, torch.float32, CPU)
    assert cache.num_bytes == 256 * MIB
    assert resident_bytes() - before < 16 * MIB
    new = torch.ones(32, 4, 64)
    cache.write(0, torch.arange(32), new, new)
    assert resident_bytes() - before < 32 * MIB
    assert torch.equal(cache.read(0, slice(0, 32))[0], new)
