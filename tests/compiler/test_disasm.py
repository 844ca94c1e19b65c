"""Listings: what a reader needs is there, and patterns say which elements are meant."""

from __future__ import annotations

import re

import pytest

from nki_dist import dtypes
from nki_dist.compiler.decode import decode
from nki_dist.compiler.disasm import access_text, instruction_text, listing, value_text
from nki_dist.compiler.values import Structure
from nki_dist.isa.enums import oob_mode
from nki_dist.program import Access, Dynamic, MemoryRegion, Storage, VirtualRegister, instructions
from tests.compiler.programs import encoded, real

STORAGE = Storage(3, MemoryRegion.sbuf, (16, 6, 4), dtypes.float32, "x")


def text(kernel: int, **options: bool) -> str:
    return "\n".join(listing(real()[kernel].programs[-1], **options))


def access(offset, shape, strides, dtype=dtypes.float32, dynamic=None):
    return access_text(Access(STORAGE, offset, shape, strides, dtype, dynamic))


@pytest.mark.parametrize(
    ("shown", "offset", "shape", "strides"),
    [
        ("x#3[0:16, 0:6, 0:4]:float32", 0, (16, 6, 4), (24, 4, 1)),
        ("x#3[2:5, 1:6:2, 3:4]:float32", 55, (3, 3, 1), (24, 8, 1)),
        ("x#3+0[24 x 16, 1 x 24]:float32", 0, (16, 24), (24, 1)),
        ("x#3+4[24 x 16, 0 x 3, 1 x 4]:float32", 4, (16, 3, 4), (24, 0, 1)),
        ("x#3+3[24 x 2, -1 x 3, 4 x 1]:float32", 3, (2, 3, 1), (24, -1, 4)),
    ],
)
def test_patterns(shown, offset, shape, strides):
    assert access(offset, shape, strides) == shown


def test_reinterpreted_and_moving_accesses():
    whole = (0, (16, 6, 8), (48, 8, 1))
    assert access(*whole, dtypes.bfloat16) == "x#3+0[48 x 16, 8 x 6, 1 x 8]:bfloat16"
    moving = Dynamic("scalar", VirtualRegister(2), 24, 16, 0)
    shown = access(0, (1, 6, 4), (24, 4, 1), dynamic=moving)
    assert shown == "x#3[0:1, 0:6, 0:4]:float32 @scalar(r2 x 24, dim 0 < 16)"


def test_values():
    assert value_text([1, (2.0,), None, "add"]) == "[1, (2.0,), None, add]"
    assert value_text({"a": (oob_mode.skip, dtypes.int8)}) == "{'a': (skip, int8)}"
    assert value_text(Structure("Pair", {"left": 1})) == "Pair{'left': 1}"


def test_header_and_storages():
    shown = text(0)
    assert "kernel two_cores  platform trn2  core 1 of 2  instructions 11" in shown
    assert re.search(r"in1#1 +shared_hbm +384x24 float32 +input 1 +lives 1\.\.5, only read", shown)
    assert re.search(r"sum#2 +shared_hbm +384x24 float32 +shared 0 +lives 3\.\.10  ;", shown)


def test_one_line_per_instruction_with_engine_operands_and_place():
    shown = text(0)
    assert re.search(
        r" 2: vector +tensor_tensor +dst=ta#3\[0:128, 0:24\]:float32 .* op=add  ; programs\.py:\d+",
        shown,
    )
    lines = [line for line in shown.splitlines() if re.match(r" *\d+: ", line)]
    assert len(lines) == 11


def test_defaults_are_left_out_and_other_values_are_shown():
    assert "oob_mode=skip" in text(2)
    assert "dge_mode" not in text(2)
    assert "tile_position" not in text(3)
    assert "accumulate=replace" in text(3)


def test_loops_are_indented_with_their_bounds():
    shown = text(1)
    assert re.search(r"\n +for r1 in 0 to r0:  ; ", shown)
    assert re.search(r"\n +for r2 in 0 to 3 step 2:  ; ", shown)
    assert re.search(r"\n4:   dma ", shown)
    assert re.search(r"\n6:     dma ", shown)
    assert "after=4" in shown
    assert "no_reorder=1" in shown


def test_source_lines_and_constants_on_request():
    assert "# nisa.dma_copy(dst=count, src=n)" in text(1, source=True)
    assert "# nisa" not in text(1)
    assert "00 00 80 3f" in text(2, constants=True)
    assert "00 00 80 3f" not in text(2)


def test_a_decoded_program_lists_the_same():
    for data, program in zip(encoded(), [p for c in real() for p in c.programs], strict=True):
        assert list(listing(decode(data))) == list(listing(program))


def test_every_instruction_can_be_shown():
    for compiled in real():
        for program in compiled.programs:
            for i in instructions(program.body):
                assert instruction_text(i).startswith(i.engine)
