"""Compiled kernels in files: the programs of all cores and how their HBM tensors are laid out.

Invariant: what `load_compiled` returns is as consistent as what the compiler makes. The cores agree
about kernel, platform and shared allocations, and every tensor lies inside the stack without
touching another.

Not saved: the kernel's source, and why the programs are as they are (the traces).
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from nki_dist import dtypes
from nki_dist.compiler import decode_tables as tables
from nki_dist.compiler.compile import Compiled, TensorSignature
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.compiler.widen import FACT
from nki_dist.compiler.wire import COMPILED, malformed, pack, unpack
from nki_dist.errors import LaunchError, ProgramFormatError
from nki_dist.program import Program, Storage

SUFFIX: Final = ".nki-dist"
"""What files of compiled kernels are called by habit; nothing depends on it."""

_FIELDS: Final = ("programs", "inputs", "written_inputs", "offsets", "stack_bytes")
_ROLES: Final = ("input", "shared")


def save_compiled(compiled: Compiled, path: str | os.PathLike[str]) -> None:
    """Write a compiled kernel to `path`; a reader never sees half a file.

    Raises:
        ProgramFormatError: a program holds something that can't be written down.
        LaunchError: the file can't be written.
    """
    data = dump_compiled(compiled)
    path = Path(path)
    try:
        draft = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            draft.write_bytes(data)
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise LaunchError(f"can't write the compiled kernel to {path}: {error}") from error


def load_compiled(path: str | os.PathLike[str]) -> Compiled:
    """Read a compiled kernel from `path`.

    Raises:
        ProgramFormatError: the file is no compiled kernel of this format version, or damaged.
        LaunchError: the file can't be read.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise LaunchError(f"can't read a compiled kernel from {path}: {error}") from error
    try:
        return parse_compiled(data)
    except ProgramFormatError as error:
        error.message = f"{path}: {error.message}"
        raise


def dump_compiled(compiled: Compiled) -> bytes:
    """A compiled kernel as bytes."""
    body = {
        "programs": [encode(p) for p in compiled.programs],
        "inputs": [
            [s.index, [int(n) for n in s.shape], s.dtype.name, s.name] for s in compiled.inputs
        ],
        "written_inputs": [int(n) for n in compiled.written_inputs],
        "offsets": [
            [_ROLES.index(role), index, at] for (role, index), at in compiled.offsets.items()
        ],
        "stack_bytes": int(compiled.stack_bytes),
    }
    return pack(COMPILED, body)


def parse_compiled(data: bytes) -> Compiled:
    """What `dump_compiled` wrote.

    Raises:
        ProgramFormatError: damaged, inconsistent or of another format version.
    """
    body = unpack(COMPILED, data)
    if type(body) is not dict or tuple(body) != _FIELDS:
        malformed(f"its parts aren't {', '.join(_FIELDS)}")
    programs = [decode(p) for p in tables.sequence(body["programs"], "the programs")]
    shared = _agreed(programs)
    inputs = [_signature(n, row) for n, row in enumerate(tables.sequence(body["inputs"], "inputs"))]
    written = tables.integers(body["written_inputs"], "the inputs that are written")
    stack_bytes = tables.integer(body["stack_bytes"], 0, tables.INT64, "the size of the stack")
    compiled = Compiled(programs, programs[0].outputs, inputs, written, {}, stack_bytes, shared)
    compiled.offsets = _offsets(body["offsets"])
    _check_inputs(compiled)
    _check_layout(compiled)
    return compiled


def _agreed(programs: list[Program]) -> list[Storage]:
    """The shared allocations, which all cores make alike."""
    if not programs:
        malformed("a compiled kernel without programs")
    first = programs[0]
    shared = _shared(first)
    for core, p in enumerate(programs):
        if (p.core, p.cores) != (core, len(programs)):
            malformed(f"program {core} of {len(programs)} is for core {p.core} of {p.cores}")
        if (p.kernel, p.platform) != (first.kernel, first.platform):
            malformed(f"kernel {p.kernel} for {p.platform} among those of {first.kernel}")
        if p.facts.get(FACT) != first.facts.get(FACT):
            malformed(f"core {core} has other numbers in its tensors than core 0 (fact {FACT})")
        made = _shared(p)
        if [s.index for s in made] != list(range(len(shared))) or any(
            (a.shape, a.dtype.name, a.role, a.data) != (b.shape, b.dtype.name, b.role, b.data)
            for a, b in zip(made, shared, strict=True)
        ):
            malformed(f"core {core} makes other shared_hbm allocations than core 0")
    return shared


def _shared(program: Program) -> list[Storage]:
    found = [s for s in program.storages if s.role in ("shared", "constant")]
    return sorted(found, key=lambda s: s.index)


def _signature(number: int, row: Any) -> TensorSignature:
    if type(row) is not list or len(row) != 4 or row[0] != number:
        malformed(f"the signature of input {number}")
    dtype = dtypes.find(tables.text(row[2], "a dtype"))
    if dtype is None or dtype.name != row[2]:
        malformed(f"data type {row[2]!r}; there is none such")
    shape = tables.sizes(row[1], 0, "shape")
    return TensorSignature(number, shape, dtype, tables.text(row[3], "an argument's name"))


def _offsets(rows: Any) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for row in tables.sequence(rows, "the layout"):
        row = tables.integers(row, "an entry of the layout")
        if len(row) != 3 or row[0] not in (0, 1) or min(row) < 0:
            malformed(f"entry {row} of the layout")
        key = (_ROLES[row[0]], row[1])
        if key in found:
            malformed(f"{key[0]} {key[1]} lies in two places")
        found[key] = row[2]
    return found


def _check_inputs(compiled: Compiled) -> None:
    known = {s.index: s for s in compiled.inputs}
    written = set()
    for program in compiled.programs:
        for s in program.storages:
            if s.role != "input":
                continue
            signature = known.get(s.index)
            if signature is None or (signature.shape, signature.dtype) != (s.shape, s.dtype):
                malformed(f"core {program.core} takes {s.label} as input {s.index}: {signature}")
            if s.written:
                written.add(s.index)
    if compiled.written_inputs != sorted(written):
        malformed(f"inputs {compiled.written_inputs} are said to be written, {written} are")


def _check_layout(compiled: Compiled) -> None:
    wanted = {("input", s.index): s.dtype.itemsize for s in compiled.inputs}
    for s in compiled.inputs:
        for n in s.shape:
            wanted["input", s.index] *= n
    wanted.update({("shared", s.index): s.nbytes for s in compiled.shared if s.role == "shared"})
    if wanted.keys() != compiled.offsets.keys():
        malformed("the layout doesn't name exactly the inputs and shared tensors")
    places = sorted((compiled.offsets[key], size) for key, size in wanted.items())
    places.append((compiled.stack_bytes, 0))
    for (at, size), (after, _) in pairwise(places):
        if at % 64 or at + size > after:
            malformed(f"a tensor of {size} bytes at {at} of the stack, and another at {after}")
