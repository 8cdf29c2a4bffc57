"""Why a request ends: stop strings, stop tokens, end of text, lengths."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab import SamplingParams
from llmserve_lab.engine.detokenizer import Detokenizer
from llmserve_lab.engine.token_text import TokenText
from tests.conftest import TINY_CHARACTERS, character_tokenizer, tiny_llama

COUNT = 14


@pytest.fixture(scope="module")
def free(tiny):
    """The greedy text without any ending, past end-of-text tokens."""
    from llmserve_lab import LLM

    params = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True)
    output = LLM(tiny, num_blocks=64).generate("hello", params)[0].outputs[0]
    assert len(output.text) > 10
    return output


def run(llm, **options):
    """generate and stream the same prompt; they must tell the same story."""
    params = SamplingParams(
        **({"temperature": 0, "max_tokens": COUNT, "ignore_eos": True} | options)
    )
    output = llm.generate("hello", params)[0].outputs[0]
    events = list(llm.stream("hello", params))
    assert "".join(event.text for event in events) == output.text
    assert tuple(event.token_id for event in events) == output.token_ids
    assert events[-1].finish_reason == output.finish_reason
    return output


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_stop_string_at_every_place(make_llm, free, length):
    llm = make_llm()
    for start in range(len(free.text) - length + 1):
        string = free.text[start : start + length]
        output = run(llm, stop=string)
        assert output.text == free.text[: free.text.index(string)]
        assert output.finish_reason == "stop"


def test_a_stop_string_that_never_comes_holds_nothing_back(make_llm, free):
    """Its first characters are the last ones of the text."""
    output = run(make_llm(), stop=[free.text[-3:] + "~", free.text[-1] + "~"])
    assert output.text == free.text
    assert output.finish_reason == "length"


def test_the_first_of_several_stop_strings_counts(make_llm, free):
    late, early = free.text[6:9], free.text[2:5]
    output = run(make_llm(), stop=[late, early])
    assert output.text == free.text[: min(free.text.index(early), free.text.index(late))]


def test_max_tokens(make_llm, free):
    for count in (1, 2, 7):
        output = run(make_llm(), max_tokens=count)
        assert output.token_ids == free.token_ids[:count]
        assert output.finish_reason == "length"


def test_stop_tokens_end_the_text_and_stay_in_the_ids(make_llm, free):
    token = free.token_ids[5]
    end = free.token_ids.index(token)
    output = run(make_llm(), stop_token_ids=[token])
    assert output.token_ids == free.token_ids[: end + 1]
    assert output.finish_reason == "stop"


@pytest.fixture
def eager_to_end(make_llm):
    """An engine whose model would choose end-of-text at once, and the second likeliest token."""
    import torch

    from llmserve_lab.models.load import LoadedModel

    model = tiny_llama(tie_word_embeddings=False)
    with torch.no_grad():
        model.lm_head.weight[0] = 0.0
        hidden = model.model(torch.tensor([[8, 5, 12, 12, 15]])).last_hidden_state[0, -1]
        model.lm_head.weight[0] = hidden * 100
    return make_llm(LoadedModel("eager", model, character_tokenizer(), "a test"))


def test_end_of_text_ends_and_is_no_text(eager_to_end):
    output = run(eager_to_end, ignore_eos=False)
    assert output.token_ids == (0,)
    assert output.text == ""
    assert output.finish_reason == "stop"


def test_end_of_text_can_be_ignored(eager_to_end):
    output = run(eager_to_end)
    assert output.token_ids[0] == 0
    assert len(output.token_ids) == COUNT
    assert output.finish_reason == "length"


def test_end_of_text_is_not_chosen_before_min_tokens(eager_to_end):
    output = run(eager_to_end, ignore_eos=False, min_tokens=5)
    assert len(output.token_ids) >= 5
    assert 0 not in output.token_ids[:5]


def test_stop_tokens_are_not_chosen_before_min_tokens(make_llm, free):
    token = free.token_ids[1]
    output = run(make_llm(), stop_token_ids=[token], min_tokens=6)
    assert token not in output.token_ids[:6]


def test_a_stop_string_before_min_tokens_does_not_count_later_either(make_llm, free):
    early = free.text[:2]
    output = run(make_llm(), stop=[early, "a string that is long and never comes"], min_tokens=4)
    assert 0 not in free.token_ids[:4]  # min_tokens would change the text
    assert early not in free.text[3:]
    assert output.text == free.text


def detokenize(pieces, stop, min_pieces=0):
    """Feed pieces of text as tokens, as the engine does; the text given, and whether it stopped."""

    class Pieces:
        def decode(self, ids, skip_special_tokens):
            return "".join(pieces[i] for i in ids)

    detokenizer, given_text = Detokenizer(TokenText(Pieces()).stream([]), stop), ""
    for count, _ in enumerate(pieces, start=1):
        given_text += detokenizer.append(count - 1, may_stop=count >= min_pieces)
        assert not any(string in given_text for string in stop) or min_pieces
        if detokenizer.stopped:
            break
    return given_text + detokenizer.finish(), detokenizer.stopped


def truncated(text, stop):
    """The text up to the stop string that is complete first, and the longest of those."""
    ends = [(text.index(s) + len(s), text.index(s)) for s in stop if s in text]
    return text[: min(ends)[1]] if ends else text


@settings(max_examples=300)
@given(
    st.text("ab", min_size=1, max_size=14),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.data(),
)
def test_a_stop_string_over_all_splits_into_tokens(text, stop, data):
    """However the text falls into tokens, what is shown is the text before the stop string."""
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=6)))
    borders = [0, *[cut for cut in cuts if cut < len(text)], len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(borders)]
    shown, stopped = detokenize(pieces, stop)
    assert shown == truncated(text, stop)
    assert stopped == any(string in text for string in stop)


def test_characters_of_the_tiny_tokenizer_are_tokens():
    tokenizer = character_tokenizer()
    assert tokenizer(TINY_CHARACTERS)["input_ids"] == list(range(1, 64))
