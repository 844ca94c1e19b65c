"""Keys of compiled kernels: everything that a kernel can read, in a digest.

Invariant: a key covers the code of a kernel and of everything it can call, the values of all
globals, captured variables, defaults, class and module attributes they can read, and the
compile-time arguments. Two are equal only if these are, type for type (1, True and 1.0 differ),
with the same sharing between objects. Each object is described once, in the order of first sight,
and referred to by number after that, so cycles end and call depth costs no stack. What can't be
described (clock, random numbers, files, objects with hidden state) raises `Unprovable`: there is no
key, and the kernel has to be traced every time.

A walk also leaves proof: every look it took at something that can change, and what it saw. The
parts seen are kept alive, so "the same object" (`is`) can't be mistaken. When all looks show the
same, the digest is the same; the reverse isn't claimed, after a change to an equal value the walk
is simply repeated.

Installed libraries count as constant. Side effects aren't modelled: printing doesn't prevent a
hit, and a kernel that changes what it reads (appends to a global list) has a new key afterwards.
A cache must therefore store a program only if the key taken after tracing equals the key taken
before; otherwise replaying the program would skip the change. A helper under `lru_cache` counts as
a function of its arguments as long as what it reads doesn't change; after a change the kernel
has no key until that cache is cleared.

Keys hold no references to the user's objects. They are meant for one process.
"""

from __future__ import annotations

import enum
import hashlib
import importlib.util
import marshal
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache, partial
from itertools import repeat
from operator import is_
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist.dtypes import DType
from nki_dist.launcher.cachekey.installed import (
    Unprovable,
    installed_name,
    is_installed,
    is_installed_file,
    refuse_impure,
    refuse_impure_module,
)
from nki_dist.launcher.cachekey.parts import Missing, Proof, dtype_text, readings_of
from nki_dist.launcher.cachekey.reads import Chain, ReadsCache
from nki_dist.program import TensorSignature

# As bytes these differ whenever they differ (1, True, 1.0; 0.0, -0.0), see `Walk.run`.
_PLAIN: Final = frozenset({int, bool, float, complex, str, bytes, type(None), type(...)})
_CONSTANTS: Final = (TensorSignature, DType, enum.Enum, np.dtype, np.generic, range)
_SCALARS: Final = ("numpy", "ml_dtypes")  # whose scalars are nothing but a number
_MEMOISED: Final = type(lru_cache(len))
# Written by kernels for people to read; what they lead to can't shape a program.
_INERT: Final = frozenset({("sys", "stdout"), ("sys", "stderr")})
_READ_ENVIRONMENT: Final = frozenset({("os", "getenv"), ("os", "getenvb")})
_SNAPSHOTS: Final = 256
# Functions, classes and modules in arguments are the same objects call after call.
_LASTING: Final = (FunctionType, type, ModuleType)
_SAME, _TEXT = Proof.same, Proof.text


# How to look, and what was seen: parts, or their repr.
Look: TypeAlias = tuple[Callable[[], Iterable[Any]], Any]


