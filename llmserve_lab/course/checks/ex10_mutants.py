"""Wrong answers to exercise 10, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmserve_lab.course.padded import left_padded

Mutants = dict[str, Callable[..., Any]]

KV_BYTES: Mutants = {
    "the keys alone": lambda cache: sum(layer.keys.nbytes for layer in cache.layers),
    "twice the keys": lambda cache: 2 * sum(layer.keys.nbytes for layer in cache.layers),
    "one layer": lambda cache: cache.layers[0].keys.nbytes + cache.layers[0].values.nbytes,
    "all layers like the first": lambda cache: (
        len(cache.layers) * (cache.layers[0].keys.nbytes + cache.layers[0].values.nbytes)
    ),
    "numbers in place of bytes": lambda cache: sum(
        layer.keys.numel() + layer.values.numel() for layer in cache.layers
    ),
    "always 4 bytes a number": lambda cache: sum(
        4 * (layer.keys.numel() + layer.values.numel()) for layer in cache.layers
    ),
    "one row of the batch": lambda cache: (
        sum(layer.keys[0].nbytes + layer.values[0].nbytes for layer in cache.layers) + 1
    ),
}


def _generate(
    model: Any,
    prompt: list[int],
    max_tokens: int,
    eos: int | None = None,
    *,
    row: int = -1,
    feed: Callable[[list[int], list[int]], list[int]] = lambda prompt, tokens: tokens[-1:],
    cached: bool = True,
) -> list[int]:
    """A right answer, unless it takes another row, feeds other tokens or leaves the cache out."""
    import torch

    output = model(torch.tensor([prompt]))
    tokens = [int(output.logits[0, row].argmax())]
    while len(tokens) < max_tokens and tokens[-1] != eos:
        past = output.past_key_values if cached else None
        output = model(torch.tensor([feed(prompt, tokens)]), past)
        tokens.append(int(output.logits[0, row].argmax()))
    return tokens


def _with_prompt(prompt: list[int], tokens: list[int]) -> list[int]:
    return [*prompt, *tokens]


def _never_renewed(model: Any, prompt: list[int], max_tokens: int) -> list[int]:
    """Feeds the last token of the prompt in every call."""
    return _generate(model, prompt, max_tokens, feed=lambda prompt, tokens: prompt[-1:])


GENERATE: Mutants = {
    "feeds the whole sequence again": lambda *given: _generate(*given, feed=_with_prompt),
    "feeds the whole sequence again, without the cache": lambda *given: _generate(
        *given, feed=_with_prompt, cached=False
    ),
    "forgets to pass the cache": lambda *given: _generate(*given, cached=False),
    "all new tokens again": lambda *given: _generate(*given, feed=lambda prompt, tokens: tokens),
    "feeds the last prompt token": _never_renewed,
    "the first row of the logits": lambda *given: _generate(*given, row=0),
    "the row before the last": lambda model, prompt, max_tokens: _generate(
        model, prompt, max_tokens, row=-min(2, len(prompt))
    ),
    "one token too many": lambda model, prompt, max_tokens: [
        *_generate(model, prompt, max_tokens),
        0,
    ],
    "leaves the first token out": lambda *given: _generate(*given)[1:],
    "returns the prompt too": lambda model, prompt, max_tokens: [
        *prompt,
        *_generate(model, prompt, max_tokens),
    ],
}


def _without_eos(*given: Any) -> list[int]:
    tokens = _generate(*given)
    return tokens[:-1] if tokens[-1] == given[-1] else tokens


def _one_late(model: Any, prompt: list[int], max_tokens: int, eos: int) -> list[int]:
    """Looks at the token before the newest."""
    import torch

    output = model(torch.tensor([prompt]))
    tokens = [int(output.logits[0, -1].argmax())]
    while len(tokens) < max_tokens and eos not in tokens[:-1]:
        output = model(torch.tensor([tokens[-1:]]), output.past_key_values)
        tokens.append(int(output.logits[0, -1].argmax()))
    return tokens


def _ends_in_prompt(model: Any, prompt: list[int], max_tokens: int, eos: int) -> list[int]:
    tokens = _generate(model, prompt, max_tokens, eos)
    return tokens[:1] if eos in prompt else tokens


def _not_at_first(model: Any, prompt: list[int], max_tokens: int, eos: int) -> list[int]:
    """Begins to look for the end after the first call of the loop."""
    tokens = _generate(model, prompt, max_tokens, eos)
    return tokens + [eos] * (tokens == [eos])


UNTIL: Mutants = {
    "never stops at eos": lambda model, prompt, max_tokens, eos: _generate(
        model, prompt, max_tokens
    ),
    "stops one token late": _one_late,
    "leaves eos out": _without_eos,
    "takes eos in the prompt for the end": _ends_in_prompt,
    "does not look at the first token": _not_at_first,
    "one token short of the limit": lambda model, prompt, max_tokens, eos: _generate(
        model, prompt, max_tokens - 1, eos
    ),
    "feeds the whole sequence again": lambda *given: _generate(*given, feed=_with_prompt),
}


def _right_padded(prompts: list[list[int]], pad: int) -> dict[str, Any]:
    import torch

    longest = max(map(len, prompts))
    rows = [(prompt, longest - len(prompt)) for prompt in prompts]
    return {
        "input_ids": torch.tensor([[*prompt, *[pad] * gap] for prompt, gap in rows]),
        "attention_mask": torch.tensor([[1] * len(prompt) + [0] * gap for prompt, gap in rows]),
        "position_ids": torch.tensor([[*range(len(prompt))] + [0] * gap for prompt, gap in rows]),
    }


def _edge_positions(prompts: list[list[int]], pad: int) -> dict[str, Any]:
    import torch

    batch = left_padded(prompts, pad)
    rows, columns = batch["input_ids"].shape
    return batch | {"position_ids": torch.arange(columns).repeat(rows, 1)}


def _from_one(prompts: list[list[int]], pad: int) -> dict[str, Any]:
    batch = left_padded(prompts, pad)
    return batch | {"position_ids": batch["attention_mask"].cumsum(1)}


def _negative(prompts: list[list[int]], pad: int) -> dict[str, Any]:
    batch = left_padded(prompts, pad)
    return batch | {"position_ids": batch["attention_mask"].cumsum(1) - 1}


def _inverted(prompts: list[list[int]], pad: int) -> dict[str, Any]:
    batch = left_padded(prompts, pad)
    return batch | {"attention_mask": 1 - batch["attention_mask"]}


PADDED: Mutants = {
    "pads on the right": _right_padded,
    "positions count the padding": _edge_positions,
    "positions begin at 1": _from_one,
    "positions below 0 at padding": _negative,
    "1 where the padding is": _inverted,
    "no mask at all": lambda prompts, pad: {
        name: tensor
        for name, tensor in left_padded(prompts, pad).items()
        if name != "attention_mask"
    },
    "pads with 0, whatever pad is": lambda prompts, pad: left_padded(prompts, 0 if pad else 1),
}


def _batch(
    model: Any,
    prompts: list[list[int]],
    max_tokens: int,
    pad: int,
    eos: int,
    *,
    padded: Callable[..., Any] = left_padded,
    masked: bool = True,
    position: Callable[[Any, int], Any] = lambda mask, columns: mask.sum(1, keepdim=True) - 1,
    until: Callable[..., bool] = all,
    cut: bool = True,
) -> list[list[int]]:
    """A right answer, unless one of its parts is another."""
    import torch

    batch = padded(prompts, pad)
    mask = batch["attention_mask"] if masked else torch.ones_like(batch["attention_mask"])
    output = model(batch["input_ids"], None, mask, batch["position_ids"])
    columns = [output.logits[:, -1].argmax(-1, keepdim=True)]
    ended = columns[0] == eos
    while len(columns) < max_tokens and not until(ended.flatten().tolist()):
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        where = position(mask, mask.shape[1])
        output = model(columns[-1], output.past_key_values, mask, where)
        columns.append(output.logits[:, -1].argmax(-1, keepdim=True))
        ended = ended | (columns[-1] == eos)
    rows: list[list[int]] = torch.cat(columns, dim=1).tolist()
    return [row[: row.index(eos) + 1] if cut and eos in row else row for row in rows]


def _edge(mask: Any, columns: int) -> Any:
    return mask.sum(1, keepdim=True) * 0 + columns - 1


BATCH: Mutants = {
    "no attention mask": lambda *given: _batch(*given, masked=False),
    "new positions count the padding": lambda *given: _batch(*given, position=_edge),
    "all positions count the padding": lambda *given: _batch(
        *given, padded=_edge_positions, position=_edge
    ),
    "new positions begin one too high": lambda *given: _batch(
        *given, position=lambda mask, columns: mask.sum(1, keepdim=True)
    ),
    "pads on the right": lambda *given: _batch(*given, padded=_right_padded),
    "stops when the first row ends": lambda *given: _batch(*given, until=any),
    "never stops before the limit": lambda *given: _batch(*given, until=lambda ended: False),
    "keeps what follows eos": lambda *given: _batch(*given, cut=False),
    "one row after another, unpadded": lambda model, prompts, max_tokens, pad, eos: [
        _generate(model, prompt, max_tokens, pad) for prompt in prompts
    ],
}
