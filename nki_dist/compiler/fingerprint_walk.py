"""The walk that turns everything a kernel can read into one digest.

Invariant: two walks give the same digest only if the code and every value reachable from it are
equal, type for type (1, True and 1.0 differ), with the same sharing between objects. Each object
is described once, in the order of first sight, and referred to by number after that, so cycles
end and call depth costs no stack. Whatever can't be described raises `Unprovable`.

It doesn't model side effects of tracing: see `fingerprint.Fingerprinter` for what a cache has to
do about kernels that change what they read.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import importlib.util
import os
import struct
import sys
from collections import deque
from collections.abc import Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

import numpy as np

from nki_dist.compiler import fingerprint_objects as objects
from nki_dist.compiler.fingerprint_code import Chain, CodePlan, plan_of
from nki_dist.compiler.fingerprint_guards import MISSING, Guards
from nki_dist.compiler.fingerprint_objects import Unprovable
from nki_dist.compiler.fingerprint_world import InstalledCode, is_impure, is_impure_module
from nki_dist.dtypes import DType

_PLAIN: Final = frozenset(
    {int, bool, str, bytes, type(None), type(...), type(NotImplemented), range}
)
# Written by kernels for people to read; what they lead to can't shape a program.
_INERT: Final = frozenset({("sys", "stdout"), ("sys", "stderr")})


def _forget(
    plans: dict[int, tuple[ref[CodeType], CodePlan]], key: int, gone: ref[CodeType]
) -> None:
    if key in plans and plans[key][0] is gone:
        del plans[key]


class Knowledge:
    """What outlives a walk: plans per code object, layouts per class, memoised helpers seen."""

    def __init__(self) -> None:
        self.installed = InstalledCode()
        self._plans: dict[int, tuple[ref[CodeType], CodePlan]] = {}
        self._layouts: WeakKeyDictionary[type, objects.Layout | None] = WeakKeyDictionary()
        self._memoised: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()

    def plan(self, code: CodeType) -> CodePlan:
        # By identity, because code objects compare equal whatever file they come from.
        known = self._plans.get(id(code))
        if known is not None and known[0]() is code:
            return known[1]
        plan = plan_of(code)
        forget = functools.partial(_forget, self._plans, id(code))
        self._plans[id(code)] = (ref(code, forget), plan)
        return plan

    def layout(self, cls: type) -> objects.Layout | None:
        if cls not in self._layouts:
            self._layouts[cls] = objects.layout_of(cls)
        return self._layouts[cls]

    def remembers_older(self, wrapper: Any, digest: bytes) -> bool:
        """Whether an lru_cache may hold answers computed before what it reads was changed."""
        known = self._memoised.get(wrapper)
        if known is None or wrapper.cache_info().currsize == 0:
            self._memoised[wrapper] = known = digest
        return known != digest


class Walk:
    """One traversal; `tokens` is the description, `guards` what proves it's still current."""

    def __init__(self, knowledge: Knowledge, *, inside_memoised: bool = False) -> None:
        self.knowledge = knowledge
        self.guards = Guards()
        self.numbers: dict[int, int] = {}
        self.tokens: list[Any] = []
        self.inside_memoised = inside_memoised
        self._held: list[Any] = []
        self._queue: deque[Any] = deque()
        self._environment_seen = False

    def run(self, *roots: Any) -> bytes:
        """Digest of everything reachable from `roots`; raises Unprovable."""
        for root in roots:
            self.refer(root)
        while self._queue:
            self._describe(self._queue.popleft())
        text = repr(self.tokens).encode("utf-8", "backslashreplace")
        return hashlib.blake2b(text, digest_size=20).digest()

    def held(self) -> tuple[Any, ...]:
        """Every object described, so that `numbers` stays valid."""
        return tuple(self._held)

    def say(self, *tokens: Any) -> None:
        """Add a structural token; being tuples, they can't be confused with plain values."""
        self.tokens.append(tokens)

    def refer(self, value: Any) -> None:
        """Describe a plain value on the spot, any other by number, to be described later."""
        kind = type(value)
        if kind in _PLAIN:
            self.tokens.append(value)
        elif kind is float:
            self.say("float", struct.pack("<d", value))
        elif kind is complex:
            self.say("complex", struct.pack("<dd", value.real, value.imag))
        elif kind is tuple or kind is frozenset:
            self.say(kind.__name__, len(value))
            for each in value:
                self.refer(each)
        elif isinstance(value, (enum.Enum, DType, np.generic, np.dtype)):
            objects.describe_constant(self, value)
        else:
            self.refer_object(value)

    def refer_object(self, value: Any) -> None:
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.numbers)
            self._held.append(value)  # keeps the id from being reused while the walk lasts
            self._queue.append(value)
        self.say("object", number)

    def refer_items(self, pairs: tuple[tuple[Any, Any], ...]) -> None:
        self.say("items", len(pairs))
        for key, value in pairs:
            self.refer(key)
            self.refer(value)

    def environment(self) -> None:
        """Record all environment variables: code that mentions them may read any."""
        if not self._environment_seen:
            self._environment_seen = True
            variables = self.guards.equality(_environment_items, os.environ)
            self.say("environment", variables)

    def _describe(self, value: Any) -> None:
        self.say("is")
        if isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, ModuleType):
            self._whole_module(value)
        else:
            objects.describe(self, value)

    def cache_is_older(self, wrapper: Any) -> bool:
        """Whether an lru_cache may hold answers from before a change; judged once per walk."""
        if self.inside_memoised:
            return False
        inner = Walk(self.knowledge, inside_memoised=True)
        return self.knowledge.remembers_older(wrapper, inner.run(wrapper.__wrapped__))

    def check(self, module: str | None, name: str) -> None:
        """Refuse names whose answers nothing recorded here covers."""
        if is_impure(module, name):
            raise Unprovable(f"{module}.{name} may answer differently every time")

    # Functions -----------------------------------------------------------------------------

    def _function(self, function: FunctionType) -> None:
        code = function.__code__
        installed = self.knowledge.installed.has_file(code.co_filename)
        if installed:
            self.check(function.__globals__.get("__name__"), function.__qualname__)
            names = self.knowledge.installed.names(function)
            if names is not None:
                self.say("installed", *names)
                return
        plan = self.knowledge.plan(code)
        self.guards.function(function)
        self.say("function", function.__module__, function.__qualname__, plan.identity)
        self.refer(function.__defaults__)
        self.refer(function.__kwdefaults__)
        self.refer_items(self.guards.mapping(function.__dict__))
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        captured = {name: self.guards.cell(cell) for name, cell in cells.items()}
        for name, value in captured.items():
            if value is MISSING:
                self.say("empty cell", name)
            elif not isinstance(value, ModuleType):  # what is read off modules follows below
                self.refer(value)
        if not installed:
            self._reads(function, plan, captured)

    def _reads(self, function: FunctionType, plan: CodePlan, captured: dict[str, Any]) -> None:
        """Describe what the code reads from outside, chain by chain."""
        if plan.unprovable:
            raise Unprovable(f"{function.__qualname__}: {plan.unprovable}")
        if plan.reads_environment:
            self.environment()
        for chain in plan.chains:
            if chain.root == "global":
                value = self.guards.read(function.__globals__, chain.name)
                if value is MISSING:
                    # mypy knows the attribute in some set-ups only.
                    anything: Any = function
                    value = self.guards.read(anything.__builtins__, chain.name)
            elif chain.root == "free":
                value = captured.get(chain.name)
                if not isinstance(value, ModuleType):
                    continue  # described with the cells, or a local of an enclosing function
            else:
                value = self._imported(function, chain)
            self._follow(value, chain)

    def _imported(self, function: FunctionType, chain: Chain) -> Any:
        name = chain.name
        if name.startswith("."):
            package = self.guards.read(function.__globals__, "__package__")
            if not isinstance(package, str):
                raise Unprovable(f"relative import of {name} outside a package")
            name = importlib.util.resolve_name(name, package)
        module = self.guards.read(sys.modules, name)
        if module is MISSING:
            raise Unprovable(f"module {name} isn't imported yet")
        return module

    def _follow(self, value: Any, chain: Chain) -> None:
        """Read attributes off modules; the first value that isn't a module is described whole."""
        for attribute in chain.attributes:
            if not isinstance(value, ModuleType):
                break
            self.check(value.__name__, attribute)
            if (value.__name__, attribute) in _INERT:
                return
            value = self._module_attribute(value, attribute)
        if value is MISSING:
            self.say("missing", *chain[:2], chain.attributes)
        elif isinstance(value, ModuleType):
            self._hand_over(value)
        else:
            self.refer(value)

    def _module_attribute(self, module: ModuleType, name: str) -> Any:
        value = self.guards.read(module.__dict__, name)
        if value is not MISSING:
            return value
        hook = self.guards.read(module.__dict__, "__getattr__")
        if hook is not MISSING and self.knowledge.installed.has_module(module):
            return getattr(module, name, MISSING)  # a lazy attribute of immutable code
        if hook is not MISSING:
            return hook  # what the hook reads decides; it gets the name from the code, described
        return self.guards.read(sys.modules, f"{module.__name__}.{name}")

    # Modules handed around as values ---------------------------------------------------------

    def _hand_over(self, module: ModuleType) -> None:
        if not self.knowledge.installed.has_module(module):
            self.refer_object(module)
        elif is_impure_module(module.__name__):
            raise Unprovable(f"module {module.__name__} is used as a value")
        else:
            self.say("module", module.__name__)

    def _whole_module(self, module: ModuleType) -> None:
        if self.knowledge.installed.has_module(module):
            self._hand_over(module)
            return
        pairs = self.guards.mapping(module.__dict__)
        self.say("module", module.__name__)
        for name, value in pairs:
            if name.startswith("__") and name.endswith("__"):
                continue
            self.tokens.append(name)
            if isinstance(value, ModuleType):
                self._hand_over(value)
            else:
                self.refer(value)


def _environment_items(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(environment.items())
