"""The pictures of chapter 10 draw the calls that they are given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmserve_lab import plots
from llmserve_lab.course.forward_calls import ForwardCall
from llmserve_lab.plots.display import require_readable

TOKEN_BYTES = 1024


class Work:
    """Counts one of everything."""

    kv_bytes = 1

    def linear_flops(self, tokens, rows):
        return tokens * 1_000_000

    def attention_flops(self, pairs):
        return 0

    def weights_read(self, tokens, rows):
        return 0


def call(shape, cached, held, kv=None):
    columns = shape[-1]
    positions = [[*range(cached, cached + columns)]]
    return ForwardCall(shape, positions, cached, held, (kv or held) * TOKEN_BYTES, 1, 0.1)


THEIRS = [call((1, 4), 0, 4), call((1, 1), 4, 5)]
OURS = [call((4,), 0, 4, kv=4), call((1,), 4, 5, kv=8)]


def texts(figure):
    return [text for trace in figure.data for text in (trace.text or ())]


def test_each_call_has_a_stop_with_its_shapes_and_the_token_it_gave():
    figure = plots.generate_steps(THEIRS, OURS, ["a", "b"], Work())
    require_readable(figure)
    labels = [step.label for step in figure.layout.sliders[0].steps]
    assert labels == ["1 of 2: gives token 1, 'a'", "2 of 2: gives token 2, 'b'"]
    shown = texts(figure)
    assert {"(1, 4)", "(4,)", "(1, 1)", "(1,)", "0 -> 4", "4 -> 5", "8 KiB"} <= set(shown)


def test_blocks_rise_when_the_next_token_needs_one():
    figure = plots.cache_growth(THEIRS, OURS, TOKEN_BYTES)
    require_readable(figure)
    formula, tensors, blocks = figure.data
    assert list(formula.y) == list(tensors.y) == [4, 5]
    assert list(blocks.y) == [4, 8] and blocks.line.shape == "hv"


def test_padding_is_what_the_rectangle_has_beyond_the_tokens():
    theirs = [
        replace(c, shape=(2, c.shape[1]), held=2 * c.held, cached=2 * c.cached) for c in THEIRS
    ]
    ours = [replace(c, held=held) for c, held in zip(OURS, (6, 8), strict=True)]
    figure = plots.padding_map([4, 2], theirs, ours)
    require_readable(figure)
    padding = [list(trace.x) for trace in figure.data if trace.name == "padding"]
    assert padding == [[0, 2], [0, 2]]
    engine = [trace.x[1] for trace in figure.data if trace.name.startswith("request")]
    assert engine == [4, 2, 5, 3]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.generate_steps([], [], [], Work()),
        lambda: plots.cache_growth(THEIRS, OURS[:1], TOKEN_BYTES),
        lambda: plots.padding_map([4, 2], THEIRS, OURS),
    ],
)
def test_calls_that_do_not_belong_together_are_refused(draw):
    with pytest.raises(ValueError, match="needs"):
        draw()
