"""The live picture of a running engine, as HTML: text, step times, KV blocks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

from llmserve_lab.engine.trace import StepSnapshot
from llmserve_lab.plots.theme import (
    NEUTRAL,
    SHARED,
    WASTE,
    owner_colour,
)

MAX_TEXTS = 6  # requests whose text is written out
MAX_TOKENS = 220  # the newest of a request's tokens
MAX_PROMPT = 240  # characters
MAX_BARS = 240  # the newest steps
MAX_BLOCKS = 192


@dataclass(slots=True)
class RequestText:
    """One request's text so far, token by token."""

    request_id: str
    prompt: str
    tokens: list[str] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.tokens)


def picture(requests: Sequence[RequestText], steps: Sequence[StepSnapshot]) -> str:
    """The whole picture; empty parts are left out until there is something to draw."""
    names = {request.request_id: index for index, request in enumerate(requests)}
    parts = [_stats(requests, steps)]
    texts = [_request(index, request) for index, request in enumerate(requests[:MAX_TEXTS])]
    parts.append(f'<div class="lsl-requests">{"".join(texts)}</div>')
    if len(requests) > MAX_TEXTS:
        more = len(requests) - MAX_TEXTS
        parts.append(f'<p class="lsl-muted">and {more} more requests</p>')
    if steps:
        parts += [_step_bars(steps), _blocks(steps[-1], names)]
    label = html.escape(summary(requests, steps), quote=True)
    return f'<div class="lsl lsl-live" role="img" aria-label="{label}">{"".join(parts)}</div>'


def summary(requests: Sequence[RequestText], steps: Sequence[StepSnapshot]) -> str:
    """The picture in words."""
    if not steps:
        return "The engine has not run a step yet."
    last = steps[-1]
    texts = " ".join(f"[{r.request_id}] {r.prompt}{r.text}" for r in requests[:MAX_TEXTS])
    return (
        f"{len(steps)} steps, {_num_tokens(requests)} tokens, {len(last.running)} running, "
        f"{len(last.waiting)} waiting, {last.num_blocks_used} of {len(last.block_refs)} KV blocks "
        f"in use. {texts}"
    )


def _num_tokens(requests: Sequence[RequestText]) -> int:
    return sum(len(request.tokens) for request in requests)


def _stats(requests: Sequence[RequestText], steps: Sequence[StepSnapshot]) -> str:
    if not steps:
        return '<p class="lsl-stats">The engine has not run a step yet.</p>'
    last = steps[-1]
    seconds = sum(step.seconds for step in steps)
    tokens = _num_tokens(requests)
    shown = (
        ("step", f"{len(steps)}"),
        ("running", f"{len(last.running)}"),
        ("waiting", f"{len(last.waiting)}"),
        ("new tokens", f"{tokens}"),
        ("tokens/s", f"{tokens / seconds:.0f}" if seconds else "0"),
    )
    return (
        '<p class="lsl-stats">' + "".join(f"<span>{n} <b>{v}</b></span>" for n, v in shown) + "</p>"
    )


def _request(index: int, request: RequestText) -> str:
    shown = request.tokens[-MAX_TOKENS:]
    left_out = "… " if len(shown) < len(request.tokens) else ""
    prompt = request.prompt
    if len(prompt) > MAX_PROMPT:
        prompt = prompt[:MAX_PROMPT] + "…"
    tokens = "".join(f'<b class="lsl-token">{html.escape(text)}</b>' for text in shown if text)
    reason = html.escape(request.finish_reason or "")
    end = f' <span class="lsl-badge">{reason}</span>' if reason else ""
    owner = f'<span class="lsl-owner" style="background:{owner_colour(index)}">{index}</span>'
    prompt = f'<span class="lsl-prompt">{html.escape(prompt)}</span>'
    text = f'<div class="lsl-text">{prompt}{left_out}{tokens}{end}</div>'
    text = f'<div class="lsl-scroll">{text}</div>'  # which keeps the newest token in sight
    return f'<div class="lsl-request">{owner}{text}</div>'


def _step_bars(steps: Sequence[StepSnapshot]) -> str:
    shown = steps[-MAX_BARS:]
    longest = max(step.seconds for step in shown) or 1e-9
    bars = "".join(_bar(step, longest) for step in shown)
    key = (
        '<i class="lsl-swatch is-prefill"></i>prefill<i class="lsl-swatch"></i>decode; '
        f"the tallest bar is {longest * 1e3:.3g} ms"
    )
    return (
        f'<p class="lsl-caption">How long did each step take? <span>{key}</span></p>'
        f'<div class="lsl-steps" aria-hidden="true">{bars}</div>'
    )


def _bar(step: StepSnapshot, longest: float) -> str:
    prefill = any(item.num_prompt_tokens for item in step.scheduled)
    kind = ' class="is-prefill"' if prefill else ""
    return f'<i{kind} style="height:{max(0.02, step.seconds / longest):.0%}"></i>'


def _blocks(step: StepSnapshot, names: dict[str, int]) -> str:
    owners = _owners(step)
    total = len(step.block_refs)
    highest = max(owners, default=0)
    count = min(total, MAX_BLOCKS, max(48, highest + 1))
    cells = "".join(_cell(block, step, owners, names) for block in range(count))
    rest = f", {total - count} more not drawn" if total > count else ""
    return (
        '<p class="lsl-caption">Which request owns which KV block? '
        f"<span>{len(owners)} of {total} in use, {step.block_size} tokens each"
        f'{rest}</span></p><div class="lsl-grid" aria-hidden="true">{cells}</div>'
    )


def _owners(step: StepSnapshot) -> dict[int, tuple[str, float]]:
    """Physical block -> its request and the share of its slots that is written.

    Requests that ended in this step count: they held their blocks while it ran.
    """
    owners: dict[int, tuple[str, float]] = {}
    for view in (*step.running, *step.finished):
        for logical, block in enumerate(view.block_table):
            written = view.num_computed_tokens - logical * step.block_size
            owners[block] = (view.request_id, max(0.0, min(1.0, written / step.block_size)))
    return owners


def _cell(
    block: int, step: StepSnapshot, owners: dict[int, tuple[str, float]], names: dict[str, int]
) -> str:
    if block not in owners:
        return "<i></i>"
    request_id, share = owners[block]
    index = names.get(request_id)
    shared = step.block_refs[block] > 1
    colour = SHARED.colour if shared else NEUTRAL if index is None else owner_colour(index)
    label = f"{step.block_refs[block]}x" if shared else "" if index is None else str(index)
    waste = f"repeating-linear-gradient(135deg,{WASTE.colour}66 0 1.5px,#0000 1.5px 5px)"
    stop = f"{share:.0%}"
    fill = f"linear-gradient(90deg,{colour} {stop},#0000 {stop}),{waste}"
    ink = "" if share >= 0.5 else ";color:inherit"  # the label stands on the hatched part
    return f'<i class="is-owned" style="background:{fill}{ink}">{label}</i>'
