"""Settings, seeds, endings and continuations: as without drafts."""

import pytest

from llmserve_lab import LLM, PromptLookup, SamplingParams
from tests.engine.reference import ids

PROMPTS = [[5, 9, 5, 9, 5], [20, 21, 22, 23, 24, 25, 26], [40], [7] * 12]
KINDS = {
    "greedy": SamplingParams(temperature=0, max_tokens=14),
    "seeded": SamplingParams(temperature=0.8, seed=3, max_tokens=14),
    "filtered": SamplingParams(temperature=1.2, seed=4, top_k=9, top_p=0.8, max_tokens=14),
    "min-p": SamplingParams(temperature=0.7, seed=5, min_p=0.2, max_tokens=14, ignore_eos=True),
    "penalised": SamplingParams(
        temperature=0, repetition_penalty=1.7, frequency_penalty=0.6, max_tokens=14
    ),
    "penalised and drawn": SamplingParams(
        temperature=0.9, seed=6, presence_penalty=1.5, frequency_penalty=-0.3, max_tokens=14
    ),
    "biased": SamplingParams(temperature=0, logit_bias={0: 9, 4: 3.5}, min_tokens=9, max_tokens=14),
    "allowed": SamplingParams(
        temperature=1.0, seed=2, allowed_token_ids=[0, 3, 4, 8], min_tokens=6, max_tokens=14
    ),
    "scored": SamplingParams(temperature=0, logprobs=2, prompt_logprobs=1, max_tokens=14),
    "scored and drawn": SamplingParams(temperature=1.0, seed=1, logprobs=0, max_tokens=14),
    "forked": SamplingParams(n=4, temperature=1.0, seed=9, max_tokens=14, logprobs=1),
    "stopped": SamplingParams(temperature=1.0, seed=8, stop=["a", "Q", "xy"], max_tokens=14),
    "stopped by tokens": SamplingParams(
        temperature=1.0, seed=8, stop_token_ids=[*range(3, 64, 5)], min_tokens=3, max_tokens=14
    ),
    "echoed": SamplingParams(temperature=0, echo=True, logprobs=1, max_tokens=5),
}


class Scores(list):
    """Log-probabilities, equal up to what another order of sums makes of them."""

    def __eq__(self, other):
        return len(self) == len(other) and all(
            abs(a - b) < 1e-3 for a, b in zip(self, other, strict=True)
        )

    __hash__ = None


def told(outputs):
    """All that a caller sees but times."""
    return [
        (
            part.text, part.token_ids, part.finish_reason,
            Scores([x.logprob for d in part.logprobs or () if d for x in d.values()]),
        )
        for output in outputs
        for part in output.outputs
    ]  # fmt: skip


@pytest.fixture(scope="module")
def plain(tiny):
    """What each kind of request gets without drafts."""
    llm = LLM(tiny, num_blocks=96, block_size=4)
    return {kind: told(llm.generate(ids(*PROMPTS), params)) for kind, params in KINDS.items()}


@pytest.mark.parametrize("draft", ["same", "near", PromptLookup()], ids=["same", "near", "lookup"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_setting(make_spec, plain, kind, draft):
    llm = make_spec(draft, num_blocks=96, num_draft_tokens=5)
    assert told(llm.generate(ids(*PROMPTS), KINDS[kind])) == plain[kind]
    assert llm.metrics.proposed_tokens > 0
    if draft == "same" and kind != "stopped":
        assert llm.metrics.accepted_tokens > 0


@pytest.mark.parametrize("settings", [
    {}, {"max_num_batched_tokens": 9}, {"num_blocks": 13}, {"max_num_seqs": 2},
    {"enable_prefix_caching": True, "block_size": 2},
])  # fmt: skip
def test_all_settings_in_one_batch(make_spec, make_llm, settings):
    """Alone or with others, with all drafts or with few: a seeded text is one text."""
    params = list(KINDS.values())
    prompts = [PROMPTS[index % len(PROMPTS)] for index in range(len(params))]
    plain = make_llm(num_blocks=200)
    wanted = [told(plain.generate(ids(p), s)) for p, s in zip(prompts, params, strict=True)]
    llm = make_spec("near", **{"num_blocks": 200, "num_draft_tokens": 4} | settings)
    outputs = llm.generate(ids(*prompts), params)
    assert told(outputs) == [part for parts in wanted for part in parts]


@pytest.mark.parametrize("limit", range(1, 10))
def test_max_tokens_within_accepted_drafts(make_spec, limit):
    llm = make_spec("same", num_draft_tokens=4)
    params = SamplingParams(temperature=0, max_tokens=limit, ignore_eos=True)
    (output,) = llm.generate("abc", params)
    assert len(output.outputs[0].token_ids) == limit
    assert output.outputs[0].finish_reason == "length"
    assert len(output.metrics.token_times) == limit
    assert llm.metrics.generation_tokens == limit


@pytest.mark.parametrize("longest", range(5, 12))
def test_max_model_len_within_accepted_drafts(make_spec, longest):
    llm = make_spec("same", num_draft_tokens=4, max_model_len=longest)
    params = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)
    (output,) = llm.generate("abc", params)
    assert len(output.outputs[0].token_ids) == longest - 3
    assert output.outputs[0].finish_reason == "length"


def test_nothing_after_a_stop_is_returned(make_spec, make_llm):
    free = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    (whole,) = make_llm().generate("abc", free)
    tokens = whole.outputs[0].token_ids
    for place in range(2, 12):
        if tokens[place] in tokens[:place]:
            continue
        llm = make_spec("same", num_draft_tokens=6)
        params = SamplingParams(
            temperature=0,
            max_tokens=20,
            ignore_eos=True,
            stop_token_ids=[tokens[place]],
            logprobs=0,
        )
        events = list(llm.stream("abc", params))
        assert tuple(event.token_id for event in events) == tokens[: place + 1]
        assert [event.index for event in events] == list(range(place + 1))
        assert [bool(event.finish_reason) for event in events] == [False] * place + [True]
        assert [set(event.logprobs) for event in events] == [{t} for t in tokens[: place + 1]]


def test_continuations_part_and_share(make_spec, make_llm):
    """Forks sample from one row each, beside a request with drafts; then they draft themselves."""
    params = SamplingParams(n=3, temperature=1.0, seed=5, max_tokens=10, ignore_eos=True)
    other = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    plain = make_llm(num_blocks=100)
    wanted = told(plain.generate(ids(PROMPTS[1]), params)) + told(
        plain.generate(ids(PROMPTS[0]), other)
    )
    llm = make_spec("near", num_blocks=100, num_draft_tokens=4)
    stream = llm.stream(ids(PROMPTS[0]), other)
    first = [next(stream) for _ in range(3)]
    found = told(llm.generate(ids(PROMPTS[1]), params))
    rest = [*first, *stream]
    assert found == wanted[:3]
    assert tuple(event.token_id for event in rest) == wanted[3][1]
