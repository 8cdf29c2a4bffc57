"""How many threads the engine's steps compute with, and that nobody else notices."""

import pytest
import torch

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.attention import team
from llmserve_lab.engine import threads
from tests.engine.reference import greedy_tokens, ids, tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


@pytest.fixture(autouse=True)
def four_cores_and_one_thread(monkeypatch):
    """Whatever this machine has."""
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def watched(llm, monkeypatch):
    """The threads that each forward pass and each sampling had."""
    seen, engine = [], llm._engine
    for part, name in ((engine.runner, "run"), (engine.sampler, "sample")):
        whole = getattr(part, name)

        def noting(*args, whole=whole):
            seen.append(torch.get_num_threads())
            return whole(*args)

        monkeypatch.setattr(part, name, noting)
    return seen


@pytest.mark.parametrize(("asked", "found"), [(None, 1), (1, 1), (2, 2), (4, 4)])
def test_steps_compute_with_as_many_as_asked(make_llm, tiny, monkeypatch, asked, found):
    llm = make_llm(num_threads=asked)
    seen = watched(llm, monkeypatch)
    wanted = greedy_tokens(tiny.model, [1, 2, 3], 5)
    assert tokens_of(llm.generate(ids([1, 2, 3]), GREEDY)) == [wanted]
    assert torch.get_num_threads() == 1
    llm.add_request("abc", GREEDY)
    while llm.has_work:
        llm.step()
        assert torch.get_num_threads() == 1
    for _ in llm.stream("abc", GREEDY):
        assert torch.get_num_threads() == 1
    assert seen == [found] * len(seen)
    assert len(seen) == 3 * 2 * 5


def test_a_step_that_fails_gives_the_threads_back(make_llm, monkeypatch):
    llm = make_llm(num_threads=2)
    monkeypatch.setattr(llm._engine.runner, "run", lambda batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        llm.generate("abc", GREEDY)
    assert torch.get_num_threads() == 1


def test_two_engines_keep_their_own(make_llm, monkeypatch):
    first, second = make_llm(num_threads=2), make_llm(num_threads=3)
    seen = watched(first, monkeypatch), watched(second, monkeypatch)
    for _ in zip(first.stream("abc", GREEDY), second.stream("abc", GREEDY), strict=True):
        assert torch.get_num_threads() == 1
    assert [set(numbers) for numbers in seen] == [{2}, {3}]


def test_what_the_user_sets_later_holds_where_none_was_given(make_llm, monkeypatch):
    llm = make_llm()
    torch.set_num_threads(3)
    seen = watched(llm, monkeypatch)
    llm.generate("abc", GREEDY)
    assert set(seen) == {3}
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (0, ValueError, "num_threads must be at least 1, not 0"),
        (-2, ValueError, "num_threads must be at least 1"),
        (5, ValueError, "num_threads is 5, but this process may use 4 .* give at most 4"),
        (1.5, TypeError, "num_threads must be a whole number, not 1.5"),
        (True, TypeError, "num_threads must be a whole number, not True"),
        ("2", TypeError, "num_threads must be a whole number, not '2'"),
    ],
)
def test_numbers_that_make_no_sense(tiny, value, error, message):
    with pytest.raises(error, match=message):
        LLM(tiny, num_blocks=8, num_threads=value)


@pytest.mark.parametrize("asked", [2, 3, 4])
def test_tokens_do_not_depend_on_the_threads(make_llm, tiny, monkeypatch, asked):
    if team.runtime() is None:
        pytest.skip("torch's threads cannot be lent here")
    from llmserve_lab.attention import decode_shares

    shares, whole = [], decode_shares.run
    monkeypatch.setattr(
        decode_shares, "run", lambda *parts: (shares.append(len(parts[5]) - 1), whole(*parts))
    )
    prompts = [list(range(1, 2 + length)) for length in range(6)]
    wanted = [greedy_tokens(tiny.model, prompt, 5) for prompt in prompts]
    llm = make_llm(num_threads=asked)
    ending = SamplingParams(temperature=0, max_tokens=5)
    assert tokens_of(llm.generate(ids(*prompts), ending)) == wanted
    assert asked in shares
