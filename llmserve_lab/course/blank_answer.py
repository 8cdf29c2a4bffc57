"""A blank answer, met in a notebook: one sentence in place of the calls that led to it."""

from __future__ import annotations

import re
import sys
import textwrap
from types import TracebackType
from typing import Any

WIDEST = 72  # characters: a narrow page breaks longer lines anywhere
BLANK = re.compile(r"exercise (\d\d\.\d+): (.+)", re.DOTALL)


def tell_blanks(shell: Any = None) -> None:
    """In IPython, show an exercise's NotImplementedError as one sentence, however deep in the
    engine the blank was called. Any other error is shown as ever; without IPython nothing changes.
    """
    ipython = sys.modules.get("IPython")
    shell = shell or (ipython and ipython.get_ipython())
    if shell is not None:
        shell.set_custom_exc((NotImplementedError,), _show)


def _show(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    frames: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    if found := BLANK.fullmatch(str(error)):
        key, task = found.groups()
        told = textwrap.fill(f"Exercise {key} is still blank: {task}.", WIDEST)
        text = f'{told}\nA hint: hint("{key}")'
        error._render_traceback_ = lambda: [text]  # type: ignore[attr-defined]
    shell.showtraceback((kind, error, frames), tb_offset=tb_offset, running_compiled_code=True)
