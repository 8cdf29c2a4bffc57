"""Scores against the straightforward computation of the same thing."""

import gzip
import math

import pytest
import torch

from llmserve_lab.models import evaluate
from llmserve_lab.models.evaluate import greedy_agreement, gzip_bits_per_byte, score
from tests.conftest import TINY_CHARACTERS, character_tokenizer, tiny_llama

TEXTS = ["hello world", "a", "The quick brown fox jumps over the lazy dog 1234567890"]


def tokens(text):
    return [0, *character_tokenizer()(text)["input_ids"]]


def nats(model, ids):
    """Minus log-likelihood of every token after the first, each with its whole past."""
    with torch.inference_mode():
        chances = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return [-chances[i, token].item() for i, token in enumerate(ids[1:])]


@pytest.fixture(scope="module")
def model():
    return tiny_llama()


def test_short_texts_are_scored_with_their_whole_past(model):
    result = score(model, character_tokenizer(), TEXTS)
    wanted = sum(sum(nats(model, tokens(text))) for text in TEXTS)
    assert result.nats == pytest.approx(wanted, rel=1e-5)
    assert result.num_tokens == sum(map(len, TEXTS)) == result.num_bytes
    assert result.bits_per_byte == pytest.approx(wanted / math.log(2) / result.num_bytes)
    assert result.perplexity == pytest.approx(math.exp(wanted / result.num_tokens))


@pytest.mark.parametrize("length", range(1, 40))
def test_windows_predict_every_token_once(monkeypatch, length):
    monkeypatch.setattr(evaluate, "WINDOW", 8)
    monkeypatch.setattr(evaluate, "STRIDE", 3)
    text = (TINY_CHARACTERS * 2)[:length]
    predicted = []
    for ids, first_new in evaluate._windows(character_tokenizer(), [text]):
        assert len(ids) <= 8
        whole = tokens(text)
        start = next(s for s in range(len(whole)) if whole[s : s + len(ids)] == ids)
        assert first_new >= 5 or start == 0  # enough context, where there is any
        predicted += range(start + first_new, start + len(ids))
    assert predicted == list(range(1, length + 1))


def test_long_texts_are_scored_window_by_window(monkeypatch, model):
    monkeypatch.setattr(evaluate, "WINDOW", 16)
    monkeypatch.setattr(evaluate, "STRIDE", 8)
    ids = tokens(TINY_CHARACTERS[:40])
    wanted = sum(nats(model, ids[:16]))
    for end in (24, 32, 40, 41):
        start = max(0, end - 16)
        known = {24: 16, 32: 24, 40: 32, 41: 40}[end]
        wanted += sum(nats(model, ids[start:end])[known - start - 1 :])
    assert score(model, character_tokenizer(), [TINY_CHARACTERS[:40]]).nats == pytest.approx(wanted)


def test_multibyte_text_counts_its_bytes(byte_tokenizer):
    model = tiny_llama(vocab_size=4096)
    assert score(model, byte_tokenizer, ["한글😀"]).num_bytes == 10


def test_a_model_agrees_with_itself(model):
    assert greedy_agreement(model, model, character_tokenizer(), TEXTS) == 1.0


def test_agreement_is_the_share_of_equal_choices(model):
    other = tiny_llama()
    with torch.no_grad():
        other.model.norm.weight[::3] = 0.3  # alike, but not the same
    same = total = 0
    for text in TEXTS:
        with torch.inference_mode():
            inputs = torch.tensor([tokens(text)])
            choices = [one(inputs).logits[0, :-1].argmax(-1) for one in (model, other)]
        same += int((choices[0] == choices[1]).sum())
        total += len(text)
    assert 0 < same < total
    assert greedy_agreement(model, other, character_tokenizer(), TEXTS) == same / total


def test_gzip_needs_what_gzip_says():
    texts = ["abc" * 100, "xyz"]
    wanted = 8 * sum(len(gzip.compress(t.encode(), 9)) for t in texts) / 303
    assert gzip_bits_per_byte(texts) == pytest.approx(wanted)
    assert gzip_bits_per_byte(["a" * 10000]) < 0.1
