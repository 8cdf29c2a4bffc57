"""What the allocator hands out, counted in bytes."""

import numpy
import pytest
import torch

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course.allocations import allocations
from llmserve_lab.course.architectures import Architecture
from llmserve_lab.course.shortened import shortened


def test_peak_and_kept():
    with allocations() as seen:
        kept = torch.zeros(1000, dtype=torch.float32)
        freed = torch.zeros(5000, dtype=torch.float32)
        del freed
        later = torch.zeros(500, dtype=torch.float32)
    assert seen.peak == pytest.approx(6000 * 4, abs=256)
    assert seen.kept == pytest.approx(1500 * 4, abs=256)
    del kept, later  # what was kept is not forgotten
    assert seen.kept == pytest.approx(1500 * 4, abs=256)


def test_memory_from_before_does_not_count():
    before = torch.zeros(1000)
    with allocations() as seen:
        after = before + 1
        del before
    assert seen.peak == pytest.approx(after.nbytes, abs=256)


def test_a_view_takes_nothing_and_what_is_in_place_neither():
    before = torch.zeros(100, 10)
    with allocations() as seen:
        view = before.t()[2:]
        view += 1
    assert seen.peak < before.nbytes / 10


def test_the_place_of_what_has_gone_counts_again():
    with allocations() as seen:
        for _ in range(20):
            before = torch.from_numpy(numpy.zeros(10_000, numpy.float32))
            total = before + 1
            del before
            assert seen._held == total.nbytes
            del total
    assert (seen.peak, seen.kept) == (40_000, 0)


def test_a_block_that_allocates_nothing():
    with allocations() as seen:
        pass
    assert (seen.peak, seen.kept) == (0, 0)


def test_an_error_passes_through():
    with pytest.raises(KeyError), allocations():
        raise KeyError("x")


@pytest.fixture(scope="module")
def model():
    return load("lab-target", dtype="float32", device="cpu")


def peak(model, rows, tokens_each):
    ids = torch.ones(rows, tokens_each, dtype=torch.int64)
    with torch.inference_mode(), allocations() as seen:
        model.model(input_ids=ids, use_cache=False, logits_to_keep=1)
    assert seen.kept == 0
    return seen.peak


@pytest.mark.parametrize(("rows", "tokens_each"), [(16, 128), (2, 256), (64, 1)])
def test_a_pass_takes_what_the_formula_says(model, rows, tokens_each):
    dims = Architecture.of("lab-target", model.model.config)
    expected = 4 * dims.activation_values(rows * tokens_each, rows)
    assert peak(model, rows, tokens_each) == pytest.approx(expected, rel=0.05)


def test_a_step_of_the_engine_takes_no_more(model):
    llm = LLM(model, num_blocks=64, max_num_batched_tokens=256)
    llm.generate("x", SamplingParams(max_tokens=1))  # the first pass prepares the weights
    for first in (1, 500):
        prompt = {"prompt_token_ids": list(range(first, first + 128))}
        llm.add_request(prompt, SamplingParams(max_tokens=2))
    with allocations() as seen:
        llm.step()
    dims = Architecture.of("lab-target", model.model.config)
    assert seen.kept == 0
    assert 0 < seen.peak < 1.05 * 4 * dims.activation_values(256, 2)


def test_the_peak_does_not_depend_on_the_number_of_layers(model):
    half = shortened(model, 3)
    assert peak(half, 4, 64) == peak(model, 4, 64)
    assert half.num_parameters < model.num_parameters and len(model.model.model.layers) == 6


def test_more_layers_than_there_are_cannot_be_kept(model):
    with pytest.raises(ValueError, match="keep from 1 to 6"):
        shortened(model, 7)
