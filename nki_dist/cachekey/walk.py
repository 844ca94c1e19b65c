"""The walk that turns everything a kernel can read into one digest.

Invariant: two walks give the same digest only if the code and every value reachable from it are
equal, type for type (1, True and 1.0 differ), with the same sharing between objects. Each object
is described once, in the order of first sight, and referred to by number after that, so cycles
end and call depth costs no stack. Whatever can't be described raises `Unprovable`.

A walk also leaves proof: every look it took at something that can change, and what it saw. The
parts seen are kept alive, so "the same object" (`is`) can't be mistaken. When all looks show the
same, the digest is the same; the reverse isn't claimed, after a change to an equal value the walk
is simply repeated.

It doesn't model side effects of tracing: see `keys.Fingerprinter` for what a cache has to do about
kernels that change what they read.
"""

from __future__ import annotations

import enum
import hashlib
import importlib.util
import marshal
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import repeat
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from nki_dist.cachekey.installed import (
    Unprovable,
    installed_name,
    is_installed,
    is_installed_file,
    refuse_impure,
    refuse_impure_module,
)
from nki_dist.cachekey.parts import Missing, Proof, Reading, dtype_text, readings_of
from nki_dist.cachekey.reads import Chain, Reads, reads_of
from nki_dist.dtypes import DType
from nki_dist.program import TensorSignature

# As bytes these differ whenever they differ (1, True, 1.0; 0.0, -0.0), see `Walk.run`.
_PLAIN: Final = frozenset({int, bool, float, complex, str, bytes, type(None), type(...)})
_CONSTANTS: Final = (TensorSignature, DType, enum.Enum, np.dtype, np.generic, range)
_SCALARS: Final = ("numpy", "ml_dtypes")  # whose scalars are nothing but a number
_MEMOISED: Final = type(lru_cache(len))
# Written by kernels for people to read; what they lead to can't shape a program.
_INERT: Final = frozenset({("sys", "stdout"), ("sys", "stderr")})
_READ_ENVIRONMENT: Final = frozenset({("os", "getenv"), ("os", "getenvb")})
_KEPT_CODE: Final = 4096
_SAME, _TEXT = Proof.same, Proof.text


# How to look, and what was seen: parts, or their repr.
Look: TypeAlias = tuple[Callable[[], Iterable[Any]], Any]


class Knowledge:
    """What outlives a walk: what code objects read, and the memoised helpers seen.

    Attributes:
        classes: how to look at instances of a class.
    """

    def __init__(self) -> None:
        self.classes: WeakKeyDictionary[type, tuple[Reading, ...]] = WeakKeyDictionary()
        self._code: dict[int, tuple[weakref.ref[CodeType], Reads | str]] = {}
        self._memoised: WeakKeyDictionary[Any, bytes | None] = WeakKeyDictionary()

    def reads(self, code: CodeType) -> Reads:
        # By identity, because code objects compare equal whatever file they come from. What is
        # known of one goes with it: a number may be another one's then.
        number = id(code)
        known = self._code.get(number)
        if known is None or known[0]() is not code:
            if len(self._code) >= _KEPT_CODE:
                self._code.clear()
            known = (
                weakref.ref(code, partial(_forget, self._code, number)),
                _reads_or_reason(code),
            )
            self._code[number] = known
        if isinstance(known[1], str):
            raise Unprovable(known[1])
        return known[1]

    def is_outdated(self, wrapper: Any, digest: bytes) -> bool:
        """Whether an lru_cache may hold answers from before what it reads (`digest`) changed."""
        if wrapper.cache_info().currsize == 0:
            self._memoised[wrapper] = digest
        elif self._memoised.setdefault(wrapper, digest) != digest:
            self._memoised[wrapper] = None  # until it's cleared, whatever it reads by then
        return self._memoised[wrapper] != digest


def _forget(known: dict[int, Any], number: int, gone: weakref.ref[CodeType]) -> None:
    if number in known and known[number][0] is gone:
        del known[number]


class Walk:
    """One traversal.

    Attributes:
        objects: what was referred to by number.
        numbers: the numbers, by id.
        aside: which of these were left to another walk: instances of the types `leave`.
        same: looks that must show the same parts again.
        text: looks whose parts must read the same.
    """

    def __init__(
        self, knowledge: Knowledge, leave: tuple[type, ...] = (), *, memoised: bool = False
    ) -> None:
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.aside: list[Any] = []
        self.same: list[Look] = []
        self.text: list[Look] = []
        self._knowledge = knowledge
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
            self.same.append((look, tuple(found.values())))
        try:
            # Version 2 is the last without references between equal values, which come and go.
            content = marshal.dumps(self._tokens, 2)
        except ValueError as error:  # a name of a class derived from str, for example
            raise Unprovable(f"something seen can't be written down: {error}") from None
        return hashlib.blake2b(content, digest_size=20).digest()

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
        for label, read, proof in readings_of(value, self._knowledge.classes):
            parts = read(value)
            if proof is _SAME:
                self.same.append((partial(read, value), parts))
            elif proof is _TEXT:
                self.text.append((partial(read, value), repr(parts)))
            self._tokens.append((label, len(parts)))
            self.refer(*parts)

    def _memoised(self, wrapper: Any) -> None:
        """An lru_cache: as good as what it wraps, unless it holds answers from before a change."""
        if not self._inside_memoised:
            inner = Walk(self._knowledge, memoised=True)
            if self._knowledge.is_outdated(wrapper, inner.run(wrapper.__wrapped__)):
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
        digest, chains = self._knowledge.reads(code)
        parts = _function_parts(function)
        self.same.append((partial(_function_parts, function), parts))
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


def _reads_or_reason(code: CodeType) -> Reads | str:
    try:
        return reads_of(code)
    except Unprovable as reason:
        return str(reason)


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
