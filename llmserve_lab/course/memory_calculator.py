"""A card on which one chooses model, GPU, dtypes, context and batch, and sees what fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llmserve_lab.widgets.page import cards, emit, inline, plain

Plan = Callable[..., Mapping[str, float]]

GIB = 2**30
PARTS = (("weights", "weights"), ("kv", "KV cache"), ("activation", "activation"))
FIELDS = ("model", "gpu", "weight_bits", "kv_bits", "context", "batch")
DTYPES = {16: "16 bits", 8: "8 bits", 4: "4 bits"}
CONTEXTS = tuple(2**power for power in range(9, 18))
BATCHES = tuple(2**power for power in range(11))
START: dict[str, Any] = {
    "model": "Llama-3.1-8B", "gpu": "A100", "weight_bits": 16, "kv_bits": 16, "context": 4096,
    "batch": 32,
}  # fmt: skip
QUESTION = "Does it fit, and how many requests would?"


def memory_calculator(
    plan: Plan, models: Sequence[str], gpus: Sequence[str], **choice: Any
) -> None:
    """Show the card; every choice calls `plan` again.

    Args:
        plan: called with model, gpu, weight_bits, kv_bits, context (tokens) and batch by name;
            returns bytes of `weights`, `kv`, `activation` and `usable`, and `largest_batch`.
        choice: what stands there at first, and without a widget: any of those names.

    Raises:
        ValueError: a name or a value that cannot be chosen, or `plan` leaves a number out.
    """
    fields = _fields(models, gpus)
    start = _checked({**START, "model": models[0], "gpu": gpus[0], **choice}, fields)
    body, text = _picture(plan, start)
    module = cards()
    card = None
    if module is not None:
        spec = {"kicker": "Memory calculator", "question": QUESTION, "fields": fields}
        card = module.MemoryCard(spec=spec, choice=start, picture=body)
        card.observe(lambda change: _redraw(plan, card, fields), "choice")
    emit(_folded(start, body), f"{QUESTION} (calculated)\n{text}", card)


def _fields(models: Sequence[str], gpus: Sequence[str]) -> list[dict[str, Any]]:
    bits = [{"value": value, "label": label} for value, label in DTYPES.items()]
    return [
        _field("model", "Model", "list", [{"value": n, "label": n} for n in models]),
        _field("gpu", "GPU", "list", [{"value": n, "label": n} for n in gpus]),
        _field("weight_bits", "Weights in", "list", bits),
        _field("kv_bits", "KV cache in", "list", bits),
        _field("context", "Context", "range", [_option(n, "tokens") for n in CONTEXTS]),
        _field("batch", "Batch", "range", [_option(n, "requests") for n in BATCHES]),
    ]


def _field(name: str, label: str, kind: str, options: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "label": label, "kind": kind, "options": options}


def _option(value: int, unit: str) -> dict[str, Any]:
    return {"value": value, "label": f"{value:,} {unit[:-1] if value == 1 else unit}"}


def _checked(choice: dict[str, Any], fields: list[dict[str, Any]]) -> dict[str, Any]:
    for name in choice:
        if name not in FIELDS:
            raise ValueError(f"There is no {name!r} to choose; there are {', '.join(FIELDS)}.")
    for field in fields:
        values = [option["value"] for option in field["options"]]
        if choice[field["name"]] not in values:
            listed = ", ".join(map(str, values))
            raise ValueError(f"{field['name']} must be one of {listed}.")
    return choice


def _redraw(plan: Plan, card: Any, fields: list[dict[str, Any]]) -> None:
    try:
        card.picture = _picture(plan, _checked(dict(card.choice), fields))[0]
    except Exception as error:  # the learner may have changed `plan`: say so on the card
        card.picture = f"<p>{inline(f'{type(error).__name__}: {error}')}</p>"


def _picture(plan: Plan, choice: Mapping[str, Any]) -> tuple[str, str]:
    """The stacked bar with its numbers (HTML), and the same in words."""
    numbers = _numbers(plan(**choice))
    usable, total = numbers["usable"], sum(numbers[name] for name, _ in PARTS)
    scale = max(usable, total)
    bars = "".join(
        f'<i class="is-{name}" style="width:{numbers[name] / scale:.2%}"></i>' for name, _ in PARTS
    )
    key = "".join(
        f'<span><i class="lsl-swatch is-{name}"></i>{label} {_gib(numbers[name])}</span>'
        for name, label in PARTS
    )
    sentence = _verdict(choice, numbers, total)
    text = ", ".join(f"{label} {_gib(numbers[name])}" for name, label in PARTS)
    return (
        f'<div class="lsl-stack"><div>{bars}</div><b style="left:{usable / scale:.2%}"></b></div>'
        f'<p class="lsl-legend">{key}</p><p class="lsl-verdict">{inline(sentence)}</p>',
        f"{text}. {plain(sentence)}",
    )


def _verdict(choice: Mapping[str, Any], numbers: Mapping[str, float], total: float) -> str:
    usable, most = numbers["usable"], int(numbers["largest_batch"])
    fits = "fits" if total <= usable else "does **not** fit"
    batch, context = choice["batch"], choice["context"]
    return (
        f"A batch of {batch:,} {fits}: it takes {_gib(total)}. Of the {choice['gpu']}'s memory "
        f"{_gib(usable)} can be used (the dashed line). Largest batch at {context:,} tokens each: "
        f"**{most:,}**."
    )


def _numbers(result: Mapping[str, float]) -> Mapping[str, float]:
    for name in (*(part for part, _ in PARTS), "usable", "largest_batch"):
        if name not in result:
            raise ValueError(f"plan(...) returned no {name!r}.")
    return result


def _gib(num_bytes: float) -> str:
    return (
        f"{num_bytes / GIB:,.3g} GiB" if num_bytes < 1000 * GIB else f"{num_bytes / GIB:,.0f} GiB"
    )


def _folded(choice: Mapping[str, Any], body: str) -> str:
    """The card without a widget."""
    chosen = ", ".join(f"{name}={value!r}" for name, value in choice.items())
    return (
        '<div class="lsl lsl-card lsl-memory"><p class="lsl-kicker">Memory calculator, calculated'
        f'</p><p class="lsl-question">{inline(QUESTION)}</p>{body}<p class="lsl-muted">No lists '
        f"here? Choose as in <code>memory_calculator(..., {inline(chosen)})</code>.</p></div>"
    )