class Walk:
    """One traversal, and the proof that it would give the same again.

    It keeps alive what it described, so that numbers by id stay valid.

    Attributes:
        objects: what was referred to by number.
        numbers: the numbers, by id.
        aside: which of these were left to another walk: instances of the types `leave`.
        digest: of everything reachable, after `run`.
    """

    def __init__(
        self, cache: ReadsCache, leave: tuple[type, ...] = (), *, memoised: bool = False
    ) -> None:
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.aside: list[Any] = []
        self.digest = b""
        self._same: list[Look] = []  # that must show the same parts again
        self._text: list[Look] = []  # whose parts must read the same
        self._cache = cache
        self._leave = leave
        self._inside_memoised = memoised
        self._tokens: list[Any] = []
        self._names: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}

    def run(self, *roots: Any) -> bytes:
        """Digest of everything reachable from `roots`; raises Unprovable."""
        self.refer(*roots)
        for value in self.objects:  # which grows
            if isinstance(value, self._leave):
                self.aside.append(value)
            elif isinstance(value, FunctionType):
                self._function(value)
            elif type(value) is _MEMOISED:
                self._memoised(value)
            else:
                self._object(value)
        for namespace, found in self._names.values():
            look = partial(map, namespace.get, tuple(found), repeat(Missing))
            self._same.append((look, tuple(found.values())))
        try:
            # Version 2 is the last without references between equal values, which come and go.
            content = marshal.dumps(self._tokens, 2)
        except ValueError as error:  # a name of a class derived from str, for example
            raise Unprovable(f"something seen can't be written down: {error}") from None
        self._tokens.clear()
        self.digest = hashlib.blake2b(content, digest_size=20).digest()
        return self.digest

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

    def say(self, *tokens: Any) -> None:
        """Add a structural token; being tuples, they can't be confused with plain values."""
        self._tokens.append(tokens)

    def refer(self, *values: Any) -> None:
        """Describe plain values on the spot, others by number, to be described later."""
        tokens = self._tokens
        for value in values:
            kind = type(value)
            if kind in _PLAIN:
                tokens.append(value)
            elif kind is tuple or kind is frozenset:
                tokens.append((kind.__name__, len(value)))
                self.refer(*value)
            elif isinstance(value, _CONSTANTS):
                self._constant(value)
            else:
                self.refer_object(value)

    def refer_object(self, value: Any) -> None:
        number = self.numbers.get(id(value))
        if number is None:
            if isinstance(value, ModuleType) and is_installed(value):
                refuse_impure_module(value.__name__)
                self.say("module", value.__name__)
                return
            number = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        self.say("object", number)

    def _constant(self, value: Any) -> None:
        """Enum members, data types, ranges, NumPy scalars: immutable; and tensors to be."""
        if isinstance(value, TensorSignature):  # one array passed twice has one index
            self.say("tensor", value.index, value.dtype.name)
            self.refer(value.shape, value.name)  # keywords may be of any class derived from str
        elif isinstance(value, DType):
            self.say("nki dtype", value.name)
        elif isinstance(value, enum.Enum):
            self.say("member")
            self.refer(value.name)
            if value.name is None or value.name not in type(value).__members__:
                self.refer(value.value)  # a combination of flags has no name of its own
            self.refer_object(type(value))
        elif isinstance(value, range):
            self.say("range", value.start, value.stop, value.step)
        elif isinstance(value, np.dtype):
            self.say("dtype", dtype_text(value), value.str)
        elif type(value).__module__.partition(".")[0] not in _SCALARS:
            self.refer_object(value)  # of a user's own class, so it may have attributes
        elif value.dtype.hasobject:
            raise Unprovable("a NumPy scalar that holds Python objects")
        else:
            self.say("scalar", dtype_text(value.dtype), value.tobytes())

    def _object(self, value: Any) -> None:
        for label, read, proof in readings_of(value, self._cache.classes):
            parts = read(value)
            if proof is _SAME:
                self._same.append((partial(read, value), parts))
            elif proof is _TEXT:
                self._text.append((partial(read, value), repr(parts)))
            self._tokens.append((label, len(parts)))
            self.refer(*parts)

    def _memoised(self, wrapper: Any) -> None:
        """An lru_cache: as good as what it wraps, unless it holds answers from before a change."""
        if not self._inside_memoised:
            inner = Walk(self._cache, memoised=True)
            if self._cache.is_outdated(wrapper, inner.run(wrapper.__wrapped__)):
                raise Unprovable(f"the cache of {wrapper.__qualname__} predates a change")
        self.say("memoised")
        self.refer(vars(wrapper))  # what it wraps is there, too

    # Functions -----------------------------------------------------------------------------

    def _function(self, function: FunctionType) -> None:
        code = function.__code__
        installed = is_installed_file(code.co_filename)
        if installed:
            refuse_impure(function.__globals__.get("__name__"), function.__qualname__)
            names = installed_name(function)
            if names is not None:
                self.say("installed", *names)
                if names in _READ_ENVIRONMENT:
                    self.refer(os.environ)
                return
        digest, chains = self._cache.reads(code)
        parts = _function_parts(function)
        self._same.append((partial(_function_parts, function), parts))
        self.say("function", digest, len(parts))
        captured = dict(zip(code.co_freevars, parts[1:]))
        for value in captured.values():
            if isinstance(value, ModuleType):
                self.say("captured module")  # what is read off it follows below
            else:
                self.refer(value)
        self.refer(*parts[1 + len(captured) :])
        for chain in () if installed else chains:
            self._read(function, captured, chain)

    def _read(self, function: FunctionType, captured: dict[str, Any], chain: Chain) -> None:
        """Describe what code reads from outside: the first value that isn't a module, whole."""
        if chain.root == "global":
            value = self._look_up(function.__globals__, chain.name)
            if value is Missing:
                # mypy knows the attribute in some set-ups only.
                anything: Any = function
                value = self._look_up(anything.__builtins__, chain.name)
        elif chain.root == "free":
            value = captured.get(chain.name)
            if not isinstance(value, ModuleType):
                return  # described with the function, or a local of an enclosing one
        else:
            value = self._imported(function, chain.name)
        for attribute in chain.attributes:
            if not isinstance(value, ModuleType):
                break
            refuse_impure(value.__name__, attribute)
            if (value.__name__, attribute) in _INERT:
                self.say("inert")
                return
            value = self._module_attribute(value, attribute)
        self.refer(value)

    def _look_up(self, namespace: dict[str, Any], name: str) -> Any:
        value = namespace.get(name, Missing)
        self._names.setdefault(id(namespace), (namespace, {}))[1][name] = value
        return value

    def _imported(self, function: FunctionType, name: str) -> Any:
        if name.startswith("."):
            package = self._look_up(function.__globals__, "__package__")
            if not isinstance(package, str):
                raise Unprovable(f"relative import of {name} outside a package")
            name = importlib.util.resolve_name(name, package)
        module = self._look_up(sys.modules, name)
        if module is Missing:
            raise Unprovable(f"module {name} isn't imported yet")
        return module

    def _module_attribute(self, module: ModuleType, name: str) -> Any:
        value = self._look_up(module.__dict__, name)
        if value is not Missing:
            return value
        hook = self._look_up(module.__dict__, "__getattr__")
        if hook is not Missing and is_installed(module):
            return getattr(module, name, Missing)  # a lazy attribute of immutable code
        if hook is not Missing:
            return hook  # what the hook reads decides; it gets the name from the code, described
        return self._look_up(sys.modules, f"{module.__name__}.{name}")


