"""What outlives a launch: compiled kernels, and the implicit worlds of `kernel[n](...)`.

A compiled kernel is found again by a key that covers everything that shaped it (code, globals,
closures, compile-time arguments, tensor signatures, platform, environment); where such a key can't
be given, the kernel is traced anew every time.
"""

from __future__ import annotations

import atexit
import itertools
import math
import os
import sys
import uuid
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from nki_dist.arch import Arch
from nki_dist.checks import Checks
from nki_dist.compiler.compile import compile_kernel
from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.compiler.locations import name_of
from nki_dist.errors import NkiWarning
from nki_dist.forks import Shared, once
from nki_dist.launcher.binding import BoundArguments, collect_outputs
from nki_dist.launcher.cachekey import Fingerprinter, Unprovable
from nki_dist.runtime.settings import (
    HOST_VARIABLE,
    OPTIONS_VARIABLE,
    PRECISE_VARIABLE,
    default_host,
    idle_seconds,
    precise_fp,
)

CACHED_KERNELS = 256
TASK_IDLE = 60.0  # seconds after which processes that a task of Ray has started end
READ_WHEN_TRACING = (PRECISE_VARIABLE, "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE")


class CompileCache(Shared):
    """Compiled kernels by key; for any number of threads, which trace independently."""

    def __init__(self) -> None:
        super().__init__()
        self._fingerprinter = Fingerprinter()
        self._cache: OrderedDict[Any, tuple[str, Compiled]] = OrderedDict()
        # Worlds know kernels by cache and number, and threads that trace count together: `next` of
        # a count is one step for them.
        self._name = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()

    def _forked(self) -> None:
        super()._forked()
        self._fingerprinter = Fingerprinter()

    def get(
        self,
        function: Callable[..., Any],
        bound: BoundArguments,
        arch: Arch,
        grid: Grid,
        checks: Checks,
    ) -> tuple[str, Compiled]:
        """What names the compiled kernel in this process, and the kernel."""
        values = (bound.args, tuple(bound.kwargs.items()))
        read = map(os.environ.get, READ_WHEN_TRACING)
        setting = (arch.instance, grid, checks, *read)
        print_key = self.fingerprint(function, values)
        key = None if print_key is None else (print_key, setting)
        with self._lock:
            cached = self._cache.get(key)
            if cached is not None and _fresh(cached[1]):
                self._cache.move_to_end(key)
                return cached
        compiled = compile_kernel(
            function,
            name_of(function),
            arch,
            grid,
            bound.bind,
            bound.signatures,
            collect_outputs(function),
            checks,
            precise_fp(),
        )
        entry = (f"{self._name}-{next(self._numbers)}", compiled)
        # A kernel that changes what it reads has another key now, and must not be found again.
        if key is not None and self.fingerprint(function, values) == print_key:
            with self._lock:
                self._cache[key] = entry
                while len(self._cache) > CACHED_KERNELS:
                    self._cache.popitem(last=False)
        return entry

    def fingerprint(self, function: Callable[..., Any], values: Any) -> Any:
        """Equal for what gives the same trace; None where that can't be shown."""
        with self._lock:
            try:
                return self._fingerprinter.fingerprint(function, values)
            except Unprovable:
                return None


def _fresh(compiled: Compiled) -> bool:
    """Whether the files that were read while tracing are still the same."""
    for path, modified, size in compiled.files:
        try:
            status = os.stat(path)
        except OSError:
            return False
        if (status.st_mtime, status.st_size) != (modified, size):
            return False
    return True


class Session(Shared):
    """The state of this process: one compile cache and the warm implicit worlds.

    Attributes:
        process: number of the process that made it; a fork has another.
        observer: told of every launch (world, Launch, LaunchResult) while its results are still in
            the stacks; for commands that report on a program they run.
        places: warm worlds and grids of launches, by all that decides which.
        checker: takes the place of launches where a program is only checked (launcher.checking).
    """

    def __init__(self) -> None:
        super().__init__()
        self.cache = CompileCache()
        self.observer: Callable[[Any, Any, Any], object] | None = None
        self.checker: Any = None
        self.process = os.getpid()
        self._counts: Counter[Any] = Counter()
        self._worlds: dict[Any, Any] = {}
        self.places: dict[Any, tuple[Any, Grid]] = {}
        self._warned: dict[Any, Any] = {}  # what the filters of `warnings` know to be old

    def world(self, key: Any, make: Callable[[], Any]) -> Any:
        """The warm world that is kept under a key, made where there is none or it was closed."""
        with self._lock:
            world = self._worlds.get(key)
            if world is None or world.closed:
                world = self._worlds[key] = make()
            return world

    def next_number(self, *what: Any) -> int:
        """0, 1, 2, ... for each `what` of this process."""
        with self._lock:
            self._counts[what] += 1
            return self._counts[what] - 1

    def warn(self, warning: NkiWarning) -> None:
        """Give a warning at the kernel's line: by default once for each line and text."""
        file, _, line = (warning.location or "").rpartition(":")
        number = int(line) if line.isdigit() else 0
        warnings.warn_explicit(
            warning, type(warning), file or "<kernel>", number, registry=self._warned
        )

    def close(self) -> None:
        """Close the implicit worlds; they start again when needed."""
        for world in self._worlds.values():
            world.close()
        self._worlds.clear()
        self.places.clear()


@once
def in_task() -> bool:
    """Whether this process runs tasks or an actor of Ray, and isn't a program of its own.

    It stays what it is: Ray is in such a process before anything of the user's.
    """
    if "ray" not in sys.modules:
        return False
    from nki_dist.core_actor.nodes import in_worker

    return in_worker()


def implicit_host() -> str:
    """Where cores of `kernel[n](...)` are simulated, if nobody says.

    In a task or actor of Ray in its own process: that is what Ray has reserved for it, and a
    process takes longer to start than most tasks compute.
    """
    host = default_host()
    is_set = any(map(os.environ.get, (HOST_VARIABLE, OPTIONS_VARIABLE)))
    return "inprocess" if host == "ray" and not is_set and in_task() else host


def idle_after() -> float | None:
    """Seconds after which processes of a world that nobody uses end; None for never."""
    seconds = idle_seconds() or (TASK_IDLE if in_task() else math.inf)
    return None if math.isinf(seconds) else seconds


@lru_cache(maxsize=1)
def session() -> Session:
    """The session of this process."""
    new = Session()
    atexit.register(new.close)
    return new
