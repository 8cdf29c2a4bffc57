"""The threads that torch computes with on a CPU, lent to a compiled loop.

Between two operators they wait busily for the next one. Threads of our own would have to share the
cores with them, so the loop goes to the same team, as a C compiler would send it (GNU OpenMP:
`GOMP_parallel`). Where torch brings another runtime (macOS, Windows), there is no team.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

START, OWN_NUMBER, SIZE = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"
NO_FLAGS = 0


@cache
def runtime() -> ctypes.CDLL | None:
    """The library whose functions torch itself starts its threads with."""
    import torch

    try:  # a look-up goes on in the libraries that torch was linked with
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    except OSError:
        return None
    if not all(hasattr(library, name) for name in (START, OWN_NUMBER, SIZE)):
        return None
    start = getattr(library, START)
    start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    start.restype = None
    return library


def threads() -> int:
    """How many threads `run` can use now: torch's number, or 1 without a team."""
    import torch

    number = torch.get_num_threads()
    return number if number > 1 and runtime() is not None else 1


def address_of(name: str) -> int:
    """Where the runtime's function of this name lies."""
    return ctypes.cast(getattr(runtime(), name), ctypes.c_void_p).value or 0


def run(function: int, pointers: list[int], number: int) -> None:
    """Call the C function at an address, void(void **), with these pointers in up to `number`
    threads, and wait for all of them."""
    library = runtime()
    assert library is not None
    data = (ctypes.c_void_p * len(pointers))(*pointers)
    getattr(library, START)(function, data, number, NO_FLAGS)
