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
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from nki_dist.compiler.fingerprint_guards import Guards
from nki_dist.compiler.fingerprint_objects import Unprovable
from nki_dist.compiler.fingerprint_walk import Knowledge, Walk

_SNAPSHOTS: Final = 256


class _Snapshot(NamedTuple):
    """One walk's result, the objects it covers (by id, kept alive), and proof it still holds."""

    digest: bytes
    numbers: dict[int, int]
    held: tuple[Any, ...]
    guards: Guards


class _ValuesWalk(Walk):
    """Describes the arguments of one call; functions, classes and modules in them are put aside.

    Those are the same objects call after call, so they belong to the snapshot.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        super().__init__(knowledge)
        self.roots: dict[int, Any] = {}

    def refer_object(self, value: Any) -> None:
        if isinstance(value, (FunctionType, type, ModuleType)):
            self.roots.setdefault(id(value), value)
            self.say("root", list(self.roots).index(id(value)))
        else:
            super().refer_object(value)


class Fingerprinter:
    """Computes keys, remembering per kernel what to compare so that repeated calls are cheap.

    Not safe for use by several threads at once: each owner has its own.
    """

    def __init__(self, snapshots: int = _SNAPSHOTS) -> None:
        self._knowledge = Knowledge()
        self._limit = snapshots
        self._snapshots: OrderedDict[tuple[int, ...], _Snapshot] = OrderedDict()

    def fingerprint(self, function: Any, values: Any) -> Hashable | None:
        """Key of the program that tracing `function` with `values` gives; None: trace every time.

        Args:
            function: a function, method, partial, or compiled-function object around one.
            values: the compile-time arguments as a tree of lists, tuples, dicts and objects, in
                which tensors are replaced by objects that describe them (shape, dtype, ...).
        """
        return self._key_or_reason(function, values)[0]

    def why_not(self, function: Any, values: Any) -> str | None:
        """Why `function` has no key, or None when it has one."""
        return self._key_or_reason(function, values)[1]

    def _key_or_reason(self, function: Any, values: Any) -> tuple[Hashable | None, str | None]:
        try:
            arguments = _ValuesWalk(self._knowledge)
            digest = arguments.run(values)
            snapshot = self._snapshot((*_stable_parts(function), *arguments.roots.values()))
        except Unprovable as reason:
            return None, str(reason)
        except RecursionError:
            return None, "values are nested too deeply"
        known = snapshot.numbers
        # An argument that is also reachable from the kernel: `x is GLOBAL` may depend on it.
        shared = tuple((n, known[key]) for key, n in arguments.numbers.items() if key in known)
        return (snapshot.digest, digest, shared), None

    def _snapshot(self, roots: tuple[Any, ...]) -> _Snapshot:
        key = tuple(map(id, roots))
        snapshot = self._snapshots.get(key)
        if snapshot is None or not snapshot.guards.hold():
            walk = Walk(self._knowledge)
            digest = walk.run(*roots)
            snapshot = _Snapshot(digest, walk.numbers, walk.held(), walk.guards.freeze())
            self._snapshots[key] = snapshot
            if len(self._snapshots) > self._limit:
                self._snapshots.popitem(last=False)
        self._snapshots.move_to_end(key)
        return snapshot


def fingerprint(function: Any, values: Any) -> Hashable | None:
    """One key, without remembering anything; see `Fingerprinter.fingerprint`."""
    return Fingerprinter().fingerprint(function, values)


def _stable_parts(function: Any) -> tuple[Any, ...]:
    """A bound method is a new object each time it's read; its two halves are the same ones."""
    if isinstance(function, MethodType):
        return (MethodType, function.__func__, function.__self__)
    return (function,)
