"""Compiled kernels in files: the programs of all cores, and the tensors they take.

Invariant: what `load` returns is as consistent as what the compiler makes: the cores agree about
kernel, platform and shared allocations, take the inputs that the file describes, and fit the HBM
together; what runs have to poison and to watch has been found anew.

Not saved: the kernel's source, and why the programs are as they are (the traces).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from nki_dist import arch as architectures
from nki_dist.checks import Checks
from nki_dist.compiler import decode_tables as tables
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.compiler.passes.allocate import check_hbm, peak_private
from nki_dist.compiler.passes.conflicts import find_conflicts
from nki_dist.compiler.passes.uninitialised import check_uninitialised
from nki_dist.compiler.values import data_type
from nki_dist.compiler.widen import FACT
from nki_dist.compiler.wire import COMPILED, malformed, pack, unpack
from nki_dist.errors import LaunchError, NkiError, ProgramFormatError
from nki_dist.program import Program, TensorSignature

_FIELDS: Final = ("programs", "inputs")

Parts: TypeAlias = "tuple[list[Program], list[TensorSignature]]"


def save(
    path: str | os.PathLike[str], programs: Sequence[Program], inputs: Sequence[TensorSignature]
) -> None:
    """Write a compiled kernel to `path`; a reader of a file never sees half of it.

    What isn't a file (a pipe, a device) is written to, a link's file is replaced, and a file that
    was there keeps its mode.

    Raises:
        ProgramFormatError: a program holds something that can't be written down.
        LaunchError: the file can't be written.
    """
    data = dump(programs, inputs)
    try:
        _write(Path(path).resolve(), data)
    except OSError as error:
        message = f"can't write the compiled kernel to {path}: {error}"
        raise LaunchError(message, code="program-file") from error


def _write(path: Path, data: bytes) -> None:
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        path.write_bytes(data)
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(data)
        if mode is not None:
            draft.chmod(stat.S_IMODE(mode))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Parts:
    """Read a compiled kernel from `path`: the programs, and the tensors they take.

    Raises:
        ProgramFormatError: the file is no compiled kernel of this format version, or damaged.
        LaunchError: the file can't be read.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        message = f"can't read a compiled kernel from {path}: {error}"
        raise LaunchError(message, code="program-file") from error
    try:
        return parse(data)
    except ProgramFormatError as error:
        error.message = f"{path}: {error.message}"
        raise


def dump(programs: Sequence[Program], inputs: Sequence[TensorSignature]) -> bytes:
    """A compiled kernel as bytes."""
    body = {
        "programs": [encode(p) for p in programs],
        "inputs": [[s.index, [int(n) for n in s.shape], s.dtype.name, s.name] for s in inputs],
    }
    return pack(COMPILED, body)


def parse(data: bytes) -> Parts:
    """What `dump` wrote.

    Raises:
        ProgramFormatError: damaged, inconsistent or of another format version.
    """
    body = unpack(COMPILED, data)
    if type(body) is not dict or tuple(body) != _FIELDS:
        malformed(f"its parts aren't {', '.join(_FIELDS)}")
    programs = [decode(p) for p in tables.sequence(body["programs"], "the programs")]
    _check_cores(programs)
    inputs = [_signature(n, row) for n, row in enumerate(tables.sequence(body["inputs"], "inputs"))]
    _check_inputs(programs, inputs)
    try:
        _find_again(programs)
    except NkiError as error:
        malformed(str(error))
    return programs, inputs


def _find_again(programs: Sequence[Program]) -> None:
    """Facts that runs rely on aren't believed: what may be read unwritten, and what may race.

    Whether that is an error was decided when the kernel was compiled, under a policy that the file
    doesn't name; here it only decides what is poisoned and watched.
    """
    arch = architectures.get(programs[0].platform)
    for program in programs:
        program.facts["peak_hbm"] = peak_private(program, arch)
    check_hbm(programs, arch)
    zeroed = "zeroed" in programs[0].facts
    check_uninitialised(programs, Checks(unwritten="zero" if zeroed else "nan"))
    find_conflicts(programs)


def _check_cores(programs: Sequence[Program]) -> None:
    """The programs are of the cores of one launch, which make the same shared allocations."""
    if not programs:
        malformed("a compiled kernel without programs")
    first = programs[0]
    shared = first.shared()
    for core, p in enumerate(programs):
        if (p.core, p.cores) != (core, len(programs)):
            malformed(f"program {core} of {len(programs)} is for core {p.core} of {p.cores}")
        if (p.kernel, p.platform) != (first.kernel, first.platform):
            malformed(f"kernel {p.kernel} for {p.platform} among those of {first.kernel}")
        if p.facts.get(FACT) != first.facts.get(FACT):
            malformed(f"core {core} has other numbers in its tensors than core 0 (fact {FACT})")
        allocations = p.shared()
        if [s.index for s in allocations] != list(range(len(shared))) or any(
            (a.shape, a.dtype.name, a.role, a.data) != (b.shape, b.dtype.name, b.role, b.data)
            for a, b in zip(allocations, shared, strict=True)
        ):
            malformed(f"core {core} makes other shared_hbm allocations than core 0")


def _signature(number: int, row: Any) -> TensorSignature:
    if type(row) is not list or len(row) != 4 or row[0] != number:
        malformed(f"the signature of input {number}")
    dtype = data_type(tables.text(row[2], "a dtype"))
    shape = tables.sizes(row[1], 0, "shape")
    return TensorSignature(number, shape, dtype, tables.text(row[3], "an argument's name"))


def _check_inputs(programs: Sequence[Program], inputs: Sequence[TensorSignature]) -> None:
    by_index = {s.index: s for s in inputs}
    for program in programs:
        for s in program.storages:
            if s.role != "input":
                continue
            signature = by_index.get(s.index)
            if signature is None or (signature.shape, signature.dtype) != (s.shape, s.dtype):
                malformed(f"core {program.core} takes {s.label} as input {s.index}: {signature}")
