"""The calculator's card: what it shows, what it refuses, what a choice changes."""

from importlib import import_module

import pytest

from llmserve_lab.course.memory_calculator import memory_calculator
from llmserve_lab.widgets import cards

GIB = 2**30
module = import_module("llmserve_lab.course.memory_calculator")


def plan(model, gpu, weight_bits, kv_bits, context, batch):
    weights, request = 16 * GIB * weight_bits / 16, GIB * kv_bits / 16 * context / 4096
    usable = 72 * GIB if gpu == "A100" else 14 * GIB
    room = max(0, usable - weights)
    return {
        "weights": weights,
        "kv": batch * request,
        "activation": 0.0,
        "usable": usable,
        "largest_batch": room // request,
    }


def test_it_says_what_fits_without_a_widget(shown):
    memory_calculator(plan, ["m"], ["A100", "T4"], batch=64)
    text = shown[0]["text/plain"]
    assert "calculated" in text and "weights 16 GiB, KV cache 64 GiB" in text
    assert "does not fit" in text and text.endswith("Largest batch at 4,096 tokens each: 56.")
    assert "is-kv" in shown[0]["text/html"]
    memory_calculator(plan, ["m"], ["A100", "T4"], gpu="T4")
    assert shown[1]["text/plain"].endswith("each: 0.")


def test_a_choice_redraws_and_an_error_is_told_on_the_card(shown, monkeypatch):
    made = []
    original = cards.MemoryCard
    monkeypatch.setattr(cards, "MemoryCard", lambda **kw: made.append(original(**kw)) or made[-1])
    memory_calculator(plan, ["m"], ["A100", "T4"])
    (card,) = made
    before = card.picture
    card.choice = {**card.choice, "kv_bits": 8}
    assert card.picture != before and "<b>112</b>" in card.picture
    card.choice = {**card.choice, "gpu": "abacus"}
    assert "gpu must be one of A100, T4" in card.picture
    card.choice = {**card.choice, "gpu": "T4"}
    assert "<b>0</b>" in card.picture


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"batch": 3}, "batch must be one of 1, 2, 4"),
        ({"model": "other"}, "model must be one of m"),
        ({"size": 1}, "no 'size' to choose"),
    ],
)
def test_what_cannot_be_chosen_is_refused(shown, choice, words):
    with pytest.raises(ValueError, match=words):
        memory_calculator(plan, ["m"], ["A100"], **choice)
    assert not shown


def test_a_plan_without_a_number_is_named():
    with pytest.raises(ValueError, match="no 'usable'"):
        memory_calculator(lambda **_: {"weights": 1, "kv": 1, "activation": 1}, ["m"], ["A100"])
