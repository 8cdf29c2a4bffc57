"""Log-probabilities against the model's own plain forward, whatever chunks and caches do; echo."""

import itertools
import math

import pytest
import torch

from llmserve_lab import SamplingParams, StaticBatchingScheduler
from llmserve_lab.engine.request import Request
from tests.engine.reference import ids, tokens_of

PROMPTS = [[5, 9, 2, 7, 9, 9, 1, 1, 30], [1], list(range(20, 40)), [3, 3, 3, 8]]
COUNT = 6


def reference(tiny, tokens):
    """(len(tokens), vocabulary): row i is the distribution of the token after the first i + 1."""
    with torch.inference_mode():
        return tiny.model(torch.tensor([tokens])).logits[0].float().log_softmax(-1)


def assert_entry(entry, row, token, count):
    """One position: the token that is there, and the `count` likeliest, with ranks."""
    likeliest = row.topk(count).indices.tolist()
    assert list(entry) == list(dict.fromkeys([token, *likeliest]))
    for name, found in entry.items():
        assert found.logprob == pytest.approx(row[name].item(), abs=2e-5)
        nearby = int((row > row[name] + 1e-5).sum()) + 1
        assert nearby <= found.rank <= int((row > row[name] - 1e-5).sum()) + 1


def assert_scores(entries, tiny, tokens, start, count):
    """`entries` are those of `tokens[start:]`."""
    rows = reference(tiny, tokens)
    assert len(entries) == len(tokens) - start
    for position, entry in enumerate(entries, start=start):
        if position == 0:
            assert entry is None
        else:
            assert_entry(entry, rows[position - 1], tokens[position], count)


def params(**options):
    return SamplingParams(**({"temperature": 0, "max_tokens": COUNT, "ignore_eos": True} | options))


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("budget", [1, 2, 5, 64])
def test_prompt_and_output_in_a_batch(make_llm, tiny, budget, prefix_caching):
    """Twice: the second time the prompts are cached, but have to run again to be scored."""
    llm = make_llm(
        num_blocks=20, max_num_batched_tokens=budget, enable_prefix_caching=prefix_caching
    )
    for _ in range(2):
        outputs = llm.generate(ids(*PROMPTS), params(logprobs=3, prompt_logprobs=2))
        for prompt, output in zip(PROMPTS, outputs, strict=True):
            tokens = [*prompt, *output.outputs[0].token_ids]
            assert_scores(output.prompt_logprobs, tiny, prompt, 0, 2)
            assert_scores(output.outputs[0].logprobs, tiny, tokens, len(prompt), 3)


@pytest.mark.parametrize("num_blocks", [8, 9, 11])
@pytest.mark.parametrize("budget", [3, 64])
def test_under_preemption(make_llm, tiny, num_blocks, budget):
    """Prompts are preempted half-way and later; nothing is scored twice or lost."""
    llm = make_llm(num_blocks=num_blocks, max_num_batched_tokens=budget)
    outputs = llm.generate(ids(*PROMPTS), params(logprobs=1, prompt_logprobs=1, max_tokens=12))
    assert sum(output.metrics.num_preemptions for output in outputs) > 0
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        tokens = [*prompt, *output.outputs[0].token_ids]
        assert_scores(output.prompt_logprobs, tiny, prompt, 0, 1)
        assert_scores(output.outputs[0].logprobs, tiny, tokens, len(prompt), 1)


def test_a_scheduler_that_skips_cached_tokens_all_the_same(make_llm, tiny, monkeypatch):
    """Their logits were never computed: nothing is said of them, and the rest stays in place."""
    monkeypatch.setattr(Request, "is_being_scored", False)
    llm = make_llm(enable_prefix_caching=True)
    llm.generate(ids(PROMPTS[0]), params())
    (output,) = llm.generate(ids(PROMPTS[0]), params(prompt_logprobs=1))
    assert output.metrics.num_hit_tokens == 8
    assert output.prompt_logprobs == (None,) * 9
    (output,) = llm.generate(ids([*PROMPTS[0][:8], 3, 4, 5]), params(prompt_logprobs=1))
    rows = reference(tiny, [*PROMPTS[0][:8], 3, 4, 5])
    assert output.prompt_logprobs[:9] == (None,) * 9
    for position, token in ((9, 4), (10, 5)):
        assert_entry(output.prompt_logprobs[position], rows[position - 1], token, 1)


