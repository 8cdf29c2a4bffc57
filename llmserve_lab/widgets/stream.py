"""`live`: text, step times and KV blocks, drawn while the engine works."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from llmserve_lab.widgets.live_picture import RequestText, picture, summary
from llmserve_lab.widgets.page import page

SECONDS_BETWEEN_PICTURES = 0.1


@dataclass(slots=True)
class LiveResult:
    """What `live` leaves behind: each request's text, in order, and what it took."""

    texts: list[str] = field(default_factory=list)
    num_tokens: int = 0
    seconds: float = 0.0
    num_steps: int = 0

    def __repr__(self) -> str:
        rate = self.num_tokens / self.seconds if self.seconds else 0.0
        requests = "1 request" if len(self.texts) == 1 else f"{len(self.texts)} requests"
        return (
            f"{requests}, {self.num_tokens} tokens in {self.num_steps} steps "
            f"and {self.seconds:.2f} s ({rate:.0f} tokens/s)"
        )


def live(llm: Any, prompts: Any, params: Any = None) -> LiveResult:
    """Generate with `llm`, drawing each token, step and KV block as it comes.

    Interrupting the cell closes the stream, which aborts what is unfinished; what was generated
    up to then stays drawn.

    Args:
        llm: an engine made with `LLM(..., trace=True)`.
        prompts, params: as for `llm.generate`.

    Raises:
        ValueError: the engine keeps no trace, or what `llm.stream` raises.
    """
    view = _View(llm, _texts(prompts))
    canvas = _Canvas()
    started = time.perf_counter()
    with closing(llm.stream(prompts, params)) as events:
        try:
            for event in events:
                view.take(event)
                canvas.draw(view.render)
        finally:
            canvas.draw(view.render, now=True)
    return view.result(time.perf_counter() - started)


def _texts(prompts: Any) -> list[str]:
    """Each prompt as text; one given as token ids is told by its length."""
    listed = [prompts] if isinstance(prompts, (str, dict)) else list(prompts)
    return [
        prompt if isinstance(prompt, str) else f"[{len(prompt['prompt_token_ids'])} tokens] "
        for prompt in listed
    ]


class _View:
    """What has come out of the stream so far, and the steps that it took."""

    def __init__(self, llm: Any, prompts: list[str]) -> None:
        self._trace = llm.trace
        self._first_step = len(self._trace)
        self._prompts = prompts
        self._prompt_numbers: dict[str, int] = {}
        self._requests: dict[str, RequestText] = {}

    def take(self, event: Any) -> None:
        if event.request_id not in self._requests:
            self._requests[event.request_id] = self._opened(event.request_id)
        request = self._requests[event.request_id]
        if event.token_id is not None:
            request.tokens.append(event.text)
        request.finish_reason = event.finish_reason or request.finish_reason

    def _opened(self, request_id: str) -> RequestText:
        """Requests begin in the prompts' order; "3.0" and "3.1" are continuations of one prompt."""
        group = request_id.partition(".")[0]
        number = self._prompt_numbers.setdefault(group, len(self._prompt_numbers))
        return RequestText(request_id, self._prompts[min(number, len(self._prompts) - 1)])

    def render(self) -> tuple[str, str]:
        requests, steps = list(self._requests.values()), self._trace.steps[self._first_step :]
        return picture(requests, steps), summary(requests, steps)

    def result(self, seconds: float) -> LiveResult:
        requests = list(self._requests.values())
        return LiveResult(
            texts=[request.text for request in requests],
            num_tokens=sum(len(request.tokens) for request in requests),
            seconds=seconds,
            num_steps=len(self._trace) - self._first_step,
        )


class _Canvas:
    """One output that is redrawn in place, at most ten times a second."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._drawn = 0.0

    def draw(self, make: Callable[[], tuple[str, str]], now: bool = False) -> None:
        if not now and time.perf_counter() - self._drawn < SECONDS_BETWEEN_PICTURES:
            return
        self._drawn = time.perf_counter()
        body, text = make()
        data = {"text/html": page(body), "text/plain": text}
        try:
            from IPython.display import display
        except ImportError:
            if now:
                print(text)
            return
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
