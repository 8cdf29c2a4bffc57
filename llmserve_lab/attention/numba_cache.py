"""How the CPU kernels are compiled, and where the result is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(function: Callable[..., Any]) -> Any:
    """Compile at the first call, and keep the result for later processes: beside the module, in the
    user's cache folder or in NUMBA_CACHE_DIR. Where none of them can be written, as in a read-only
    container, every process compiles for itself."""
    return _compiled(function, {"fastmath": True})


def exact_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, with the float operations as they are written: each rounds as in torch."""
    return _compiled(function, {"error_model": "numpy"})


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        return njit(cache=True, nogil=True, **options)(function)
    except (RuntimeError, OSError):  # Numba looks for a folder at once, and found none
        return njit(nogil=True, **options)(function)
