"""The key of a compiled kernel: equal keys only where tracing would give the same program.

Invariant: a key covers the code of a kernel and of everything it can call, the values of all
globals, captured variables, defaults, class and module attributes they can read, and the
compile-time arguments, type for type. Where that can't be shown (clock, random numbers, files,
objects with hidden state) there is no key, and the kernel has to be traced every time.

Installed libraries count as constant. Side effects aren't modelled: printing doesn't prevent a
hit, and a kernel that changes what it reads (appends to a global list) has a new key afterwards.
A cache must therefore store a program only if the key taken after tracing equals the key taken
before; otherwise replaying the program would skip the change. A helper under `lru_cache` counts as
a function of its arguments as long as what it reads doesn't change; after a change the kernel
has no key until that cache is cleared.

Keys hold no references to the user's objects. They are meant for one process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from operator import is_
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from nki_dist.cachekey.installed import Unprovable
from nki_dist.cachekey.walk import Knowledge, Walk

_SNAPSHOTS: Final = 256
# Functions, classes and modules in arguments are the same objects call after call.
_LASTING: Final = (FunctionType, type, ModuleType)


class _Snapshot:
    """What a kernel, and the classes and functions among its arguments, read.

    It keeps alive what was described, so that numbers by id stay valid.
    """

    def __init__(self, knowledge: Knowledge, roots: tuple[Any, ...]) -> None:
        walk = Walk(knowledge)
        self.digest = walk.run(*roots)
        self.numbers, self._objects = walk.numbers, walk.objects
        self._same, self._text = walk.same, walk.text

    def holds(self) -> bool:
        """Whether every look shows what it showed."""
        try:
            for look, seen in self._same:
                shown = tuple(look())
                if len(shown) != len(seen) or not all(map(is_, shown, seen)):
                    return False
            return all(repr(look()) == seen for look, seen in self._text)
        except (AttributeError, RuntimeError, Unprovable):
            return False  # something is gone, or changed size while it was read


class Fingerprinter:
    """Computes keys, remembering per kernel what to look at so that repeated calls are cheap.

    Not safe for use by several threads at once: each owner has its own.
    """

    def __init__(self, snapshots: int = _SNAPSHOTS) -> None:
        self._knowledge = Knowledge()
        self._limit = snapshots
        self._snapshots: OrderedDict[tuple[int, ...], _Snapshot] = OrderedDict()

    def fingerprint(self, function: Any, values: Any) -> Hashable:
        """Key of the program that tracing `function` with `values` gives.

        Args:
            function: a function, method, partial, or compiled-function object around one.
            values: the compile-time arguments as a tree of lists, tuples, dicts and objects, in
                which tensors are replaced by objects that describe them (shape, dtype, ...).

        Raises:
            Unprovable: there is none, for the reason that its text gives; trace every time.
        """
        try:
            arguments = Walk(self._knowledge, _LASTING)
            digest = arguments.run(values)
            snapshot = self._snapshot((*_stable_parts(function), *arguments.aside))
        except RecursionError:
            raise Unprovable("values are nested too deeply") from None
        known = snapshot.numbers
        # An argument that is also reachable from the kernel: `x is GLOBAL` may depend on it.
        shared = tuple((n, known[key]) for key, n in arguments.numbers.items() if key in known)
        return (snapshot.digest, digest, shared)

    def _snapshot(self, roots: tuple[Any, ...]) -> _Snapshot:
        key = tuple(map(id, roots))
        snapshot = self._snapshots.pop(key, None)
        if snapshot is None or not snapshot.holds():
            snapshot = _Snapshot(self._knowledge, roots)
        self._snapshots[key] = snapshot  # the last one now
        if len(self._snapshots) > self._limit:
            self._snapshots.popitem(last=False)
        return snapshot


def _stable_parts(function: Any) -> tuple[Any, ...]:
    """A bound method is a new object each time it's read; its two halves are the same ones."""
    if isinstance(function, MethodType):
        return (MethodType, function.__func__, function.__self__)
    return (function,)
