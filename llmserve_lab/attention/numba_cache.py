"""How the CPU kernels are compiled, and where the result is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import cfunc, njit


def kernel(function: Callable[..., Any]) -> Any:
    """Compile at the first call, and keep the result for later processes: beside the module, in the
    user's cache folder or in NUMBA_CACHE_DIR. Where none of them can be written, as in a read-only
    container, every process compiles for itself."""
    return _compiled(njit, function, error_model="numpy", fastmath=True, nogil=True)


def exact_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, with the float operations as they are written: each rounds as in torch."""
    return _compiled(njit, function, error_model="numpy", nogil=True)


def c_function(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile, when its module is imported, a function that C code calls by its `address`."""
    return lambda function: _compiled(partial(cfunc, signature), function)


def _compiled(compiler: Callable[..., Any], function: Callable[..., Any], **options: Any) -> Any:
    try:
        return compiler(cache=True, **options)(function)
    except (RuntimeError, OSError):  # Numba looks for a folder at once, and found none
        return compiler(**options)(function)
