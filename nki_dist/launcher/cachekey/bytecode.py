"""Reading bytecode: what `dis.get_instructions` says, without what nobody here asks.

`dis` also works out lines, jump targets and how arguments are printed; for a kernel library of some
hundred functions that takes longer than tracing the kernel. Interpreters that aren't known here
are left to `dis`.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final

_SUPPORTED: Final = (3, 10) <= sys.version_info[:2] <= (3, 13)
_NAMES: Final = frozenset(dis.hasname)
_CONSTANTS: Final = frozenset(dis.hasconst)
_LOCALS: Final = frozenset(dis.haslocal)
_CELLS: Final = frozenset(dis.hasfree)
_EXTENDED: Final = dis.opmap["EXTENDED_ARG"]
_CACHE: Final = dis.opmap.get("CACHE", 0)  # 0 before 3.11, too, but no instruction has it there

# Bits of an argument below the index of a name: flags for the interpreter.
_FLAG_BITS: Final = {
    dis.opmap[name]: bits
    for name, bits, since in (
        ("LOAD_GLOBAL", 1, (3, 11)),
        ("LOAD_ATTR", 1, (3, 12)),
        ("LOAD_SUPER_ATTR", 2, (3, 12)),
    )
    if sys.version_info >= since
}
# Newer interpreters have instructions on two locals: STORE_FAST_LOAD_FAST is two of ours.
_PAIRS: Final = {
    number: tuple(name.replace("FAST_", "FAST ", 1).split())
    for name, number in dis.opmap.items()
    if name.count("_FAST") == 2 and number < 256
}


def instructions(code: CodeType) -> Iterator[tuple[str, Any]]:
    """(name, argument) of the instructions of `code`; one on two locals is given as two.

    Arguments are names, constants, names of local and of captured variables; other arguments are
    left as numbers, or None.
    """
    for op, argument in _read(code) if _SUPPORTED else _read_by_dis(code):
        if op in _PAIRS:
            yield from zip(_PAIRS[op], argument, strict=True)
        else:
            yield dis.opname[op], argument


def _read_by_dis(code: CodeType) -> Iterator[tuple[int, Any]]:
    every = dis.get_instructions(code)
    return ((i.opcode, i.argval) for i in every if i.opcode != _EXTENDED)


def _read(code: CodeType) -> Iterator[tuple[int, Any]]:
    names, constants = code.co_names, code.co_consts
    variables, cells = _variables(code)
    high = 0
    body = iter(code.co_code)
    for op, low in zip(body, body):
        if op == _CACHE:
            continue
        argument: Any = high | low
        if op == _EXTENDED:
            high = argument << 8
            continue
        high = 0
        if op in _NAMES:
            argument = names[argument >> _FLAG_BITS.get(op, 0)]
        elif op in _PAIRS:
            argument = variables[argument >> 4], variables[argument & 15]
        elif op in _LOCALS:
            argument = variables[argument]
        elif op in _CONSTANTS:
            argument = constants[argument]
        elif op in _CELLS:
            argument = cells[argument]
        elif op < dis.HAVE_ARGUMENT:
            argument = None
        yield op, argument


def _variables(code: CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What arguments of instructions on local and on captured variables count."""
    if sys.version_info < (3, 11):
        return code.co_varnames, code.co_cellvars + code.co_freevars
    cells_only = [name for name in code.co_cellvars if name not in code.co_varnames]
    every = (*code.co_varnames, *cells_only, *code.co_freevars)
    return every, every
