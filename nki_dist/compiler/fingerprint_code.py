"""What a code object reads from the world outside its arguments, found in its bytecode.

Invariant: the plan of a code object is a function of the code object alone, so it can be kept for
ever; it names every global, captured variable and import that running the code, or any function
defined inside it, could read. Reads are *chains* (`config.tiles.TILE` is one chain), so that a
module is never read as a whole when the code only wants one of its attributes.

It doesn't follow data flow: an attribute of a value that isn't reached by a chain is covered by
whoever records that value (all of an object's state counts, used or not).
"""

from __future__ import annotations

import dis
import hashlib
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, NamedTuple

from nki_dist.compiler.bytecode import instructions


class Chain(NamedTuple):
    """One read: where the first name is looked up, the name, and the attributes read off it.

    `root` is "global", "free" (captured variable) or "import"; for an import `name` is the dotted
    module name, with one leading dot per level of a relative import.
    """

    root: str
    name: str
    attributes: tuple[str, ...]


@dataclass(frozen=True)
class CodePlan:
    """Everything a walk needs to know about a code object and the code nested in it."""

    identity: bytes
    chains: tuple[Chain, ...]
    reads_environment: bool
    unprovable: str | None


_GLOBAL_LOADS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_FREE_LOADS: Final = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTE_LOADS: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NO_EFFECT: Final = frozenset({"EXTENDED_ARG", "NOP", "RESUME", "PRECALL", "PUSH_NULL"})
_LOCAL_LOADS: Final = frozenset(name for name in dis.opmap if "LOAD_FAST" in name)
_WRITES: Final = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"})
_STARTS: Final = _GLOBAL_LOADS | _FREE_LOADS | _LOCAL_LOADS | _WRITES
_STACK_SHUFFLES: Final = frozenset({"ROT_TWO", "SWAP", "POP_TOP"})
_ENVIRONMENT_NAMES: Final = frozenset({"environ", "environb", "getenv", "getenvb"})


def plan_of(code: CodeType) -> CodePlan:
    """Read the plan of `code`, functions, lambdas and class bodies nested in it included."""
    codes = list(_with_nested(code))
    chains: dict[Chain, None] = {}
    unprovable = None
    for each in codes:
        scanner = _Scanner(each, frozenset(code.co_freevars))
        chains.update(dict.fromkeys(scanner.scan()))
        unprovable = unprovable or scanner.unprovable
    reads_environment = any(_ENVIRONMENT_NAMES.intersection(each.co_names) for each in codes)
    return CodePlan(code_digest(code), tuple(chains), reads_environment, unprovable)


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


def code_digest(code: CodeType) -> bytes:
    """Digest of all a code object says, where its source lines are included.

    Lines count because a program carries them to its error messages: a kernel that only moved
    must be traced again, or its errors would point at the old lines.
    """
    text = repr(_describe(code)).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(text, digest_size=20).digest()


def _describe(value: Any) -> Any:
    """A constant as plain data whose repr tells 1, True, 1.0, 0.0 and -0.0 apart."""
    if isinstance(value, CodeType):
        lines = getattr(value, "co_linetable", b"")
        shape = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount)
        names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        where = (value.co_filename, value.co_firstlineno, lines)
        exceptions = getattr(value, "co_exceptiontable", b"")
        constants = [_describe(constant) for constant in value.co_consts]
        body = (exceptions, value.co_code, constants)
        return ["code", value.co_name, value.co_flags, shape, names, where, body]
    if isinstance(value, tuple):
        return ["tuple", *map(_describe, value)]
    if isinstance(value, frozenset):
        return ["frozenset", *sorted(repr(_describe(each)) for each in value)]
    if isinstance(value, float):
        return ["float", struct.pack("<d", value)]
    if isinstance(value, complex):
        return ["complex", struct.pack("<dd", value.real, value.imag)]
    return value  # str, bytes, int, bool, None, Ellipsis: their repr is their value


def _names(argument: Any) -> tuple[str, ...]:
    return argument if isinstance(argument, tuple) else (argument,)


class _Scanner:
    """Reads one code object's instructions; `unprovable` says what makes caching unsafe."""

    def __init__(self, code: CodeType, captured: frozenset[str]) -> None:
        self.unprovable: str | None = None
        self._code = code
        self._captured = captured
        self._instructions = [i for i in instructions(code) if i[0] not in _NO_EFFECT]
        self._aliases: dict[str, Chain] = {}
        self._found: list[Chain] = []

    def scan(self) -> list[Chain]:
        """The chains of this code object, in order; a chain ends where nothing is read off it."""
        self._find_imports()
        found = self._found
        chain: Chain | None = None
        for name, value in self._instructions:
            if chain is not None:
                if name in _ATTRIBUTE_LOADS:
                    chain = chain._replace(attributes=(*chain.attributes, value))
                    continue
                if name in ("STORE_ATTR", "DELETE_ATTR"):
                    self.unprovable = f"{chain.name}.{value} is assigned to"
                found.append(chain)
            chain = self._start(name, value) if name in _STARTS else None
        return found if chain is None else [*found, chain]

    def _start(self, name: str, value: Any) -> Chain | None:
        """The chain that an instruction of _STARTS begins, if any."""
        if name in _GLOBAL_LOADS:
            return Chain("global", value, ())
        if name in _FREE_LOADS:
            return Chain("free", value, ())
        if name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self.unprovable = f"global {value} is assigned to"
        elif name in ("STORE_DEREF", "DELETE_DEREF") and value in self._captured:
            self.unprovable = f"captured variable {value} is assigned to"
        elif name in _LOCAL_LOADS:
            # Newer interpreters load two locals at once: nothing is read off the first.
            *firsts, last = _names(value)
            self._found += [self._aliases[each] for each in firsts if each in self._aliases]
            return self._aliases.get(last)
        return None

    def _find_imports(self) -> None:
        """Note which locals are imports, and which imports can't be followed by name."""
        if all(name != "IMPORT_NAME" for name, _ in self._instructions):
            return
        stored = (value for name, value in self._instructions if "STORE_FAST" in name)
        stores = Counter(name for argument in stored for name in _names(argument))
        for index, (name, dotted) in enumerate(self._instructions):
            if name != "IMPORT_NAME":
                continue
            level, wanted = (value for _, value in self._instructions[index - 2 : index])
            for target, chain in self._bindings(index + 1, dotted, level, wanted):
                if target is not None and stores[target] == 1:
                    self._aliases[target] = chain
                else:
                    self._found.append(chain)

    def _bindings(
        self, index: int, dotted: str, level: int, wanted: Any
    ) -> Iterator[tuple[str | None, Chain]]:
        """(local name or None, what it is bound to) for the import that starts before `index`."""
        module = "." * level + dotted
        renamed = False
        member: str | None = None
        while index < len(self._instructions):
            name, value = self._instructions[index]
            index += 1
            if name == "IMPORT_FROM":
                member, renamed = value, True
            elif name.startswith("STORE_"):
                target = value if name == "STORE_FAST" else None
                if wanted:
                    chain = Chain("import", module, (member,) if member else ())
                else:  # `import a.b` binds a, `import a.b as c` binds a.b
                    chain = Chain("import", module if renamed else module.split(".")[0], ())
                yield target, chain
                if not wanted:
                    return
            elif name not in _STACK_SHUFFLES or (name == "POP_TOP" and wanted):
                return
