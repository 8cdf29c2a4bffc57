"""Decode attention in several threads: each request in one share, the numbers of one thread."""

import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmserve_lab.attention import team
from llmserve_lab.attention.cpu_kernels import NO_CAP, NO_WINDOW, decode

if team.runtime() is None:
    pytest.skip("torch's threads cannot be lent here", allow_module_level=True)

from llmserve_lab.attention import decode_shares
from llmserve_lab.attention.bfloat16 import array_of

BLOCK, BLOCKS = 4, 40


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=70), st.integers(1, 80))
def test_each_request_is_in_one_share(contexts, shares):
    starts = decode_shares.bounds(contexts, shares)
    assert len(starts) == shares + 1
    assert starts == sorted(starts) and (starts[0], starts[-1]) == (0, len(contexts))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=70), st.integers(1, 16))
def test_no_share_is_over_its_part_by_more_than_a_request(contexts, shares):
    starts = decode_shares.bounds(contexts, shares)
    part = sum(contexts) / shares
    for first, end in pairwise(starts):
        assert sum(contexts[first:end]) <= part + max(contexts)


def batch(rows, dtype, seed=0):
    """Queries, pools, tables and contexts of so many requests."""
    torch.manual_seed(seed)
    contexts = torch.randint(1, BLOCK * 6, (rows,))
    tables = torch.stack([torch.randperm(BLOCKS)[:6] for _ in range(rows)])
    pools = [torch.randn(BLOCK * BLOCKS, 2, 16).to(dtype) for _ in "kv"]
    return torch.randn(rows, 4, 16), *pools, tables, contexts


def alone(queries, keys, values, tables, contexts, *options):
    output = torch.empty_like(queries)
    pools = array_of(keys), array_of(values)
    decode(queries.numpy(), *pools, tables.numpy(), contexts.numpy(), *options, output.numpy())
    return output


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("window", "softcap"), [(NO_WINDOW, NO_CAP), (5, NO_CAP), (5, 2.0)])
@pytest.mark.parametrize(("rows", "shares"), [(1, 1), (2, 2), (9, 2), (9, 4), (3, 8)])
def test_the_numbers_are_those_of_one_thread(dtype, window, softcap, rows, shares):
    parts = batch(rows, dtype)
    options = BLOCK, 0.25, window, softcap
    starts = torch.tensor(decode_shares.bounds(parts[-1].tolist(), shares))
    output = torch.full_like(parts[0], float("nan"))
    decode_shares.run(*parts, starts, *options, output)
    torch.testing.assert_close(output, alone(*parts, *options))


SMALLER_TEAM = """
import os
os.environ["OMP_THREAD_LIMIT"] = "1"
import torch
from tests.attention.test_decode_shares import BLOCK, NO_CAP, NO_WINDOW, alone, batch, decode_shares
parts, options = batch(9, torch.float32), (BLOCK, 0.25, NO_WINDOW, NO_CAP)
starts = torch.tensor(decode_shares.bounds(parts[-1].tolist(), 4))
output = torch.full_like(parts[0], float("nan"))
decode_shares.run(*parts, starts, *options, output)
torch.testing.assert_close(output, alone(*parts, *options))
"""


def test_a_smaller_team_than_asked_for_leaves_nothing_out():
    """The runtime may give fewer threads, for instance within another team."""
    done = subprocess.run([sys.executable, "-c", SMALLER_TEAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_team_has_as_many_threads_as_torch(monkeypatch):
    for number in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda number=number: number)
        assert team.threads() == number
    monkeypatch.setattr(team, "runtime", lambda: None)
    assert team.threads() == 1
