"""Accepted and replaced drafts together follow the target's distribution: by algebra, exactly."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmserve_lab import SamplingParams
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampler import Sampler
from llmserve_lab.speculative import rejection
from llmserve_lab.speculative.rejection import acceptance, judged, normalised, residual
from llmserve_lab.speculative.theory import (
    acceptance_probability,
    expected_speedup,
    expected_tokens,
)
from llmserve_lab.speculative.verifier import verify

WEIGHT = st.one_of(st.just(0.0), st.floats(1e-3, 1.0))


@st.composite
def pairs(draw_):
    size = draw_(st.integers(2, 8))
    rows = [draw_(st.lists(WEIGHT, min_size=size, max_size=size)) for _ in range(2)]
    if not all(map(any, rows)):
        rows = [[*row[:-1], 1.0] for row in rows]
    return [normalised(torch.tensor([row], dtype=torch.float64))[0] for row in rows]


def outcome(p, q):
    """The distribution of the token that comes out, summed over all that can happen."""
    accepted, replaced = torch.zeros_like(p), torch.zeros_like(p)
    for token in range(len(p)):
        if q[token] == 0:
            continue
        one = torch.tensor([token])
        share = acceptance(p[None], q[None], one)[0]
        accepted[token] += q[token] * share
        replaced += q[token] * (1 - share) * residual(p[None], q[None])[0]
    return accepted + replaced


@given(pairs())
def test_what_comes_out_follows_the_target(pair):
    p, q = pair
    assert torch.allclose(outcome(p, q), p, atol=1e-9)


@given(pairs())
def test_the_share_accepted_is_the_overlap(pair):
    p, q = pair
    tokens = [token for token in range(len(p)) if q[token] > 0]
    shares = [acceptance(p[None], q[None], torch.tensor([t]))[0] * q[t] for t in tokens]
    assert float(sum(shares)) == pytest.approx(acceptance_probability(p.tolist(), q.tolist()))


@given(pairs(), st.integers(1, 40))
def test_uniforms_on_a_grid_give_the_same_shares(pair, steps):
    """`judged` decides as `acceptance` and `residual` say, for every draft and both numbers."""
    p, q = pair
    for token in (t for t in range(len(p)) if q[t] > 0):
        grid = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
        first, second = torch.meshgrid(grid, grid, indexing="ij")
        rows = steps * steps
        tokens, right = judged(
            p.float().expand(rows, -1), q.float().expand(rows, -1), torch.full((rows,), token),
            torch.stack([first.flatten(), second.flatten()]),
        )  # fmt: skip
        share = float(acceptance(p[None], q[None], torch.tensor([token]))[0])
        assert float(right.double().mean()) == pytest.approx(share, abs=1 / steps)
        assert torch.equal(tokens[right], torch.full_like(tokens[right], token))
        rest = residual(p[None], q[None])[0]
        others = tokens.view(steps, steps)[~right.view(steps, steps)[:, 0]]
        for row in others:
            seen = torch.bincount(row, minlength=len(p)).double() / steps
            assert torch.allclose(seen, rest, atol=2 / steps + 1e-6)


def test_nothing_is_drawn_that_the_target_forbids():
    p = torch.tensor([[0.0, 1.0, 0.0]]).expand(500, -1)
    q = torch.tensor([[0.5, 0.3, 0.2]]).expand(500, -1)
    drafts = torch.arange(500) % 3
    tokens, right = judged(p, q, drafts, torch.rand(2, 500, dtype=torch.float64))
    assert set(tokens.tolist()) == {1}
    assert torch.equal(right, drafts == 1)


def test_where_both_are_the_same_every_draft_is_right():
    p = normalised(torch.rand(200, 30))
    drafts = torch.randint(0, 30, (200,))
    _, right = judged(p, p.clone(), drafts, torch.rand(2, 200, dtype=torch.float64))
    assert right.all()
    assert torch.equal(residual(p, p.clone()), p)


@pytest.mark.parametrize("count", [1, 2, 4, 7])
@pytest.mark.parametrize("likeness", [0.0, 0.5, 0.9])
def test_steps_bring_as_many_tokens_as_the_formula_says(count, likeness):
    """Thousands of requests with one distribution each for target and draft."""
    torch.manual_seed(count)
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
    other = likeness * logits + (1 - likeness) * logits.flip(0)
    p, q = logits.softmax(0), other.softmax(0)
    alpha = acceptance_probability(p.tolist(), q.tolist())
    requests = [Request(f"{n}", [1], SamplingParams()) for n in range(6000)]
    for request in requests:
        request.draft_token_ids = q.multinomial(count, replacement=True).tolist()
    sources = {request: [q] * count for request in requests}
    rows = logits.expand(len(requests) * (count + 1), -1)
    chosen = verify(Sampler(frozenset()), rows, requests, sources)
    mean = sum(map(len, chosen)) / len(chosen)
    assert mean == pytest.approx(expected_tokens(alpha, count), rel=0.03)


def test_the_formulas():
    assert expected_tokens(0.0, 5) == 1
    assert expected_tokens(1.0, 5) == 6
    assert expected_tokens(0.8, 4) == pytest.approx((1 - 0.8**5) / (1 - 0.8))
    assert expected_speedup(0.8, 4, 0.05) == pytest.approx((1 - 0.8**5) / 0.2 / 1.2)
    assert expected_speedup(0.0, 3, 1.0) == 1 / 4
    assert acceptance_probability([0.5, 0.5], [1.0, 0.0]) == 0.5
    for wrong in (-0.1, 1.1, float("nan"), "0.5"):
        with pytest.raises((ValueError, TypeError), match="alpha must be"):
            expected_tokens(wrong, 2)


def test_the_module_says_its_sources():
    assert "Leviathan" in rejection.__doc__
    assert "Chen" in rejection.__doc__
