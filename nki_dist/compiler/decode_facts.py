"""Reading a program's facts: what the compiler's passes found out.

Invariant: facts that linking, launching and listing look at are of the kind that passes write, and
name only storages and instructions that there are. Others are plain data that nobody looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from nki_dist.compiler import notes
from nki_dist.compiler.config import BARRIER_CHECK
from nki_dist.compiler.decode_tables import INT64, Tables, integer, numbered
from nki_dist.compiler.passes.between_cores import OPEN_READS
from nki_dist.compiler.passes.unwritten import DOUBTFUL, REPLACED, UNSTORED, WRITTEN_INPUTS
from nki_dist.compiler.values import read_value
from nki_dist.compiler.widen import FACT as PRECISE
from nki_dist.compiler.wire import malformed
from nki_dist.program import UNROLLED, Storage

Storages: TypeAlias = "Sequence[Storage]"


def read_facts(packed: Any, tables: Tables) -> dict[str, Any]:
    """The facts, those that name instructions not yet compared with the program's.

    Raises:
        ProgramFormatError: no pass writes such facts.
    """
    access, register = numbered(tables.accesses, "access"), numbered(tables.registers, "register")
    facts = read_value(packed, access, register)
    if type(facts) is not dict or not all(type(key) is str for key in facts):
        malformed("facts aren't a dict with text keys")
    for name, value in facts.items():
        check = _CHECKS.get(name)
        if check is not None:
            check(name, value, tables.storages)
    return facts


def check_instructions(facts: Mapping[str, Any], count: int) -> None:
    """The same for facts that name instructions, once it is known how many there are."""
    for number in _collection("watched", facts.get("watched", ())):
        integer(number, 0, count, "an instruction in the fact watched")


def _collection(name: str, value: Any) -> Any:
    if not isinstance(value, (list, tuple, set, frozenset)):
        malformed(f"the fact {name} is of type {type(value).__name__}; allowed: a list")
    return value


def _storages(name: str, value: Any, storages: Storages, kind: str = "", refused: str = "") -> None:
    """Numbers of storages, all in the memory or of the role that is called `kind`."""
    for number in _collection(name, value):
        integer(number, 0, len(storages), f"a storage in the fact {name}")
    for s in (storages[number] for number in value):
        if kind not in ("", s.region.value, s.role):
            malformed(f"{s.label} {refused.format(name)}")


def _indices(name: str, value: Any, storages: Storages) -> None:
    for index in _collection(name, value):
        integer(index, 0, INT64, f"an argument in the fact {name}")


def _bytes(name: str, value: Any, storages: Storages) -> None:
    integer(value, 0, INT64, f"the fact {name}")


def _exactly(expected: Any, name: str, value: Any, storages: Storages) -> None:
    if type(value) is not type(expected) or value != expected:
        malformed(f"the fact {name} is {value!r}; allowed: {expected}")


def _warnings(name: str, value: Any, storages: Storages) -> None:
    for row in _collection(name, value):
        if not notes.well_formed(row):
            malformed(f"the warning {row!r}")


def _files(name: str, value: Any, storages: Storages) -> None:
    for entry in _collection(name, value):
        kinds = tuple(map(type, entry)) if isinstance(entry, (list, tuple)) else ()
        if kinds not in ((str, float, int), (str, int, int)):
            malformed(f"the file {entry!r}; allowed: (path, time, size)")


def _marks(name: str, value: Any, storages: Storages) -> None:
    least = 0
    for mark in _collection(name, value):
        if not isinstance(mark, (list, tuple)) or len(mark) != 2:
            malformed(f"{mark!r} in the fact {name}; allowed: (instruction, number of a copy)")
        least = integer(mark[0], least, INT64, f"an instruction in the fact {name}")
        integer(mark[1], 0, INT64, f"the number of a copy in the fact {name}")


_IN_PSUM: Final = partial(_storages, kind="psum", refused="can't accumulate matmuls; only PSUM can")
_SHARED: Final = partial(_storages, kind="shared", refused="in the fact {}; it isn't shared")
_CHECKS: Final[Mapping[str, Callable[[str, Any, Storages], None]]] = MappingProxyType(
    {
        **dict.fromkeys(("poison", "unplaced", REPLACED), _storages),
        **dict.fromkeys((DOUBTFUL, UNSTORED, OPEN_READS), _SHARED),
        **dict.fromkeys(("peak_sbuf", "peak_psum", "peak_hbm"), _bytes),
        **dict.fromkeys(("zeroed", BARRIER_CHECK), partial(_exactly, True)),
        WRITTEN_INPUTS: _indices,
        "runtime_psum": _IN_PSUM,
        PRECISE: partial(_exactly, 0),
        notes.FACT: _warnings,
        "files": _files,
        UNROLLED: _marks,
    }
)
