"""Reading a program's facts: what the compiler's passes found out.

Invariant: facts that linking, launching and listing look at are of the kind that passes write, and
name only storages and instructions that there are. Others are plain data that nobody looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from nki_dist.compiler import notes
from nki_dist.compiler.config import BARRIER_CHECK
from nki_dist.compiler.decode_tables import INT64, integer
from nki_dist.compiler.passes.between_cores import OPEN_READS
from nki_dist.compiler.passes.unwritten import DOUBTFUL, REPLACED, UNSTORED, WRITTEN_INPUTS
from nki_dist.compiler.values import read_value
from nki_dist.compiler.widen import FACT as PRECISE
from nki_dist.compiler.wire import malformed
from nki_dist.program import UNROLLED, Storage

Storages: TypeAlias = "Sequence[Storage]"


def read_facts(
    packed: Any,
    access: Callable[[Any], Any],
    register: Callable[[Any], Any],
    storages: Storages,
) -> dict[str, Any]:
    """The facts, those that name instructions not yet compared with the program's.

    Raises:
        ProgramFormatError: no pass writes such facts.
    """
    facts = read_value(packed, access, register)
    if type(facts) is not dict or not all(type(key) is str for key in facts):
        malformed("facts aren't a dict with text keys")
    for name, value in facts.items():
        check = _CHECKS.get(name)
        if check is not None:
            check(name, value, storages)
    return facts


def check_instructions(facts: Mapping[str, Any], count: int) -> None:
    """The same for facts that name instructions, once it is known how many there are."""
    for number in _collection("watched", facts.get("watched", ())):
        integer(number, 0, count, "an instruction in the fact watched")


def _collection(name: str, value: Any) -> Any:
    if not isinstance(value, (list, tuple, set, frozenset)):
        malformed(f"the fact {name} is of type {type(value).__name__}; allowed: a list")
    return value


def _storages(name: str, value: Any, storages: Storages) -> None:
    for number in _collection(name, value):
        integer(number, 0, len(storages), f"a storage in the fact {name}")


def _indices(name: str, value: Any, storages: Storages) -> None:
    for index in _collection(name, value):
        integer(index, 0, INT64, f"an argument in the fact {name}")


def _in_psum(name: str, value: Any, storages: Storages) -> None:
    _storages(name, value, storages)
    for number in value:
        if storages[number].region.value != "psum":
            malformed(f"{storages[number].label} can't accumulate matmuls; only PSUM can")


def _shared(name: str, value: Any, storages: Storages) -> None:
    _storages(name, value, storages)
    for number in value:
        if storages[number].role != "shared":
            malformed(f"{storages[number].label} in the fact {name}; it isn't shared")


def _bytes(name: str, value: Any, storages: Storages) -> None:
    integer(value, 0, INT64, f"the fact {name}")


def _true(name: str, value: Any, storages: Storages) -> None:
    if value is not True:
        malformed(f"the fact {name} is {value!r}; allowed: True")


def _zero(name: str, value: Any, storages: Storages) -> None:
    if type(value) is not int or value != 0:
        malformed(f"the fact {name} is {value!r}; allowed: 0")


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


_CHECKS: Final[Mapping[str, Callable[[str, Any, Storages], None]]] = MappingProxyType(
    {
        "poison": _storages,
        "unplaced": _storages,
        REPLACED: _storages,
        WRITTEN_INPUTS: _indices,
        "runtime_psum": _in_psum,
        DOUBTFUL: _shared,
        UNSTORED: _shared,
        OPEN_READS: _shared,
        "peak_sbuf": _bytes,
        "peak_psum": _bytes,
        "peak_hbm": _bytes,
        "zeroed": _true,
        BARRIER_CHECK: _true,
        PRECISE: _zero,
        notes.FACT: _warnings,
        "files": _files,
        UNROLLED: _marks,
    }
)
