"""Sampled texts follow the target's distribution: exact probabilities against thousands of runs.

The same test finds the known mistakes out, so it can tell."""

import itertools

import pytest
import torch

from llmserve_lab import SamplingParams
from llmserve_lab.speculative import verifier
from llmserve_lab.speculative.rejection import acceptance, residual
from tests.engine.reference import ids
from tests.speculative.conftest import Script

TOKENS = (3, 11, 20, 42, 50)  # the only ones allowed: a vocabulary of five
PROMPT = [9, 20, 31, 11]
RUNS = 1500
LENGTH = 3  # the first comes with the prompt, the others from a draft or in its place
FAR = 8.0  # standard deviations; the right verdicts stay below 4

SETTINGS = {
    "plain": {"temperature": 1.5},
    "filtered": {"temperature": 2.0, "top_p": 0.9, "top_k": 4},
    "penalised": {"temperature": 1.5, "frequency_penalty": 1.0},
}


def exact(model, settings):
    """The probability of each text of LENGTH tokens, by transformers' own forward."""
    chances = {(): 1.0}
    for _ in range(LENGTH):
        chances = {
            (*text, token): chance * share
            for text, chance in chances.items()
            for token, share in zip(TOKENS, _next(model, text, settings), strict=True)
        }
    return chances


def _next(model, text, settings):
    with torch.inference_mode():
        row = model(torch.tensor([[*PROMPT, *text]])).logits[0, -1]
    logits = row.double().clone()
    for token in set(text):
        logits[token] -= settings.get("frequency_penalty", 0) * text.count(token)
    weights = (logits[list(TOKENS)] / settings["temperature"]).softmax(0)
    order = weights.argsort(descending=True)
    kept = order[: settings.get("top_k", len(TOKENS))]
    before = weights[kept].cumsum(0) - weights[kept]
    kept = kept[before < settings.get("top_p", 1.0) * weights[kept].sum()]
    left = torch.zeros_like(weights)
    left[kept] = weights[kept]
    return (left / left.sum()).tolist()


def drawn(llm, settings, seed=0):
    """How often each text came, of RUNS requests with chances of their own."""
    torch.manual_seed(seed)
    params = SamplingParams(
        n=RUNS, max_tokens=LENGTH, allowed_token_ids=TOKENS, ignore_eos=True, **settings
    )
    (output,) = llm.generate(ids(PROMPT), params)
    counts = dict.fromkeys(itertools.product(TOKENS, repeat=LENGTH), 0)
    for part in output.outputs:
        counts[part.token_ids] += 1
    return counts


def z_of(counts, chances):
    """Standard deviations by which Pearson's chi-square lies above its mean. Rare texts count as
    one; impossible ones must not come."""
    assert all(counts[text] == 0 for text, chance in chances.items() if chance == 0)
    common = [text for text, chance in chances.items() if chance * RUNS >= 5]
    cells = [(counts[text], chances[text]) for text in common]
    rest = 1 - sum(chance for _, chance in cells)
    if rest * RUNS >= 5:
        cells.append((RUNS - sum(count for count, _ in cells), rest))
    chi = sum((count - chance * RUNS) ** 2 / (chance * RUNS) for count, chance in cells)
    freedom = len(cells) - 1
    return (chi - freedom) / (2 * freedom) ** 0.5


def engine(make_spec, draft):
    return make_spec(draft, num_blocks=400, num_draft_tokens=2, max_num_seqs=128)


@pytest.mark.parametrize("draft", ["near", "far"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_draft_model(make_spec, tiny, draft, name):
    settings = SETTINGS[name]
    llm = engine(make_spec, draft)
    assert z_of(drawn(llm, settings), exact(tiny.model, settings)) < 4
    metrics = llm.metrics
    assert 0 < metrics.accepted_tokens < metrics.judged_tokens


@pytest.mark.parametrize("name", SETTINGS)
def test_a_proposer(make_spec, tiny, name):
    """Its guesses are certain to it: q is 1 for the guess."""
    settings = SETTINGS[name]
    llm = engine(make_spec, Script(lambda tokens, most: [TOKENS[len(tokens) % 5]] * most))
    assert z_of(drawn(llm, settings), exact(tiny.model, settings)) < 4
    assert 0 < llm.metrics.accepted_tokens < llm.metrics.judged_tokens


def always_accept(p, q, drafts, uniforms):
    return drafts, torch.ones_like(drafts, dtype=torch.bool)


def replace_from_the_target(p, q, drafts, uniforms):
    right = uniforms[0] < acceptance(p, q, drafts)
    others = p.multinomial(1)[:, 0]
    return torch.where(right, drafts, others), right


def replace_from_the_draft(p, q, drafts, uniforms):
    right = uniforms[0] < acceptance(p, q, drafts)
    return torch.where(right, drafts, q.multinomial(1)[:, 0]), right


def accept_by_the_inverse(p, q, drafts, uniforms):
    right = uniforms[0] < acceptance(q, p + 1e-30, drafts)
    return torch.where(right, drafts, residual(p, q).multinomial(1)[:, 0]), right


@pytest.mark.parametrize(
    "wrong",
    [always_accept, replace_from_the_target, replace_from_the_draft, accept_by_the_inverse],
)
def test_wrong_verdicts_are_found_out(make_spec, tiny, monkeypatch, wrong):
    settings = SETTINGS["plain"]
    monkeypatch.setattr(verifier, "judged", wrong)
    counts = drawn(engine(make_spec, "far"), settings)
    assert z_of(counts, exact(tiny.model, settings)) > FAR


def test_a_bonus_from_the_draft_is_found_out(make_spec, tiny, monkeypatch):
    settings = SETTINGS["plain"]
    right = verifier._compare

    def wrong(sampler, logits, positions, rows):
        found = right(sampler, logits, positions, rows)
        for row in rows:
            number = positions[row].num_drafts
            if number:
                request = positions[row].request
                token = int(llm_sources(request)[number - 1].multinomial(1))
                found[row] = found[row]._replace(token=token)
        return found

    llm = engine(make_spec, "far")
    speculation = llm._engine.speculation
    llm_sources = lambda request: speculation._sources[request]  # noqa: E731
    monkeypatch.setattr(verifier, "_compare", wrong)
    assert z_of(drawn(llm, settings), exact(tiny.model, settings)) > FAR


def test_a_row_beside_the_right_one_is_found_out(make_spec, tiny, monkeypatch):
    """Off by one: each draft judged by the logits that follow it."""
    settings = SETTINGS["plain"]
    llm = engine(make_spec, "far")
    run = llm._engine.runner.run
    llm._engine.runner.run = lambda batch: run(batch).roll(-1, 0)
    assert z_of(drawn(llm, settings), exact(tiny.model, settings)) > FAR