def test_a_scored_prompt_beside_others_changes_no_text(make_llm):
    plain = tokens_of(make_llm().generate(ids(*PROMPTS), params()))
    mixed = [params(prompt_logprobs=0), params(), params(logprobs=2), params(echo=True)]
    outputs = make_llm(max_num_batched_tokens=5).generate(ids(*PROMPTS), mixed)
    found = tokens_of(outputs)
    assert found[:3] == plain[:3]
    assert found[3] == (*PROMPTS[3], *plain[3])
    assert [o.prompt_logprobs is None for o in outputs] == [False, True, True, True]
    assert [o.outputs[0].logprobs is None for o in outputs] == [True, True, False, True]
    assert outputs[0].outputs[0].cumulative_logprob is None


@pytest.mark.parametrize("count", [0, 1, 64, -1])
def test_how_many(make_llm, tiny, count):
    (output,) = make_llm().generate(ids(PROMPTS[0]), params(logprobs=count, prompt_logprobs=count))
    number = 64 if count == -1 else count
    assert_scores(output.prompt_logprobs, tiny, PROMPTS[0], 0, number)
    entries = output.outputs[0].logprobs
    assert_scores(entries, tiny, [*PROMPTS[0], *output.outputs[0].token_ids], 9, number)
    if count == -1:
        total = sum(math.exp(found.logprob) for found in entries[0].values())
        assert total == pytest.approx(1, abs=1e-5)
        assert sorted(found.rank for found in entries[0].values()) == list(range(1, 65))


def test_the_distribution_is_the_models_own(make_llm, tiny):
    """Not that of temperature, penalties, bias or filters."""
    odd = params(
        temperature=3.0, seed=1, logit_bias={7: 5.0}, repetition_penalty=1.5, top_k=4, logprobs=2
    )
    (output,) = make_llm().generate(ids(PROMPTS[0]), odd)
    tokens = [*PROMPTS[0], *output.outputs[0].token_ids]
    assert_scores(output.outputs[0].logprobs, tiny, tokens, 9, 2)
    ranks = [entry[t].rank for entry, t in zip(output.outputs[0].logprobs, tokens[9:], strict=True)]
    assert max(ranks) > 1  # so that the chosen token is no mere likeliest one


def test_the_sum_over_the_output(make_llm, tiny):
    (output,) = make_llm().generate(ids(PROMPTS[0]), params(logprobs=0))
    tokens = [*PROMPTS[0], *output.outputs[0].token_ids]
    rows = reference(tiny, tokens)
    wanted = sum(rows[i - 1, tokens[i]].item() for i in range(9, len(tokens)))
    assert output.outputs[0].cumulative_logprob == pytest.approx(wanted, abs=1e-4)


def test_events_carry_the_same(make_llm):
    llm = make_llm()
    wanted = llm.generate("abc", params(logprobs=2))[0].outputs[0].logprobs
    events = list(llm.stream("abc", params(logprobs=2)))
    assert [list(event.logprobs) for event in events] == [list(entry) for entry in wanted]
    assert all(event.logprobs is None for event in llm.stream("abc", params()))


def test_names_of_tokens(make_llm):
    (output,) = make_llm().generate("ab", params(logprobs=-1, prompt_logprobs=0))
    assert output.prompt_logprobs[1][2].decoded_token == "b"
    names = {token: found.decoded_token for token, found in output.outputs[0].logprobs[0].items()}
    assert (names[0], names[3]) == ("<|endoftext|>", "c")


def test_equally_likely_tokens_share_a_rank():
    from llmserve_lab.engine.scorer import Scorer

    request = Request("r", [1], SamplingParams(logprobs=4))
    logits = torch.tensor([[1.0, 3.0, 1.0, 2.0, 1.0, 0.0]])
    Scorer(str).note_outputs(logits, [request], [[4]])
    ranks = {token: found.rank for token, found in request.logprobs[0].items()}
    assert ranks.pop(4) == 3
    assert ranks == {1: 1, 3: 2, **dict.fromkeys(ranks.keys() - {1, 3}, 3)}


