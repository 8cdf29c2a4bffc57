"""Two processes share a model: rank 0 runs these tests, started by test_tensor_parallel.py."""

import gc
import random
import threading

import pytest
import torch

from llmserve_lab import (
    LLM,
    PriorityScheduler,
    PromptLookup,
    SamplingParams,
    StaticBatchingScheduler,
    SwapToHost,
    load,
)
from llmserve_lab.engine.scheduler import Scheduler
from llmserve_lab.engine.work import ModelWork
from llmserve_lab.parallel.launch import join
from tests.conftest import assert_as_new, character_tokenizer, fill_with_nan
from tests.engine.reference import ids, tokens_of
from tests.models.architectures import make, random_model
from tests.parallel import orders

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
FAMILIES = [
    "Llama", "Llama, a KV head each, other head dim", "Qwen2", "Qwen3", "Mistral", "Gemma 2",
    "Phi-3", "Mixtral", "Qwen3-MoE",
]  # fmt: skip


def prompts_of(*lengths):
    source = random.Random(0)
    return ids(*[[source.randrange(1, 64) for _ in range(length)] for length in lengths])


PROMPTS = prompts_of(1, 2, 7, 8, 16, 17, 30)


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory):
    """A random model of a family, whole in this process and split among both."""
    made = {}

    def pair(family, model=None):
        if family not in made:
            folder = tmp_path_factory.mktemp("model")
            (make(family) if model is None else model).save_pretrained(folder)
            character_tokenizer().save_pretrained(folder)
            whole = load(folder, dtype="float32", device="cpu")
            made[family] = whole, load(folder, dtype="float32", tensor_parallel=True)
        return made[family]

    return pair


@pytest.fixture(scope="module")
def llama(pair_of):
    return pair_of("Llama")


@pytest.fixture
def both(llama):
    """Runs the same with a whole model and with a split one; `run` gets the engine."""

    def compare(run, pair=llama, scheduler=Scheduler, **settings):
        results = []
        for loaded in pair:
            llm = LLM(
                loaded, **{"num_blocks": 64, "block_size": 4} | settings, scheduler=scheduler()
            )
            fill_with_nan(llm)
            results.append(run(llm))
            assert_as_new(llm)
        whole, split = results
        assert split == whole
        return split

    return compare


def greedy(llm):
    return tokens_of(llm.generate(PROMPTS, GREEDY))


@pytest.mark.parametrize("family", FAMILIES)
def test_families(both, pair_of, family):
    tokens = both(greedy, pair_of(family))
    assert len(set(map(tuple, tokens))) > len(tokens) // 2


def test_tied_embeddings(both, pair_of):
    model = random_model("LlamaForCausalLM", tie_word_embeddings=True)
    both(greedy, pair_of("tied", model))


def test_the_bundled_model(both):
    pair = (
        load("lab-target", dtype="float32", device="cpu"),
        load("lab-target", dtype="float32", tensor_parallel=True),
    )
    prompts = ["import os\n", "class Stack:\n    def push(self, item):\n"]
    params = SamplingParams(temperature=0, max_tokens=16)
    texts = both(lambda llm: [o.outputs[0].text for o in llm.generate(prompts, params)], pair)
    assert all(texts)
    assert pair[0].num_parameters == pair[1].num_parameters


@pytest.mark.parametrize("budget", [1, 5, 7])
def test_chunked_prefill(both, budget):
    both(greedy, max_num_batched_tokens=budget)


def greedy_with_preemptions(llm):
    outputs = llm.generate(PROMPTS, GREEDY)
    return tokens_of(outputs), [output.metrics.num_preemptions for output in outputs]


@pytest.mark.parametrize("settings", [{}, {"kv_cache_dtype": "int8"}])
@pytest.mark.parametrize("scheduler", [Scheduler, lambda: Scheduler(SwapToHost(8))])
def test_preemption(both, scheduler, settings):
    _, preemptions = both(greedy_with_preemptions, scheduler=scheduler, num_blocks=11, **settings)
    assert sum(preemptions) > 0


