"""Streamed text, joined, is the decoded output: for any tokens, cut anywhere in a character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab.engine.detokenizer import Detokenizer
from llmserve_lab.engine.token_text import ByteStream, TokenText, WindowStream

EMOJI = "😀"
HANGUL = "한글"


def streamed(tokenizer, prompt, output, stop=()):
    detokenizer = Detokenizer(TokenText(tokenizer).stream(prompt), stop)
    pieces = []
    for token in output:
        pieces.append(detokenizer.append(token))
        if detokenizer.stopped:
            break
    return [*pieces, detokenizer.finish()]


def byte_ids(tokenizer, text):
    """One token per byte of UTF-8, without any merge."""
    from tokenizers import pre_tokenizers

    ((characters, _),) = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    ).pre_tokenize_str(text)
    return tokenizer.convert_tokens_to_ids(list(characters))


@settings(max_examples=200)
@given(data=st.data())
def test_random_tokens(byte_tokenizer, data):
    ids = st.lists(st.integers(0, len(byte_tokenizer) - 1), max_size=30)
    prompt, output = data.draw(ids), data.draw(ids)
    shown = "".join(streamed(byte_tokenizer, prompt, output))
    assert shown == byte_tokenizer.decode(output, skip_special_tokens=True)


@settings(max_examples=200)
@given(text=st.text(max_size=12), cut=st.integers(0, 48))
def test_any_text_byte_by_byte_cut_anywhere(byte_tokenizer, text, cut):
    """The prompt may end inside a character; the rest of it is then the output's."""
    ids = byte_ids(byte_tokenizer, text) if text else []
    prompt, output = ids[:cut], ids[cut:]
    shown = "".join(streamed(byte_tokenizer, prompt, output))
    assert shown == byte_tokenizer.decode(output, skip_special_tokens=True)


@pytest.mark.parametrize("cut", range(5))
def test_a_prompt_cut_at_each_byte_of_an_emoji(byte_tokenizer, cut):
    ids = byte_ids(byte_tokenizer, f"ab{EMOJI}cd")
    prompt, output = ids[: 2 + cut], ids[2 + cut :]
    pieces = streamed(byte_tokenizer, prompt, output)
    assert "".join(pieces) == byte_tokenizer.decode(output)
    assert "".join(pieces).endswith(f"{EMOJI}cd" if cut == 0 else "cd")


@pytest.mark.parametrize("text", [EMOJI * 3, HANGUL, f"x{EMOJI}y{HANGUL}", "e\u0301", "\ufffdx"])
def test_a_character_is_shown_when_it_is_whole(byte_tokenizer, text):
    pieces = streamed(byte_tokenizer, [], byte_ids(byte_tokenizer, text))
    assert "".join(pieces) == text
    shown = [piece for piece in pieces if piece]
    if "\ufffd" not in text:
        assert shown == list(text)


def test_half_a_character_at_the_end_is_shown_at_the_end(byte_tokenizer):
    *output, _ = byte_ids(byte_tokenizer, f"a{EMOJI}")
    assert streamed(byte_tokenizer, [], output) == ["a", "", "", "", "\ufffd"]


def test_special_tokens_are_no_text(byte_tokenizer):
    end = byte_tokenizer.eos_token_id
    ids = [*byte_ids(byte_tokenizer, "a"), end, *byte_ids(byte_tokenizer, "b"), end]
    assert streamed(byte_tokenizer, [end], ids) == ["a", "", "b", "", ""]


@pytest.mark.parametrize("stop", [EMOJI, f"{EMOJI}c", "cd", "b" + EMOJI, HANGUL])
def test_stop_strings_that_begin_inside_tokens(byte_tokenizer, stop):
    text = f"ab{EMOJI}cd{HANGUL}"
    pieces = streamed(byte_tokenizer, [], byte_ids(byte_tokenizer, text), [stop])
    assert "".join(pieces) == text[: text.index(stop)]


def test_a_stop_string_in_one_token_with_half_a_character(byte_tokenizer):
    """The last token allowed ends the stop string and begins a character."""

    class Halves:
        def decode(self, ids, skip_special_tokens):
            return ["", "a", "aSTOP\ufffd"][len(ids)]

    assert streamed(Halves(), [], [1, 2], ["STOP"]) == ["a", "", ""]


def test_real_text_token_by_token(byte_tokenizer):
    from llmserve_lab.models.corpus import held_out_sample

    text = held_out_sample()[-1].text[:3000]
    ids = byte_tokenizer(text)["input_ids"]
    assert "".join(streamed(byte_tokenizer, ids[:7], ids[7:])) == byte_tokenizer.decode(ids[7:])


