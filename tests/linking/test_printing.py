"""The listing of a linked program, and `nki-dist disasm --linked`."""

from __future__ import annotations

import numpy as np
import pytest

from nki_dist import arch
from nki_dist.cli import main
from nki_dist.dtypes import float32
from nki_dist.linking.link import link
from nki_dist.linking.lowering import Slot
from nki_dist.linking.printing import listing, operation_text
from nki_dist.ops.function import copy
from nki_dist.ops.operation import RegisterNumber, op
from nki_dist.ops.place import Place
from tests.compiler import programs
from tests.linking.test_linked import BF16, twice


def lines(kernel, *shapes) -> list[str]:
    (program,) = programs.compiled(kernel, *shapes).programs
    return list(listing(link(program, arch.get("trn2"))))


def test_kinds_come_once_and_instructions_say_where_their_operands_begin() -> None:
    def kernel(a, b):
        return programs.two_cores(a, b)

    assert lines(kernel, (256, 6), (256, 6)) == [
        "linked kernel  platform trn2  core 0 of 1  kinds 2  runs 8",
        "",
        "kind 0",
        "  copy  %0+0[128:24, 6:4] uint32, %1+0[128:24, 6:4] uint32",
        "kind 1",
        "  add  %0+0[128:24, 6:4] float32, %1+0[128:24, 6:4] float32, %0+0[128:24, 6:4] float32",
        "",
        "0: nisa.dma_copy  kind 0(ta#3+0, in0#0+0)",
        "1: nisa.dma_copy  kind 0(tb#4+0, in1#1+0)",
        "2: nisa.tensor_tensor  kind 1(ta#3+0, tb#4+0)",
        "3: nisa.dma_copy  kind 0(sum#2+0, ta#3+0)",
        "4: nisa.dma_copy  kind 0(ta#5+0, in0#0+3072)",
        "5: nisa.dma_copy  kind 0(tb#6+0, in1#1+3072)",
        "6: nisa.tensor_tensor  kind 1(ta#5+0, tb#6+0)",
        "7: nisa.dma_copy  kind 0(sum#2+3072, ta#5+0)",
    ]


def test_loops_and_what_is_settled_at_run_time() -> None:
    assert lines(programs.loops, (4, 3, 8), ((1, 1), programs.dtypes.int32))[-8:] == [
        "3: nisa.memset  kind 3(total#4+0)",
        "for r1 in 0 to r0:",
        "  4: nisa.dma_copy  at run time",
        "  5: nisa.tensor_tensor  kind 4(total#4+0, tile#5+0)",
        "  for r2 in 0 to 3 step 2:",
        "    6: nisa.dma_copy  at run time",
        "  end",
        "end",
    ]


def test_spaces_births_and_what_others_do() -> None:
    found = lines(programs.matmul, (16, 12), (16, 20))
    assert "  panel 0: 1536 bytes" in found
    assert "  mask 6: 480 bytes" in found
    assert "kind 5, 960 bytes of scratch" in found
    assert "4: begins  kind 4(again#6+0, mask 6+0)" in found
    assert "2: nisa.nc_matmul  kind 2(panel 0+0, tx#3+0, panel 1+0, tw#4+0)" in found


def test_what_waits_for_other_cores() -> None:
    program = programs.compiled(programs.two_cores, (8, 6), (8, 6), cores=2).programs[1]
    assert list(listing(link(program, arch.get("trn2"))))[-2:] == [
        "5: nisa.sendrecv  waits for other cores",
        "6: nisa.core_barrier  waits for other cores",
    ]


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        (Place(("accumulators", "vector"), 4, (3,), (4,), np.float32),
         "accumulators vector+4[3:4] float32"),
        (Place(("scratch", 0), 0, (), (), bool), "scratch+0[] bool"),
        (RegisterNumber(3), "r3"),
        (3, "3"),
        (np.float32(-0.0), "-0.0"),
        (np.arange(6, dtype=np.int32).reshape(2, 3), "2x3 int32 [0, 1, 2, 3, ...]"),
        (np.float32([1.5]), "1 float32 [1.5]"),
        (float32, "float32"),
        (Slot.RANK, "rank"),
        (None, "None"),
    ],
)  # fmt: skip
def test_arguments(argument, shown) -> None:
    assert operation_text(op(copy, argument)) == f"copy  {shown}"


def test_the_command(tmp_path, capsys, monkeypatch) -> None:
    path = str(tmp_path / "twice.nki-dist")
    programs.compiled(twice, *BF16).save(path)
    assert main(["disasm", path, "--linked"]) == 0
    whole = capsys.readouterr().out
    assert whole.startswith("linked twice  platform trn2  core 0 of 1  kinds ")
    monkeypatch.setenv("NKI_DIST_LINK_WITHOUT", "all")
    assert main(["disasm", path, "--linked"]) == 0
    assert capsys.readouterr().out != whole


def test_the_command_shows_the_cores_that_are_asked_for(tmp_path, capsys) -> None:
    path = str(tmp_path / "two.nki-dist")
    programs.compiled(programs.two_cores, (8, 6), (8, 6), cores=2).save(path)
    assert main(["disasm", path, "--linked", "--core", "1"]) == 0
    shown = capsys.readouterr().out
    assert "core 1 of 2" in shown
    assert "core 0 of 2" not in shown