def test_blocks_come_back_from_host_memory(llama):
    swap = SwapToHost(8)
    llm = LLM(llama[1], num_blocks=11, block_size=4, scheduler=Scheduler(swap))
    assert tokens_of(llm.generate(PROMPTS, GREEDY)) == greedy(LLM(llama[0]))
    assert swap.num_swapped_in > 0
    assert swap.num_used == 0


def test_prefix_hits(both):
    def again(llm):
        runs = [llm.generate(PROMPTS, GREEDY) for _ in range(2)]
        hits = [output.metrics.num_hit_tokens for run in runs for output in run]
        return [tokens_of(run) for run in runs], hits

    _, hits = both(again, enable_prefix_caching=True)
    assert sum(hits) > 0


@pytest.mark.parametrize(
    "scheduler",
    [PriorityScheduler, lambda: StaticBatchingScheduler(4, max_wait=0.01)],
)
def test_schedulers_with_a_clock(both, scheduler):
    both(greedy, scheduler=scheduler)


def test_continuations_and_sampling(both):
    """Forks copy blocks; seeded draws come out the same."""
    params = SamplingParams(
        n=3, temperature=0.8, top_p=0.9, seed=3, max_tokens=10, repetition_penalty=1.2
    )

    def run(llm):
        return [[c.text for c in output.outputs] for output in llm.generate(PROMPTS, params)]

    texts = both(run, block_size=8)
    assert any(len(set(three)) > 1 for three in texts)


def test_unseeded_draws_need_no_agreement(llama):
    """Only rank 0 draws."""
    llm = LLM(llama[1], num_blocks=64, block_size=4)
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=1.5, max_tokens=8))
    assert len({tuple(tokens) for tokens in tokens_of(outputs)}) > 1


def test_logprobs(llama):
    params = SamplingParams(temperature=0, max_tokens=4, logprobs=2, prompt_logprobs=1)
    whole, split = (LLM(model).generate(PROMPTS, params) for model in llama)
    for one, other in zip(whole, split, strict=True):
        ours, theirs = one.outputs[0].logprobs, other.outputs[0].logprobs
        assert [list(entry) for entry in ours] == [list(entry) for entry in theirs]
        for entry, known in zip(ours, theirs, strict=True):
            for token in entry:
                assert entry[token].logprob == pytest.approx(known[token].logprob, abs=1e-4)


def test_an_abort_from_another_thread(llama):
    llm = LLM(llama[1], num_blocks=64, block_size=4)
    names = [llm.add_request(prompt, GREEDY)[0] for prompt in PROMPTS]
    llm.step()
    thread = threading.Thread(target=llm.abort, args=(names[0],))
    thread.start()
    thread.join()
    reasons = {event.request_id: event.finish_reason for event in llm.step()}
    assert reasons[names[0]] == "abort"
    while llm.has_work:
        llm.step()
    assert_as_new(llm)


def test_a_stream_that_is_left_early(llama):
    llm = LLM(llama[1], num_blocks=64, block_size=4)
    stream = llm.stream(PROMPTS, GREEDY)
    next(stream)
    stream.close()
    assert_as_new(llm)
    assert greedy(llm) == greedy(LLM(llama[0]))