def metaspace_tokenizer(byte_fallback=False):
    """As SentencePiece has it: words begin with a mark, unknown characters may fall to bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    mark = "\u2581"
    pieces = ["<unk>", mark, f"{mark}the", "a", "b", "\u00e9", f"{mark}b", "</s>", "\ufffd", HANGUL]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=byte_fallback))
    backend.normalizer = normalizers.Replace(" ", mark)
    replace = [decoders.Replace(mark, " ")]
    backend.decoder = decoders.Sequence(
        [*replace, decoders.ByteFallback(), decoders.Fuse()] if byte_fallback else
        [decoders.Metaspace()]
    )  # fmt: skip
    backend.add_special_tokens(["</s>"])
    return backend


def after(tokenizer, prompt, output):
    """The text that the output adds to its prompt: the first of all words loses its blank."""
    whole = tokenizer.decode([*prompt, *output], skip_special_tokens=True)
    return whole[len(tokenizer.decode(prompt, skip_special_tokens=True)) :]


@settings(max_examples=200)
@given(data=st.data())
def test_random_tokens_of_another_kind(data):
    tokenizer = metaspace_tokenizer()
    tokens = st.integers(0, tokenizer.get_vocab_size() - 1)
    prompt = data.draw(st.lists(tokens.filter(lambda t: t != 8), min_size=1, max_size=12))
    output = data.draw(st.lists(tokens, max_size=12))
    shown = "".join(streamed(tokenizer, prompt, output))
    if tokenizer.decode(prompt[-4:]):  # else nothing tells that a word came before
        assert shown == after(tokenizer, prompt, output)


@settings(max_examples=200)
@given(text=st.text(max_size=10))
def test_any_text_that_falls_to_bytes(text):
    tokenizer = metaspace_tokenizer(byte_fallback=True)
    assert isinstance(TokenText(tokenizer).stream([]), WindowStream)
    output = tokenizer.encode(text.replace("\u2581", " ")).ids
    shown = "".join(streamed(tokenizer, [], output))
    assert shown == tokenizer.decode(output)


@settings(max_examples=200)
@given(data=st.data())
def test_both_ways_say_the_same(byte_tokenizer, data):
    """Added tokens are text as they are, unless they are special; ids beyond the end are none."""
    backend = type(byte_tokenizer.backend_tokenizer).from_str(
        byte_tokenizer.backend_tokenizer.to_str()
    )
    backend.add_tokens(["a b", HANGUL, EMOJI])
    backend.add_special_tokens(["<|turn|>"])
    size = backend.get_vocab_size()
    tokens = st.integers(0, size + 1) | st.integers(size - 5, size + 1)
    output = data.draw(st.lists(tokens, max_size=16))
    stream = TokenText(backend).stream([])
    assert isinstance(stream, ByteStream)
    for found in (stream, WindowStream(backend, [])):
        text = "".join([*(found.append(token) for token in output), found.finish()])
        assert text == backend.decode(output, skip_special_tokens=True)


@pytest.mark.parametrize("stop", [[], ["never", "a" * 40]], ids=["plain", "stop strings"])
def test_the_work_per_token_does_not_grow(byte_tokenizer, stop):
    """Counted, not timed: how many tokens the tokenizer decodes, how many characters are held."""

    class Counting:
        decoded = 0

        def decode(self, ids, skip_special_tokens):
            self.decoded += len(ids)
            return "ab" * len(ids)

    counting = Counting()
    detokenizer = Detokenizer(TokenText(counting).stream([1] * 100), stop)
    for count in range(1, 1001):
        detokenizer.append(count)
        assert len(detokenizer._held) <= 40
        assert counting.decoded <= 6 * count + 20
    stream = TokenText(byte_tokenizer).stream([])
    for token in byte_ids(byte_tokenizer, EMOJI * 50):
        stream.append(token)
        assert len(stream._decoder.getstate()[0]) < 4


def test_echo_comes_first_and_once(byte_tokenizer):
    detokenizer = Detokenizer(TokenText(byte_tokenizer).stream([]), ["STOP"], echo="STOP it. ")
    pieces = [detokenizer.append(token) for token in byte_ids(byte_tokenizer, "xSTOP")]
    assert pieces == ["STOP it. x", "", "", "", ""]
    assert detokenizer.stopped
    assert detokenizer.finish() == ""
