"""One BLAS thread while simulated cores run in this process.

BLAS splits a product differently for different numbers of threads, and a different split is a
different order of additions: without this, the last bit of a matmul would depend on the machine's
processors and on OPENBLAS_NUM_THREADS, and differ between the Ray host and this process.

Mostly the limit is the whole process's, so a NumPy product that other threads of the caller make
meanwhile is slower, not different in kind. OpenBLAS built on OpenMP keeps a limit per thread.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


class OneBlasThread:
    """A context for any number of threads, in which products are computed by one BLAS thread.

    The last one out restores. Counting matters: if each launch restored what it found, a launch
    that ends would give threads back while another is still running.
    """

    def __init__(self) -> None:
        libraries = [
            lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"
        ]
        self._shared = [lib for lib in libraries if not _per_thread(lib)]
        self._own = [lib for lib in libraries if _per_thread(lib)]
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[int] = []
        self._thread = threading.local()

    def __enter__(self) -> None:
        if self._own:
            before = [lib.num_threads for lib in self._own]
            self._thread.before = [*getattr(self._thread, "before", ()), before]
            _set(self._own, [1] * len(before))
        with self._lock:
            if self._inside == 0:
                self._before = [lib.num_threads for lib in self._shared]
            self._inside += 1
            _set(self._shared, [1] * len(self._shared))

    def __exit__(self, *_: object) -> None:
        if self._own:
            _set(self._own, self._thread.before.pop())
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _set(self._shared, self._before)


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
def one_blas_thread() -> OneBlasThread:
    """The limiter of this process."""
    return OneBlasThread()