def test_each_process_holds_its_part(llama):
    whole, split = llama
    shared, ranks = split.shared, split.shared.ranks
    half = sum(p.nbytes for p in whole.model.parameters()) // 2
    table = whole.model.get_input_embeddings().weight.nbytes  # older versions do not split it
    held = ranks.each(orders.held_bytes, shared.part)
    assert all(half <= num_bytes < 1.05 * half + table / 2 for num_bytes in held)
    one, two = (LLM(model, num_blocks=8, block_size=4) for model in llama)
    assert two.capacity.block_bytes * 2 == one.capacity.block_bytes
    assert two.kv_cache.shape.num_kv_heads * 2 == one.kv_cache.shape.num_kv_heads
    runner = two._engine.runner
    assert ranks.each(orders.kv_bytes, runner._runner) == [one.kv_cache.num_bytes // 2] * 2


def test_work_is_that_of_one_process(llama):
    whole, split = (ModelWork.of(model.model, 1, model.kv_shape) for model in llama)
    assert (split.linear * 2, split.output * 2) == (whole.linear, whole.output)
    assert split.attention * 2 == whole.attention
    assert split.weight_bytes == whole.weight_bytes


def test_the_least_memory_decides_how_many_blocks(llama):
    block_bytes = LLM(llama[1], num_blocks=1, block_size=4).capacity.block_bytes
    (before, _) = join().each(orders.set_cpu_budget, 20 * block_bytes)
    assert LLM(llama[1], block_size=4).capacity.num_blocks == 10
    join().each(orders.set_cpu_budget, before)


def test_engines_that_are_gone_are_forgotten_everywhere(llama):
    ranks = join()
    gc.collect()
    ranks.call(orders.rank)
    (before, _) = ranks.each(orders.num_objects)
    llm = LLM(llama[1], num_blocks=8)
    llm.generate(PROMPTS[0], GREEDY)
    assert ranks.each(orders.num_objects) == [before + 2] * 2
    del llm
    gc.collect()
    ranks.call(orders.rank)
    assert ranks.each(orders.num_objects) == [before] * 2


def test_a_call_of_the_model_itself_is_refused(llama):
    with pytest.raises(RuntimeError, match=r"call LLM\.generate instead"):
        llama[1].model(torch.tensor([[1, 2]]))
    assert greedy(LLM(llama[1])) == greedy(LLM(llama[0]))


@pytest.mark.parametrize(
    "settings", [{"cuda_graphs": True}, {"compile": True}, {"attention": print}]
)
def test_what_one_process_alone_does_is_refused(llama, settings):
    with pytest.raises(ValueError, match="cuda_graphs, compile and an attention of your own"):
        LLM(llama[1], **settings)


def test_guesses_by_lookup(both):
    """Made in rank 0, checked in all."""
    both(greedy, draft=PromptLookup())
    both(greedy, draft=PromptLookup(), num_blocks=11)


def test_a_draft_model_in_rank_0(both):
    pair = (
        load("lab-target", dtype="float32", device="cpu"),
        load("lab-target", dtype="float32", tensor_parallel=True),
    )
    params = SamplingParams(temperature=0, max_tokens=12)

    def run(llm):
        return [o.outputs[0].text for o in llm.generate(["import os\n", "def add("], params)]

    both(run, pair, scheduler=lambda: Scheduler(SwapToHost(8)), draft="lab-draft")


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"linear": "int8"}])
def test_what_does_not_go_together(options):
    with pytest.raises(ValueError, match="tensor_parallel takes no device and no linear"):
        load("lab-target", tensor_parallel=True, **options)


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("Llama, one KV head, tied", "4 attention heads and 1 KV heads.*start one of 1"),
        ("GPT-2", r"no plan by which to split a gpt2 model \(base_model_tp_plan\)"),
    ],
)
def test_models_that_cannot_be_split(tmp_path, family, words):
    make(family).save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=words) as error:
        load(tmp_path, tensor_parallel=True)
    assert "\n" not in str(error.value)


def test_damaged_weights(tmp_path):
    make("Llama").save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"weights in .* cannot be used"):
        load(tmp_path, tensor_parallel=True)


class TestRanks:
    def test_a_call_runs_everywhere(self):
        assert join().call(orders.sum_over_ranks, 10) == 21

    def test_each_says_what_came_of_it(self):
        assert join().each(orders.rank) == [0, 1]

    def test_a_twin_stands_for_each_ones_own(self):
        twin = join().make(orders.numbered_list, "a")
        assert join().own(twin) == [0, "a"]
        assert join().each(list.copy, twin) == [[0, "a"], [1, "a"]]

    @pytest.mark.parametrize(
        ("rank", "error", "words"),
        [(0, ValueError, "^this is rank 0"), (1, RuntimeError, "Rank 1 failed with ValueError: ")],
    )
    def test_a_failure_is_told_and_all_go_on(self, rank, error, words):
        for order in (join().each, join().make):
            with pytest.raises(error, match=words):
                order(orders.fail_on, rank)
        assert join().each(orders.rank) == [0, 1]