def _function_parts(function: FunctionType) -> tuple[Any, ...]:
    attributes = function.__dict__
    return (
        function.__code__,
        *map(_content, function.__closure__ or ()),
        function.__name__,
        function.__qualname__,
        function.__module__,
        function.__defaults__,
        function.__kwdefaults__,
        *attributes,
        *attributes.values(),
    )


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return Missing


class Fingerprinter:
    """Computes keys, remembering per kernel what to look at so that repeated calls are cheap.

    Not safe for use by several threads at once: each owner has its own.
    """

    def __init__(self, snapshots: int = _SNAPSHOTS) -> None:
        self._cache = ReadsCache()
        self._limit = snapshots
        self._snapshots: OrderedDict[tuple[int, ...], Walk] = OrderedDict()

    def fingerprint(self, function: Any, values: Any) -> Hashable:
        """Key of the program that tracing `function` with `values` gives.

        Args:
            function: a function, method, partial, or compiled-function object around one.
            values: the compile-time arguments as a tree of lists, tuples, dicts and objects, in
                which tensors are replaced by objects that describe them (shape, dtype, ...).

        Raises:
            Unprovable: there is none, for the reason that its text gives; trace every time.
        """
        stable: tuple[Any, ...] = (function,)
        if isinstance(function, MethodType):  # a new object each time it's read, of the same halves
            stable = (MethodType, function.__func__, function.__self__)
        try:
            arguments = Walk(self._cache, _LASTING)
            digest = arguments.run(values)
            snapshot = self._snapshot((*stable, *arguments.aside))
        except RecursionError:
            raise Unprovable("values are nested too deeply") from None
        reached = snapshot.numbers
        # An argument that is also reachable from the kernel: `x is GLOBAL` may depend on it.
        shared = tuple((n, reached[key]) for key, n in arguments.numbers.items() if key in reached)
        return (snapshot.digest, digest, shared)

    def _snapshot(self, roots: tuple[Any, ...]) -> Walk:
        key = tuple(map(id, roots))
        snapshot = self._snapshots.pop(key, None)
        if snapshot is None or not snapshot.holds():
            snapshot = Walk(self._cache)
            snapshot.run(*roots)
        self._snapshots[key] = snapshot  # the last one now
        if len(self._snapshots) > self._limit:
            self._snapshots.popitem(last=False)
        return snapshot
