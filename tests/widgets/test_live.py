"""The live picture shows what the stream and the trace say, and closes what it opened."""

from __future__ import annotations

import pytest

from llmserve_lab.widgets import live
from llmserve_lab.widgets.live_picture import RequestText, picture, summary


def test_live_returns_the_texts_in_order(shown, scripted):
    result = live(scripted(), ["a:", "b:"])
    assert result.texts == ["<0><1><2><3>"] * 2
    assert (result.num_tokens, result.num_steps) == (8, 4)
    assert "8 tokens in 4 steps" in repr(result)


def test_the_last_picture_is_complete(shown, scripted):
    live(scripted(), ["a:", "b:"])
    page = shown[-1]["text/html"]
    assert page.count('class="lsl-token"') == 8
    assert "&lt;3&gt;" in page  # token text is never markup
    assert page.count('class="is-owned"') == 2  # held during the last step
    assert page.count('<i class="is-prefill" style') == 1
    assert page.count('class="lsl-badge">length') == 2
    assert "2 of 8 in use" in page


def test_pictures_are_throttled(shown, scripted):
    live(scripted(tokens=300), ["a:", "b:"])
    assert len(shown) < 100  # 600 tokens came


def test_an_interrupt_closes_the_stream_and_keeps_the_picture(shown, scripted):
    llm = scripted(interrupt_at=2)
    with pytest.raises(KeyboardInterrupt):
        live(llm, ["a:", "b:"])
    assert llm.closed
    assert "&lt;1&gt;" in shown[-1]["text/html"]


def test_a_drawing_error_closes_the_stream(shown, scripted, monkeypatch):
    def broken(*_):
        raise RuntimeError("no picture")

    monkeypatch.setattr("llmserve_lab.widgets.stream.picture", broken)
    llm = scripted()
    with pytest.raises(RuntimeError, match="no picture"):
        live(llm, ["a:"])
    assert llm.closed


def test_a_second_run_starts_from_its_own_steps(shown, scripted):
    llm = scripted()
    live(llm, ["a:", "b:"])
    result = live(llm, ["a:", "b:"])
    assert result.num_steps == 4
    assert shown[-1]["text/html"].count('class="lsl-token"') == 8


def test_one_prompt_may_be_a_string_or_token_ids(shown, scripted):
    live(scripted(), [{"prompt_token_ids": [1, 2, 3]}])
    assert "[3 tokens]" in shown[-1]["text/html"]


def test_many_and_long_requests_stay_small():
    requests = [RequestText(str(i), "p" * 1000, [" x"] * 5000) for i in range(50)]
    assert len(picture(requests, [])) < 120_000
    assert "and 44 more requests" in picture(requests, [])


def test_the_picture_is_told_in_words():
    assert summary([], []) == "The engine has not run a step yet."
