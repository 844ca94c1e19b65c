"""One BLAS thread while simulated cores run in this process.

BLAS splits a product differently for different numbers of threads, and a different split is a
different order of additions: without this, the last bit of a matmul would depend on the machine's
processors and on OPENBLAS_NUM_THREADS, and differ between the Ray host and this process.

Mostly the limit is the whole process's, so a NumPy product that other threads of the caller make
meanwhile is slower, not different in kind. OpenBLAS built on OpenMP keeps a limit per thread.
"""

from __future__ import annotations

import weakref
from functools import lru_cache
from threading import get_ident
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from nki_dist.forks import Shared


class OneBlasThread(Shared):
    """Limits the BLAS libraries of this process to one thread while somebody wants that.

    The last one out restores. Keeping count matters: if each launch restored what it found, a
    launch that ends would give threads back while another is still running.
    """

    def __init__(self) -> None:
        libraries = [
            lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"
        ]
        self._shared = [lib for lib in libraries if not _per_thread(lib)]
        self._per_thread_limits = [lib for lib in libraries if _per_thread(lib)]
        self._uses: list[weakref.ref[Use]] = []
        self._limited = False
        self._before: list[int] = []
        super().__init__()

    def _forked(self) -> None:
        """Uses of other threads are over; if none is left, the next one restores at its end."""
        super()._forked()
        self._uses = [one for one in self._uses if (u := one()) and u.thread == get_ident()]

    def use(self) -> Use:
        """A context in which products are computed by one BLAS thread, for any one thread."""
        return Use(self)

    def here(self) -> None:
        """Limit this thread for good, where a library has a limit for each thread."""
        _set(self._per_thread_limits, [1] * len(self._per_thread_limits))

    def enter(self, use: Use) -> None:
        if self._per_thread_limits:
            use.before = [lib.num_threads for lib in self._per_thread_limits]
            _set(self._per_thread_limits, [1] * len(self._per_thread_limits))
        with self._lock:
            if not self._limited:
                self._before = [lib.num_threads for lib in self._shared]
                self._limited = True
            self._uses.append(weakref.ref(use))
            _set(self._shared, [1] * len(self._shared))

    def leave(self, use: Use) -> None:
        if use.before is not None:
            before, use.before = use.before, None
            _set(self._per_thread_limits, before)
        with self._lock:
            self._uses = [one for one in self._uses if one() not in (None, use)]
            if self._limited and not self._uses:
                _set(self._shared, self._before)
                self._limited = False


class Use:
    """One use of the limit. It ends with its context.

    Ctrl-C may fall between a context and its end, so that Python never comes to `__exit__`. Then
    the frame goes in the end, and this with it: the next use that ends finds that nobody is left.
    """

    def __init__(self, limit: OneBlasThread) -> None:
        self._limit = limit
        self.thread = get_ident()
        self.before: list[int] | None = None  # of libraries that have a limit for each thread

    def __enter__(self) -> None:
        self._limit.enter(self)

    def __exit__(self, *_: object) -> None:
        self._limit.leave(self)


def _per_thread(library: Any) -> bool:
    openmp = getattr(library, "threading_layer", None) == "openmp"
    return bool(library.internal_api == "openblas" and openmp)


def _set(libraries: list[Any], counts: list[int]) -> None:
    for library, count in zip(libraries, counts, strict=True):
        library.set_num_threads(count)
        if library.num_threads != count and hasattr(library, "clear_controlling_thread"):
            # Newer threadpoolctl ignores all threads but the first one that ever set a limit.
            library.clear_controlling_thread(force=True)
            library.set_num_threads(count)


@lru_cache(maxsize=1)
def limit() -> OneBlasThread:
    """That of this process."""
    return OneBlasThread()


def one_blas_thread() -> Use:
    """A context in which products are computed by one BLAS thread."""
    return limit().use()


@lru_cache(maxsize=1)
def kernels() -> str:
    """The BLAS libraries of this process, with the kernels that they chose for its processor."""
    found = {
        f"{lib.internal_api} {lib.version} ({getattr(lib, 'architecture', None) or 'unknown'})"
        for lib in ThreadpoolController().lib_controllers
        if lib.user_api == "blas"
    }
    return ", ".join(sorted(found)) or "a BLAS that doesn't say which it is"


@lru_cache(maxsize=1)
def features() -> str:
    """For which processors' features NumPy has code besides its common one, and uses it here.

    NumPy has these lists for its own tests only; of one without them nothing is known, and so no
    difference.
    """
    core = getattr(np, "_core", None) or getattr(np, "core", None)
    math = getattr(core, "_multiarray_umath", None)
    has = getattr(math, "__cpu_features__", {})
    used = [name for name in getattr(math, "__cpu_dispatch__", ()) if has.get(name)]
    return f"NumPy for {' '.join(used) or 'any processor'}"
