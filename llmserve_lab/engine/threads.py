"""With how many threads an engine computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llmserve_lab.engine.checks import require_count
from llmserve_lab.machine import usable_cores


def require_threads(num_threads: int | None) -> None:
    """Raise unless this process has cores for so many threads. None: as many as torch takes."""
    if num_threads is None:
        return
    require_count("num_threads", num_threads, at_least=1)
    cores = usable_cores()
    if num_threads > cores:
        raise ValueError(
            f"num_threads is {num_threads}, but this process may use {cores} of the machine's "
            f"cores, and more threads would wait for one another: give at most {cores}."
        )


@contextmanager
def computing_with(num_threads: int | None) -> Iterator[None]:
    """Within this block torch computes with so many threads, afterwards with as many as before. The
    number is the process's: what other Python threads compute meanwhile has as many. None: nothing
    changes. Our own loops for few rows run on one thread."""
    import torch

    before = torch.get_num_threads()
    if num_threads is None or num_threads == before:
        yield
        return
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
