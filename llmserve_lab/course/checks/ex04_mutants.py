"""Wrong answers to exercise 04, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Mutants = dict[str, Callable[..., Any]]


GREEDY: Mutants = {
    "the logit itself": lambda logits: float(logits.max()),
    "the least likely": lambda logits: int(logits.argmin()),
    "a tensor": lambda logits: logits.argmax(),
    "of absolute values": lambda logits: int(logits.abs().argmax()),
    "the last of equals": lambda logits: len(logits) - 1 - int(logits.flip(0).argmax()),
    "the last token": lambda logits: len(logits) - 1,
}


def _exponentials(logits: Any, temperature: float) -> Any:
    """exp() of large logits is infinite."""
    powers = (logits / temperature).exp()
    return powers / powers.sum()


PROBABILITIES: Mutants = {
    "multiplies by the temperature": lambda logits, t: (logits * t).softmax(dim=-1),
    "forgets the temperature": lambda logits, t: logits.softmax(dim=-1),
    "divides after the softmax": lambda logits, t: logits.softmax(dim=-1) / t,
    "no softmax": lambda logits, t: logits / t,
    "logarithms": lambda logits, t: (logits / t).log_softmax(dim=-1),
    "exponentials that overflow": _exponentials,
    "shares of the logits": lambda logits, t: (logits / t) / (logits / t).sum(),
    "divides its input": lambda logits, t: logits.div_(t).softmax(dim=-1),
}


def _keep(
    p: Any,
    top_k: int,
    top_p: float,
    *,
    descending: bool = True,
    more: int = 0,
    scale_first: bool = True,
    scale_last: bool = True,
    limit_first: bool = False,
) -> Any:
    """A right filter, unless told otherwise."""
    import torch

    order = p.argsort(descending=descending)
    if not limit_first:
        order = order[: top_k or len(p)]
    ranked = p[order] / (p[order].sum() if scale_first else 1)
    count = max(1, int((ranked.cumsum(dim=0) - ranked < top_p).sum()) + more)
    order = order[:count]
    if limit_first:
        order = order[: top_k or len(p)]
    kept = torch.zeros_like(p)
    kept[order] = p[order]
    return kept / (kept.sum() if scale_last else 1)


def _floor(p: Any, top_k: int, top_p: float) -> Any:
    """Keeps tokens above a probability of 1 - top_p."""
    import torch

    kept = torch.where(p >= min(1 - top_p, float(p.max())), p, 0.0)
    return kept / kept.sum()


KEEP: Mutants = {
    "keeps everything": lambda p, k, limit: p.clone(),
    "ignores top_k": lambda p, k, limit: _keep(p, 0, limit),
    "ignores top_p": lambda p, k, limit: _keep(p, k, 1.0),
    "the least likely": lambda p, k, limit: _keep(p, k, limit, descending=False),
    "leaves out the token that reaches top_p": lambda p, k, limit: _keep(p, k, limit, more=-1),
    "one token more": lambda p, k, limit: _keep(p, k, limit, more=1),
    "does not sum to 1": lambda p, k, limit: _keep(p, k, limit, scale_last=False),
    "top_p of all, after top_k": lambda p, k, limit: _keep(p, k, limit, scale_first=False),
    "top_p before top_k": lambda p, k, limit: _keep(p, k, limit, limit_first=True),
    "a floor for top_p": _floor,
    "the kept ones in order": lambda p, k, limit: _keep(p, k, limit).sort(descending=True).values,
}


def _at_most(p: Any, u: float) -> int:
    return int((p.double().cumsum(dim=0) < u).sum())


def _torch_draw(p: Any, u: float) -> int:
    import torch

    return int(torch.multinomial(p, 1))


DRAW: Mutants = {
    "the likeliest": lambda p, u: int(p.argmax()),
    "the first that reaches u": _at_most,
    "one too far": lambda p, u: int((p.double().cumsum(dim=0) <= u).sum()) + 1,
    "the first likelier than u": lambda p, u: int((p > u).int().argmax()),
    "u of the vocabulary": lambda p, u: int(u * len(p)),
    "a draw of its own": _torch_draw,
    "from the other end": lambda p, u: (
        len(p) - 1 - int((p.flip(0).double().cumsum(dim=0) <= u).sum())
    ),
    "a tensor": lambda p, u: (p.double().cumsum(dim=0) <= u).sum(),
}


def _decode(
    model: Any,
    prompt: list[int],
    max_tokens: int,
    eos: int,
    *,
    seen: Callable[[list[int], list[int]], list[int]] = lambda prompt, new: prompt + new,
    pick: str = "argmax",
    stops: bool = True,
    with_eos: bool = True,
    with_prompt: bool = False,
    most: int = 0,
) -> list[int]:
    """A right loop, unless told otherwise."""
    new: list[int] = []
    while len(new) < max_tokens + most:
        token = int(getattr(model(seen(prompt, new)), pick)())
        if stops and token == eos:
            new += [token] if with_eos else []
            break
        new.append(token)
    return prompt + new if with_prompt else new


def _grow_the_prompt(model: Any, prompt: list[int], max_tokens: int, eos: int) -> list[int]:
    for _ in range(max_tokens):
        prompt.append(int(model(prompt).argmax()))
        if prompt[-1] == eos:
            break
    return prompt[-max_tokens:]


DECODE: Mutants = {
    "shows the prompt alone": lambda *given: _decode(*given, seen=lambda prompt, new: prompt),
    "shows the newest token alone": lambda *given: _decode(
        *given, seen=lambda prompt, new: (prompt + new)[-1:]
    ),
    "shows the new tokens alone": lambda *given: _decode(
        *given, seen=lambda prompt, new: new or prompt
    ),
    "goes on after eos": lambda *given: _decode(*given, stops=False),
    "leaves eos out": lambda *given: _decode(*given, with_eos=False),
    "returns the prompt too": lambda *given: _decode(*given, with_prompt=True),
    "one token too many": lambda *given: _decode(*given, most=1),
    "one token too few": lambda *given: _decode(*given, most=-1),
    "the least likely": lambda *given: _decode(*given, pick="argmin"),
    "writes into the prompt": _grow_the_prompt,
    "as a tuple": lambda *given: tuple(_decode(*given)),
}


def _ms(weights: float, kv: float, context: int, batch: int, bandwidth: float) -> float:
    return 1000 * (weights + batch * context * kv) / bandwidth


MS_PER_TOKEN: Mutants = {
    "weights only": lambda weights, kv, context, batch, bandwidth: 1000 * weights / bandwidth,
    "one request's cache": lambda weights, kv, context, batch, bandwidth: _ms(
        weights, kv, context, 1, bandwidth
    ),
    "weights for each request": lambda weights, kv, context, batch, bandwidth: (
        batch * _ms(weights, kv, context, 1, bandwidth)
    ),
    "divided by the batch": lambda weights, kv, context, batch, bandwidth: (
        _ms(weights, kv, context, batch, bandwidth) / batch
    ),
    "in seconds": lambda *given: _ms(*given) / 1000,
    "tokens per second": lambda *given: 1000 / _ms(*given),
    "the cache of one token": lambda weights, kv, context, batch, bandwidth: _ms(
        weights, kv, 1, batch, bandwidth
    ),
}
