"""One sentence of the learner's own: why did that happen?"""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.progress import open_store
from llmserve_lab.widgets.page import cards, emit, inline, plain

SECTION = "reasons"


def because(key: str, prompt: str, explain: str = "", text: str | None = None) -> None:
    """Ask for one sentence and keep it; then unfold the explanation.

    Args:
        key: names the sentence, as in "01.throughput".
        prompt: the question, such as "Why is the step not 32 times longer?"
        explain: the course's own explanation: `code` and **strong** are understood.
        text: the sentence, where there is no box to write it in.

    Raises:
        TypeError, ValueError: key or prompt is empty, or an argument is no text.
    """
    for name, value in (("key", key), ("prompt", prompt)):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"because() needs a {name}, a text that is not empty.")
    for name, value in (("explain", explain), ("text", text or "")):
        if not isinstance(value, str):
            raise TypeError(f"{name}= is a text, not {type(value).__name__}.")
    if text and text.strip():
        _keep(key, prompt, text)
    saved = (open_store().get(SECTION, key) or {}).get("text", "")
    body, plain_text = _fallback(key, prompt, explain, saved)
    emit(body, plain_text, _card(key, prompt, explain, saved))


def _keep(key: str, prompt: str, text: str) -> None:
    open_store().put(SECTION, key, {"prompt": prompt, "text": text.strip()})


def _card(key: str, prompt: str, explain: str, saved: str) -> Any:
    module = cards()
    if module is None:
        return None
    spec = {"prompt": inline(prompt), "explain": inline(explain)}
    card = module.BecauseBox(spec=spec, text=saved, saved=saved, opened=bool(saved and explain))

    def on_text(change: dict[str, Any]) -> None:
        _keep(key, prompt, change["new"])
        card.saved = change["new"]

    card.observe(on_text, "text")
    return card


def _fallback(key: str, prompt: str, explain: str, saved: str) -> tuple[str, str]:
    said = f"because {saved}" if saved else ""
    how = f"because({key!r}, ..., text='...')"
    folded = f"<details><summary>The explanation</summary><p>{inline(explain)}</p></details>"
    body = (
        '<div class="lsl lsl-card lsl-why"><p class="lsl-kicker">Because</p>'
        f'<p class="lsl-question">{inline(prompt)}</p><p>{inline(said)}</p>'
        f'<p class="lsl-muted">No box here? Answer with <code>{inline(how)}</code>.</p>'
        f"{folded if explain else ''}</div>"
    )
    return body, f"Why: {plain(prompt)} {said}".strip()
