"""Compiled kernels in files: they come back exactly, and inconsistent ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from nki_dist.compiler import wire
from nki_dist.compiler.saved import dump_compiled, load_compiled, parse_compiled, save_compiled
from nki_dist.errors import LaunchError, ProgramFormatError
from tests.compiler.programs import encoded, plain, real

# ---- files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(4))
def test_compiled_kernels_come_back(tmp_path, number):
    compiled = real()[number]
    path = tmp_path / "kernel.nki-dist"
    save_compiled(compiled, path)
    back = load_compiled(path)
    assert dump_compiled(back) == path.read_bytes()
    assert back.inputs == compiled.inputs
    assert (back.offsets, back.stack_bytes) == (compiled.offsets, compiled.stack_bytes)
    assert back.written_inputs == compiled.written_inputs
    assert plain(back.outputs) == plain(compiled.outputs)
    assert plain(back.shared) == plain(compiled.shared)
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.nki-dist"]


def changed_file(**changes: Any) -> bytes:
    body = wire.unpack(wire.COMPILED, dump_compiled(real()[0]))
    for field, change in changes.items():
        body[field] = change(body[field]) if callable(change) else change
    return wire.pack(wire.COMPILED, body)


def without_input_0(rows: list[list[int]]) -> list[list[int]]:
    return [row for row in rows if row[:2] != [0, 0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"programs": []}, "without programs"),
        ({"programs": lambda p: p[::-1]}, "program 0 of 2 is for core 1 of 2"),
        ({"programs": lambda p: p[:1]}, "program 0 of 1 is for core 0 of 2"),
        ({"inputs": lambda rows: rows[:1]}, "as input 1: None"),
        ({"written_inputs": [0]}, r"inputs \[0\] are said to be written"),
        ({"offsets": lambda rows: rows[:-1]}, "name exactly the inputs and shared tensors"),
        (
            {"offsets": lambda rows: [[0, 0, 64], *without_input_0(rows)]},
            "36864 bytes at 0 of the stack, and another at 64",
        ),
        ({"stack_bytes": 64}, "and another at 64"),
    ],
)
def test_inconsistent_files_are_refused(changes, message):
    with pytest.raises(ProgramFormatError, match=message):
        parse_compiled(changed_file(**changes))


def test_a_program_is_no_compiled_kernel():
    with pytest.raises(ProgramFormatError, match=r"starts with b'NKIP', .*; this is a program"):
        parse_compiled(encoded()[0])


def test_files_that_cant_be_read_or_written(tmp_path):
    with pytest.raises(LaunchError, match=r"can't read a compiled kernel from .*missing"):
        load_compiled(tmp_path / "missing")
    with pytest.raises(LaunchError, match="can't write the compiled kernel"):
        save_compiled(real()[0], tmp_path / "no" / "such")
