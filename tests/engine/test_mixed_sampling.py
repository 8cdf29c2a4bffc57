"""Any mix of settings in one batch, under any scheduler, gives each request what it gets alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab import (
    LLM,
    PriorityScheduler,
    SamplingParams,
    Scheduler,
    StaticBatchingScheduler,
    SwapToHost,
)
from tests.conftest import assert_as_new, fill_with_nan

SCHEDULERS = {
    "first come": Scheduler,
    "swap": lambda: Scheduler(preemption=SwapToHost(num_blocks=6)),
    "priority": PriorityScheduler,
    "static": lambda: StaticBatchingScheduler(batch_size=1),
}

tokens = st.integers(0, 63)
prompts = st.lists(tokens, min_size=1, max_size=14)
params = st.builds(
    SamplingParams,
    n=st.sampled_from([1, 1, 1, 3]),
    temperature=st.sampled_from([0.0, 0.8, 1.5]),
    top_k=st.sampled_from([0, 0, 5, 40]),
    top_p=st.sampled_from([1.0, 1.0, 0.7]),
    min_p=st.sampled_from([0.0, 0.0, 0.1]),
    max_tokens=st.integers(6, 11),
    min_tokens=st.sampled_from([0, 0, 5]),
    stop=st.none() | st.lists(st.text("abcde", min_size=1, max_size=2), min_size=1, max_size=2),
    stop_token_ids=st.lists(tokens, max_size=2),
    ignore_eos=st.booleans(),
    seed=st.integers(0, 2**63 - 1),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.0, -0.5]),
    logit_bias=st.none() | st.dictionaries(tokens, st.sampled_from([-100.0, 3.0]), max_size=3),
    allowed_token_ids=st.none() | st.lists(tokens, min_size=20, max_size=50, unique=True),
    logprobs=st.sampled_from([None, None, 0, 2]),
    prompt_logprobs=st.sampled_from([None, None, 0, 1]),
    echo=st.booleans(),
)
requests = st.lists(st.tuples(prompts, params), min_size=1, max_size=5)
engines = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(7, 16),  # of 4: from one of the longest requests upwards
        "block_size": st.sampled_from([4, 5]),
        "max_num_batched_tokens": st.sampled_from([1, 3, 7, 64]),
        "max_num_seqs": st.sampled_from([1, 2, 8]),
        "enable_prefix_caching": st.booleans(),
    }
)


def told(output):
    """What a user reads, numbers aside: they may round differently in another batch."""
    return [
        (
            one.token_ids,
            one.text,
            one.finish_reason,
            one.logprobs and [entry and len(entry) for entry in one.logprobs],
            output.prompt_logprobs and [entry and len(entry) for entry in output.prompt_logprobs],
        )
        for one in output.outputs
    ]


@pytest.mark.parametrize("kind", SCHEDULERS)
@settings(max_examples=12)
@given(batch=requests, chosen=engines)
def test_a_batch_gives_each_what_it_gets_alone(tiny, kind, batch, chosen):
    asked = [{"prompt_token_ids": prompt} for prompt, _ in batch]
    alone = LLM(tiny, num_blocks=64)
    wanted = [
        alone.generate(prompt, each)[0] for prompt, (_, each) in zip(asked, batch, strict=True)
    ]
    llm = LLM(tiny, scheduler=SCHEDULERS[kind](), **chosen)
    fill_with_nan(llm)
    outputs = llm.generate(asked, [each for _, each in batch])
    assert [told(output) for output in outputs] == [told(output) for output in wanted]
    for output, other in zip(outputs, wanted, strict=True):
        for one, twin in zip(output.outputs, other.outputs, strict=True):
            assert one.cumulative_logprob == pytest.approx(twin.cumulative_logprob, abs=1e-3)
    assert_as_new(llm)
    texts = {}
    for event in llm.stream(asked, [each for _, each in batch]):
        texts[event.request_id] = texts.get(event.request_id, "") + event.text
    for number, output in enumerate(outputs, start=len(batch)):
        names = [f"{number}"] if len(output.outputs) == 1 else [f"{number}.{i}" for i in range(3)]
        assert [texts[name] for name in names] == [one.text for one in output.outputs]
    assert_as_new(llm)
