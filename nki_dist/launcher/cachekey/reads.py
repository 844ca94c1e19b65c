"""What a code object reads from the world outside its arguments, found in its bytecode.

Invariant: the reads of a code object are a function of the code object alone; they name every
global, captured variable and import that running the code, or any function defined inside it, could
read. A read is a *chain* (`config.tiles.TILE` is one), so that a module is never read as a whole
when the code only wants one of its attributes.

It doesn't follow data flow: an attribute of a value that isn't reached by a chain is covered by
whoever records that value (all of an object's state counts, used or not).
"""

from __future__ import annotations

import dis
import hashlib
import weakref
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from types import CodeType
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from nki_dist.launcher.cachekey.bytecode import instructions
from nki_dist.launcher.cachekey.installed import Unprovable


class Chain(NamedTuple):
    """One read: where the first name is looked up, the name, and the attributes read off it.

    `root` is "global", "free" (captured variable) or "import"; for an import `name` is the dotted
    module name, with one leading dot per level of a relative import.
    """

    root: str
    name: str
    attributes: tuple[str, ...] = ()

    def then(self, attribute: str) -> Chain:
        return self._replace(attributes=(*self.attributes, attribute))


class Reads(NamedTuple):
    """All that counts of a code object: what it says, and what it reads."""

    digest: bytes
    chains: tuple[Chain, ...]


_STARTS: Final = {
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"), "global"),
    **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"), "free"),
}
_ATTRIBUTE_LOADS: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_ATTRIBUTE_WRITES: Final = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_GLOBAL_WRITES: Final = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
_FREE_WRITES: Final = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_LOCAL_LOADS: Final = frozenset(name for name in dis.opmap if "LOAD_FAST" in name)
_CACHED_CODE: Final = 4096  # code objects
_NO_EFFECT: Final = frozenset({"EXTENDED_ARG", "NOP", "RESUME", "PRECALL", "PUSH_NULL"})


def reads_of(code: CodeType) -> Reads:
    """What `code` reads, functions, lambdas and class bodies nested in it included.

    Raises:
        Unprovable: it assigns to what it doesn't own, so running it once isn't like running it
            twice.
    """
    codes = tuple(_with_nested(code))
    captured = frozenset(code.co_freevars)
    chains = dict.fromkeys(chain for each in codes for chain in _chains(each, captured))
    text = repr([_describe(each) for each in codes]).encode("utf-8", "backslashreplace")
    return Reads(hashlib.blake2b(text, digest_size=20).digest(), tuple(chains))


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


def _describe(code: CodeType) -> tuple[Any, ...]:
    """All a code object says, where its source lines are included, as data told apart by repr.

    Lines count because a program carries them to its error messages: a kernel that only moved
    must be traced again, or its errors would point at the old lines.
    """
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    where = (code.co_filename, code.co_firstlineno, code.co_linetable)
    constants = [CodeType if isinstance(each, CodeType) else each for each in code.co_consts]
    return (counts, names, where, code.co_code, getattr(code, "co_exceptiontable", b""), constants)


def _chains(code: CodeType, captured: frozenset[str]) -> Iterator[Chain]:
    """The chains of one code object, in order; a chain ends where nothing is read off it."""
    steps = [step for step in instructions(code) if step[0] not in _NO_EFFECT]
    imported: defaultdict[str, list[Chain]] = defaultdict(list)
    for target, chain in _imports(steps):
        if target is None:
            yield chain  # out of sight from here: all of it counts
        else:
            imported[target].append(chain)
    current: list[Chain] = []  # several where a local may be one of several imports
    for name, argument in steps:
        if current and name in _ATTRIBUTE_LOADS:
            current = [chain.then(argument) for chain in current]
            continue
        if current and name in _ATTRIBUTE_WRITES:
            raise Unprovable(f"{code.co_name}: {current[0].name}.{argument} is assigned to")
        yield from current
        if name in _GLOBAL_WRITES or (name in _FREE_WRITES and argument in captured):
            raise Unprovable(f"{code.co_name}: variable {argument} is assigned to")
        if name in _STARTS:
            current = [Chain(_STARTS[name], argument)]
        else:
            current = imported.get(argument, []) if name in _LOCAL_LOADS else []
    yield from current


def _imports(steps: list[tuple[str, Any]]) -> Iterator[tuple[str | None, Chain]]:
    """(local name, what it is bound to) of imports; no name where another scope may see it.

    IMPORT_NAME gives the module of `from a.b import c`, but the package of `import a.b` and of
    `import a.b as c`; IMPORT_FROM reads attributes, in the last case down to the module.
    """
    module, bound, members = Chain("import", ""), None, False
    for index, (name, argument) in enumerate(steps):
        if name == "IMPORT_NAME":
            level, fromlist = (value for _, value in steps[index - 2 : index])
            members = bool(fromlist)
            dotted = argument if members else argument.partition(".")[0]
            module = bound = Chain("import", "." * level + dotted)
        elif name == "IMPORT_FROM":
            bound = (module if members or bound is None else bound).then(argument)
        elif bound is not None and name.startswith("STORE_"):
            yield argument if name == "STORE_FAST" else None, bound
            bound = None


class ReadsCache:
    """What outlives a walk: what code objects read, and the memoised helpers seen.

    Attributes:
        classes: how to look at instances of a class.
    """

    def __init__(self) -> None:
        self.classes: WeakKeyDictionary[type, Any] = WeakKeyDictionary()
        self._code: dict[int, tuple[weakref.ref[CodeType], Reads | str]] = {}
        self._memoised: WeakKeyDictionary[Any, bytes | None] = WeakKeyDictionary()

    def reads(self, code: CodeType) -> Reads:
        # By identity, because code objects compare equal whatever file they come from. What is
        # known of one goes with it: a number may be another one's then.
        number = id(code)
        cached = self._code.get(number)
        if cached is None or cached[0]() is not code:
            if len(self._code) >= _CACHED_CODE:
                self._code.clear()
            gone = partial(_forget, self._code, number)
            cached = self._code[number] = weakref.ref(code, gone), _reads_or_reason(code)
        if isinstance(cached[1], str):
            raise Unprovable(cached[1])
        return cached[1]

    def is_outdated(self, wrapper: Any, digest: bytes) -> bool:
        """Whether an lru_cache may hold answers from before what it reads (`digest`) changed."""
        if wrapper.cache_info().currsize == 0:
            self._memoised[wrapper] = digest
        elif self._memoised.setdefault(wrapper, digest) != digest:
            self._memoised[wrapper] = None  # until it's cleared, whatever it reads by then
        return self._memoised[wrapper] != digest


def _forget(cache: dict[int, Any], number: int, gone: weakref.ref[CodeType]) -> None:
    if number in cache and cache[number][0] is gone:
        del cache[number]


def _reads_or_reason(code: CodeType) -> Reads | str:
    try:
        return reads_of(code)
    except Unprovable as reason:
        return str(reason)
