"""Compiled kernels in files: they come back exactly, and inconsistent ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from nki_dist import dtypes
from nki_dist.compiler import wire
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.compiler.saved import dump, parse
from nki_dist.errors import LaunchError, ProgramFormatError
from nki_dist.program import MemoryRegion, Storage
from tests.compiler.programs import encoded, plain, real

# ---- files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(4))
def test_compiled_kernels_come_back(tmp_path, number):
    compiled = real()[number]
    path = tmp_path / "kernel.nki-dist"
    compiled.save(path)
    back = Compiled.load(path)
    assert dump(back.programs, back.inputs) == path.read_bytes()
    assert back.inputs == compiled.inputs
    assert back.written_inputs == compiled.written_inputs
    assert plain(back.outputs) == plain(compiled.outputs)
    assert plain(back.shared) == plain(compiled.shared)
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.nki-dist"]


def changed_file(**changes: Any) -> bytes:
    compiled = real()[0]
    body = wire.unpack(wire.COMPILED, dump(compiled.programs, compiled.inputs))
    for field, change in changes.items():
        body[field] = change(body[field]) if callable(change) else change
    return wire.pack(wire.COMPILED, body)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"programs": []}, "without programs"),
        ({"programs": lambda p: p[::-1]}, "program 0 of 2 is for core 1 of 2"),
        ({"programs": lambda p: p[:1]}, "program 0 of 1 is for core 0 of 2"),
        ({"inputs": lambda rows: rows[:1]}, "as input 1: None"),
        ({"inputs": lambda rows: [rows[0], *rows]}, "the signature of input 1"),
        ({"offsets": []}, "its parts aren't programs, inputs"),
    ],
)
def test_inconsistent_files_are_refused(changes, message):
    with pytest.raises(ProgramFormatError, match=message):
        parse(changed_file(**changes))


def test_tensors_of_a_file_must_fit_the_stack_together():
    """Each of the two that are added fits."""
    compiled = real()[0]
    programs = [decode(encode(p)) for p in compiled.programs]
    for p in programs:
        for _ in range(2):
            big = Storage(len(p.storages), MemoryRegion.shared_hbm, (13 << 28,), dtypes.float32)
            big.role, big.index = "shared", len(p.shared())
            p.storages.append(big)
    with pytest.raises(ProgramFormatError, match=r"the HBM stack has \d+ bytes on .*needs"):
        parse(dump(programs, compiled.inputs))


def test_what_passes_found_isnt_believed():
    """What may be read unwritten, and what may race, is found anew."""
    compiled = real()[0]
    programs = [decode(encode(p)) for p in compiled.programs]
    wanted = [dict(p.facts) for p in programs]
    for p in programs:
        p.facts.update(poison=[0, 1], watched=[0, 1, 2], peak_hbm=7)
    back, _ = parse(dump(programs, compiled.inputs))
    assert [p.facts for p in back] == wanted


def test_a_program_is_no_compiled_kernel():
    with pytest.raises(ProgramFormatError, match=r"starts with b'NKIP', .*; this is a program"):
        parse(encoded()[0])


def test_files_that_cant_be_read_or_written(tmp_path):
    with pytest.raises(LaunchError, match=r"can't read a compiled kernel from .*missing"):
        Compiled.load(tmp_path / "missing")
    with pytest.raises(LaunchError, match="can't write the compiled kernel"):
        real()[0].save(tmp_path / "no" / "such")