MANY = params(n=3, temperature=1.0, seed=2, logprobs=1, prompt_logprobs=1)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_batched_tokens": 2},
        {"max_num_seqs": 1},
        {"num_blocks": 5},
        {"scheduler": StaticBatchingScheduler(batch_size=3)},
    ],
    ids=["forked", "in chunks", "one by one", "preempted", "each alone"],
)
def test_continuations_share_the_prompts_scores(make_llm, tiny, settings):
    (output,) = make_llm(**settings).generate(ids(PROMPTS[0]), MANY)
    assert_scores(output.prompt_logprobs, tiny, PROMPTS[0], 0, 1)
    assert len({one.token_ids for one in output.outputs}) > 1
    for one in output.outputs:
        assert_scores(one.logprobs, tiny, [*PROMPTS[0], *one.token_ids], 9, 1)


def test_the_next_continuation_goes_on_when_the_first_is_aborted(make_llm, tiny):
    llm = make_llm(max_num_batched_tokens=4)
    run, steps = llm._engine.runner.run, itertools.count(1)

    def run_and_abort(batch):
        if next(steps) == 2:
            llm.abort("0.0")
        return run(batch)

    llm._engine.runner.run = run_and_abort
    (output,) = llm.generate(ids(PROMPTS[0]), MANY)
    assert [one.finish_reason for one in output.outputs] == ["abort", "length", "length"]
    assert_scores(output.prompt_logprobs, tiny, PROMPTS[0], 0, 1)
    for one in output.outputs:
        assert_scores(one.logprobs, tiny, [*PROMPTS[0], *one.token_ids], 9, 1)


def test_an_abort_leaves_what_was_scored(make_llm, tiny):
    llm = make_llm(max_num_batched_tokens=4)
    run, steps = llm._engine.runner.run, itertools.count(1)

    def run_and_abort(batch):
        if next(steps) == 3:
            llm.abort("0")
        return run(batch)

    llm._engine.runner.run = run_and_abort
    (output,) = llm.generate(ids(PROMPTS[2]), params(prompt_logprobs=1, logprobs=1))
    assert output.outputs[0].finish_reason == "abort"
    assert output.outputs[0].logprobs == ()
    assert len(output.prompt_logprobs) == 13  # 12 tokens ran, and tell of one more
    assert_scores(output.prompt_logprobs, tiny, PROMPTS[2][:13], 0, 1)


def test_echo_of_a_text(make_llm):
    llm = make_llm()
    plain = llm.generate("abc", params())[0].outputs[0]
    (output,) = llm.generate("abc", params(echo=True))
    assert output.outputs[0].text == "abc" + plain.text
    assert output.outputs[0].token_ids == (1, 2, 3, *plain.token_ids)
    assert output.outputs[0].logprobs is None
    assert output.metrics.num_prompt_tokens == 3
    assert len(output.metrics.token_times) == COUNT
    events = list(llm.stream("abc", params(echo=True)))
    assert "".join(event.text for event in events) == output.outputs[0].text
    assert events[0].text.startswith("abc")
    assert [event.index for event in events] == list(range(COUNT))


def test_echo_of_token_ids(make_llm):
    (output,) = make_llm().generate(ids([4, 5]), params(echo=True))
    assert output.prompt is None
    assert output.outputs[0].text.startswith("de")
    assert output.outputs[0].token_ids[:2] == (4, 5)


def test_echo_with_logprobs_scores_the_prompt_too(make_llm, tiny):
    (output,) = make_llm().generate(ids(PROMPTS[0]), params(echo=True, logprobs=2))
    (one,) = output.outputs
    assert_scores(one.logprobs, tiny, list(one.token_ids), 0, 2)
    assert one.logprobs[:9] == output.prompt_logprobs
    apart = params(echo=True, logprobs=2, prompt_logprobs=0)
    (output,) = make_llm().generate(ids(PROMPTS[0]), apart)
    assert [len(entry) for entry in output.prompt_logprobs[1:]] == [1] * 8


def test_stop_strings_in_an_echoed_prompt_do_not_count(make_llm):
    (output,) = make_llm().generate("abc", params(echo=True, stop="bc"))
    assert output.outputs[0].text.startswith("abc")
    assert len(output.outputs[0].text) > 3


def test_an_aborted_echo_still_shows_its_prompt(make_llm):
    llm = make_llm()
    (name,) = llm.add_request("abc", params(echo=True))
    llm.abort(name)
    (event,) = llm.step()
    assert (event.text, event.finish_reason) == ("abc", "abort")
