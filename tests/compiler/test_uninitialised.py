"""Unwritten elements: harmless while discarded, an error where they would be noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.passes.elements import Elements, covers
from nki_dist.compiler.passes.taint_rules import APPLY, RULES
from nki_dist.compiler.passes.uninitialised import WRITES_IN_PART
from nki_dist.errors import UninitializedReadError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access
from tests.compiler.compiling import compiled, line_of, named

INPUT = ((48, 33), np.float32)


def _sbuf(shape=(48, 33), dtype=nl.float32, name="", buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer, name=name)


def _hbm(shape=(48, 33), dtype=nl.float32, name="out"):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm, name=name)


def _refused(kernel: Callable[..., Any], *inputs: Any, **options: Any) -> UninitializedReadError:
    with pytest.raises(UninitializedReadError) as caught:
        compiled(kernel, *(inputs or (INPUT,)), **options)
    return caught.value


def _stored(body: Callable[..., None], want: bool) -> None:
    """`body(a, loaded, partly, result)`: `partly` misses column 7, `result` is what is returned."""

    def kernel(a):
        out = _hbm()
        loaded, partly, result = _sbuf(), _sbuf(name="partly"), _sbuf()
        nisa.dma_copy(dst=loaded, src=a)
        nisa.tensor_copy(dst=partly[:, 0:7], src=loaded[:, 0:7])
        nisa.tensor_copy(dst=partly[:, 8:33], src=loaded[:, 8:33])
        nisa.memset(dst=result, value=0)
        body(a, loaded, partly, result)
        nisa.dma_copy(dst=out, src=result)
        return out

    if want:
        assert "partly" in str(_refused(kernel))
    else:
        facts = compiled(kernel, INPUT).programs[0].facts
        assert facts["uninitialised_reads"]


def test_a_clean_kernel_poisons_nothing() -> None:
    def kernel(a):
        out = _hbm()
        tile, other = _sbuf(), _sbuf()
        for n in range(3):
            nisa.dma_copy(dst=tile[:, n::3], src=a[:, n::3])
        nisa.tensor_tensor(dst=other, data1=tile, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out, src=other)
        return out

    facts = compiled(kernel, INPUT, strict=True).programs[0].facts
    assert facts["poison"] == [] == facts["uninitialised_reads"] == facts["unwritten_outputs"]


def test_what_reaches_an_output_is_named_from_read_to_store() -> None:
    def kernel(a):
        out = _hbm()
        tile = nl.ndarray((48, 33), dtype=nl.float32, buffer=nl.sbuf, name="tile")
        other = _sbuf()
        nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
        nisa.tensor_tensor(dst=other, data1=tile, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out, src=other)
        return {"sum": out}

    error = _refused(kernel)
    text = str(error)
    assert "48 of 1584 elements of output['sum'], out (48x33 float32 in shared_hbm)" in text
    assert f"nisa.tensor_tensor at {line_of(kernel, 'data1=tile')} read them from tile" in text
    assert f"allocated at {line_of(kernel, 'tile = ')}" in text
    assert f"nisa.dma_copy at {line_of(kernel, 'src=other')} stored" in text
    assert error.location == line_of(kernel, "data1=tile")
    assert error.core == 0 and error.instruction == "nisa.tensor_tensor"


def test_discarded_padding_is_poisoned_and_let_pass_but_not_by_strict() -> None:
    def kernel(a):
        out = _hbm((48, 32))
        tile, other = _sbuf(name="tile"), _sbuf()
        nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
        nisa.tensor_copy(dst=other, src=tile)
        nisa.dma_copy(dst=out, src=other[:, 0:32])
        return out

    program = compiled(kernel, INPUT).programs[0]
    tile = named(program.storages, "tile")
    assert program.facts["poison"] == [tile.number]
    ((ordinal, number, location),) = program.facts["uninitialised_reads"]
    assert number == tile.number and ordinal == 1
    assert program.where(location) == line_of(kernel, "src=tile")
    error = _refused(kernel, strict=True)
    assert error.location == line_of(kernel, "src=tile")
    assert "tile (48x33 float32 in sbuf)" in str(error)


def test_inputs_written_in_place_count_as_outputs() -> None:
    def kernel(a):
        tile = _sbuf()
        nisa.dma_copy(dst=a, src=tile)

    assert "1584 of 1584 elements of input arg0" in str(_refused(kernel))


def test_a_later_store_of_clean_data_repairs_an_output() -> None:
    def kernel(a):
        out, tile = _hbm(), _sbuf()
        nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
        nisa.dma_copy(dst=out, src=tile)
        nisa.dma_copy(dst=out[:, 32:33], src=a[:, 32:33])
        return out

    compiled(kernel, INPUT)


def test_only_the_returned_part_of_a_tensor_counts() -> None:
    def kernel(a, columns):
        out, tile = _hbm(), _sbuf()
        nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
        nisa.dma_copy(dst=out, src=tile)
        return out[:, 0:columns]

    compiled(lambda a: kernel(a, 32), INPUT)
    _refused(lambda a: kernel(a, 33))


def test_private_hbm_is_followed_like_a_tile() -> None:
    def kernel(a, columns):
        out = _hbm((48, 33))
        scratch = _sbuf(name="scratch", buffer=nl.private_hbm)
        nisa.dma_copy(dst=scratch[:, 0:30], src=a[:, 0:30])
        nisa.dma_copy(dst=out[:, 0:columns], src=scratch[:, 0:columns])
        return out

    facts = compiled(lambda a: kernel(a, 30), INPUT).programs[0].facts
    assert facts["uninitialised_reads"] == []
    assert "scratch" in str(_refused(lambda a: kernel(a, 31)))


# ---- rules --------------------------------------------------------------------------------------


def test_elementwise_marks_the_same_element() -> None:
    def at(column, data1_partly=True):
        def body(a, loaded, partly, result):
            other = _sbuf()
            one, two = (partly, loaded) if data1_partly else (loaded, partly)
            nisa.tensor_tensor(dst=other, data1=one, data2=two, op=nl.multiply)
            nisa.tensor_copy(dst=result[:, 0:1], src=other[:, column : column + 1])

        return body

    _stored(at(7), True)
    _stored(at(7, False), True)
    _stored(at(6), False)
    _stored(at(8), False)


def test_one_element_per_partition_marks_the_partition() -> None:
    def scaled_by(column):
        def body(a, loaded, partly, result):
            whole = _sbuf()
            nisa.tensor_copy(dst=whole, src=partly)
            operand = whole[:, column : column + 1]
            nisa.tensor_scalar(dst=result, data=loaded, op0=nl.multiply, operand0=operand)

        return body

    _stored(scaled_by(7), True)
    _stored(scaled_by(9), False)


def test_activation_marks_data_and_bias() -> None:
    def body(a, loaded, partly, result):
        other = _sbuf()
        nisa.activation(dst=other, op=nl.exp, data=partly)
        nisa.tensor_copy(dst=result[:, 5:9], src=other[:, 5:9])

    _stored(body, True)


def test_a_reduction_marks_the_rows_that_contain_it() -> None:
    def over(first, last):
        def body(a, loaded, partly, result):
            total, whole = _sbuf((48, 1)), _sbuf()
            nisa.tensor_copy(dst=whole, src=partly)
            nisa.tensor_reduce(dst=total, op=nl.add, data=whole[:, first:last], axis=1)
            nisa.tensor_copy(dst=result[:, 0:1], src=total)

        return body

    _stored(over(0, 8), True)
    _stored(over(8, 33), False)


def test_a_grouped_reduction_marks_only_its_group() -> None:
    def group(number):
        def body(a, loaded, partly, result):
            total, whole = _sbuf((48, 3)), _sbuf()
            nisa.tensor_copy(dst=whole, src=partly)
            nisa.tensor_reduce(dst=total, op=nl.add, data=whole.reshape((48, 3, 11)), axis=2)
            nisa.tensor_copy(dst=result[:, 0:1], src=total[:, number : number + 1])

        return body

    _stored(group(0), True)
    _stored(group(1), False)


def test_a_matmul_marks_columns_of_either_operand() -> None:
    def kernel(a, rows, columns):
        out = _hbm((40, 33))
        loaded, partly = _sbuf(), _sbuf((48, 40), name="partly")
        nisa.dma_copy(dst=loaded[:, 0:30], src=a[:, 0:30])
        nisa.memset(dst=partly[:, 0:35], value=1)
        product = _sbuf((40, 33), buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=partly, moving=loaded)
        copied = _sbuf((40, 33))
        nisa.tensor_copy(dst=copied, src=product)
        nisa.dma_copy(dst=out[0:rows, 0:columns], src=copied[0:rows, 0:columns])
        return out[0:rows, 0:columns]

    compiled(lambda a: kernel(a, 35, 30), INPUT)
    _refused(lambda a: kernel(a, 36, 30))
    _refused(lambda a: kernel(a, 35, 31))


def test_adding_to_unwritten_psum_is_a_read_and_replacing_is_not() -> None:
    def kernel(a, accumulate):
        out = _hbm((33, 33))
        loaded = _sbuf()
        nisa.dma_copy(dst=loaded, src=a)
        product = _sbuf((33, 33), name="product", buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=loaded, moving=loaded, accumulate=accumulate)
        copied = _sbuf((33, 33))
        nisa.tensor_copy(dst=copied, src=product)
        nisa.dma_copy(dst=out, src=copied)
        return out

    compiled(lambda a: kernel(a, None), INPUT, strict=True)
    compiled(lambda a: kernel(a, False), INPUT, strict=True)
    assert "product" in str(_refused(lambda a: kernel(a, True)))


@pytest.mark.parametrize(
    ("rows", "columns", "clean"), [(16, 2, True), (17, 2, False), (16, 3, False)]
)
def test_quantizing_marks_groups_that_share_a_scale(rows: int, columns: int, clean: bool) -> None:
    def kernel(a):
        out = _hbm((32, 4), nl.float8_e5m2_x4)
        partly = _sbuf((32, 16), nl.bfloat16, "partly")
        nisa.dma_copy(dst=partly[0:21, 0:9], src=a[0:21, 0:9])
        packed, scale = _sbuf((32, 4), nl.float8_e5m2_x4), _sbuf((4, 4), nl.uint8)
        nisa.quantize_mx(dst=packed, src=partly, dst_scale=scale)
        nisa.dma_copy(dst=out[0:rows, 0:columns], src=packed[0:rows, 0:columns])
        return out[0:rows, 0:columns]

    given = ((32, 16), ml_dtypes.bfloat16)
    if clean:
        assert compiled(kernel, given, platform="trn3").programs[0].facts["uninitialised_reads"]
    else:
        assert "partly" in str(_refused(kernel, given, platform="trn3"))


def test_a_transpose_moves_marks() -> None:
    def kernel(a, rows):
        out = _hbm((33, 48))
        tile = _sbuf()
        nisa.dma_copy(dst=tile[:, 0:20], src=a[:, 0:20])
        turned = _sbuf((33, 48), buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=tile)
        copied = _sbuf((33, 48))
        nisa.tensor_copy(dst=copied, src=turned)
        nisa.dma_copy(dst=out[0:rows], src=copied[0:rows])
        return out[0:rows]

    compiled(lambda a: kernel(a, 20), INPUT)
    _refused(lambda a: kernel(a, 21))


def test_overwriting_with_clean_data_ends_it() -> None:
    def body(a, loaded, partly, result):
        other = _sbuf()
        nisa.tensor_copy(dst=other, src=partly)
        nisa.memset(dst=other[:, 7:8], value=0)
        nisa.tensor_copy(dst=result, src=other)

    _stored(body, False)


def test_a_view_of_another_dtype_marks_the_bytes() -> None:
    def kernel(a, half):
        out = _hbm((48, 33))
        tile = _sbuf((48, 66), nl.bfloat16)
        nisa.memset(dst=tile[:, half::2], value=0)
        nisa.dma_copy(dst=out, src=tile.view(nl.float32))
        return out

    def both(a):
        out = _hbm((48, 33))
        tile = _sbuf((48, 66), nl.bfloat16)
        for half in range(2):
            nisa.memset(dst=tile[:, half::2], value=0)
        nisa.dma_copy(dst=out, src=tile.view(nl.float32))
        return out

    _refused(lambda a: kernel(a, 0))
    _refused(lambda a: kernel(a, 1))
    compiled(both, INPUT, strict=True)


# ---- indices, registers, loops ------------------------------------------------------------------


def test_an_unwritten_register_source_is_refused() -> None:
    def kernel(a):
        out, tile = _hbm(), _sbuf((1, 1), nl.int32, name="count")
        register = nisa.register_alloc(tile)
        nisa.dma_copy(dst=out, src=a)
        for _ in nl.dynamic_range(register):
            nisa.dma_copy(dst=out, src=a)
        return out

    error = _refused(kernel)
    assert "register_load loads them into a register" in str(error) and "count" in str(error)
    assert error.location == line_of(kernel, "register_alloc")


def test_unwritten_rows_of_a_vector_offset_are_refused() -> None:
    def kernel(a, rows):
        out = _hbm((16, 33))
        index, tile = _sbuf((16, 1), nl.int32, name="index"), _sbuf((16, 33))
        nisa.memset(dst=index[0:rows, :], value=3)
        rows_of_a = a.ap(pattern=[[33, 16], [1, 33]], vector_offset=index, indirect_dim=0)
        nisa.dma_copy(dst=tile, src=rows_of_a)
        nisa.dma_copy(dst=out, src=tile)
        return out

    compiled(lambda a: kernel(a, 16), INPUT, strict=True)
    assert "as run-time index" in str(_refused(lambda a: kernel(a, 15)))


def _loop_kernel(fill_before: bool, static: bool) -> Callable[..., Any]:
    def kernel(a, count):
        out = _hbm()
        tile = _sbuf(name="tile")
        if fill_before:
            nisa.memset(dst=tile, value=0)
        loaded = _sbuf((1, 1), nl.int32)
        nisa.dma_copy(dst=loaded, src=count)
        for _ in nl.dynamic_range(3 if static else nisa.register_alloc(loaded)):
            nisa.dma_copy(dst=tile, src=a)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return kernel


@pytest.mark.parametrize(
    ("fill_before", "static", "poisoned"),
    [(True, False, False), (False, True, False), (False, False, True)],
)
def test_a_loop_that_may_not_run_counts_as_writing_but_is_poisoned(
    fill_before: bool, static: bool, poisoned: bool
) -> None:
    inputs = (INPUT, ((1, 1), np.int32))
    program = compiled(_loop_kernel(fill_before, static), *inputs).programs[0]
    tile = named(program.storages, "tile")
    assert (tile.number in program.facts["poison"]) is poisoned
    assert program.facts["uninitialised_reads"] == []


@pytest.mark.parametrize(("columns", "refused"), [(33, True), (20, True), (0, False)])
def test_stores_at_run_time_offsets_are_refused_if_surely_wrong(
    columns: int, refused: bool
) -> None:
    """A column missing in every row stays wrong wherever rows go; missing rows may be redone."""

    def kernel(a):
        out = _hbm((480, 33))
        tile = _sbuf()
        nisa.dma_copy(dst=tile[0:40, :], src=a[0:40, :])
        if columns:
            nisa.dma_copy(dst=tile[40:48, 0:20], src=a[40:48, 0:20])
            garbage = _sbuf()
            nisa.tensor_copy(dst=tile[:, 33 - columns :], src=garbage[:, 33 - columns :])
        for r in nl.dynamic_range(0, 432):
            nisa.dma_copy(dst=out[nl.ds(r, 48), :], src=tile)
        return out

    if refused:
        assert "elements of output" in str(_refused(kernel))
    else:
        assert compiled(kernel, INPUT).programs[0].facts["poison"]


def test_reads_at_run_time_offsets_trust_a_partly_written_tensor() -> None:
    def kernel(a, written):
        out = _hbm((480, 33), name="out")
        cache = _sbuf((480, 33), name="cache", buffer=nl.private_hbm)
        tile = _sbuf()
        if written:
            nisa.dma_copy(dst=cache[0:48, :], src=a)
        for r in nl.dynamic_range(0, 5):
            nisa.dma_copy(dst=tile, src=cache[nl.ds(r, 48), :])
            nisa.dma_copy(dst=out[nl.ds(r, 48), :], src=tile)
        return out

    program = compiled(lambda a: kernel(a, True), INPUT).programs[0]
    assert named(program.storages, "cache").number in program.facts["poison"]
    assert program.facts["uninitialised_reads"] == []
    assert "cache" in str(_refused(lambda a: kernel(a, False)))


def test_storages_of_a_loop_body_are_new_in_every_iteration() -> None:
    def kernel(a):
        out = _hbm()
        for _ in nl.dynamic_range(4):
            tile, other = _sbuf(), _sbuf()
            nisa.tensor_copy(dst=other, src=tile)
            nisa.dma_copy(dst=tile, src=a)
            nisa.dma_copy(dst=out, src=other)
        return out

    _refused(kernel)


# ---- shared memory and cores --------------------------------------------------------------------


def test_what_the_other_core_writes_counts_as_written() -> None:
    def kernel(a):
        shared, out = _hbm(name="shared"), _hbm()
        if nl.program_id(0) == 1:
            nisa.dma_copy(dst=shared, src=a)
        nisa.core_barrier(shared, (0, 1))
        tile = _sbuf()
        nisa.dma_copy(dst=tile, src=shared)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=out, src=tile)
        return out

    compiled(kernel, INPUT, lnc=2)


def test_a_shared_tensor_that_nobody_writes_is_unwritten() -> None:
    def kernel(a):
        shared, out = _hbm(name="shared"), _hbm()
        tile = _sbuf()
        nisa.dma_copy(dst=tile, src=shared)
        nisa.dma_copy(dst=out, src=tile)
        return out

    assert "shared" in str(_refused(kernel, INPUT, lnc=2))
    assert "shared" in str(_refused(kernel, INPUT, lnc=1))


def test_halves_of_an_output_repaired_by_the_other_core_are_not_refused() -> None:
    def kernel(a, repair):
        out, tile = _hbm(), _sbuf()
        nisa.dma_copy(dst=tile[0:24], src=a[0:24])
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=out, src=tile)
        nisa.core_barrier(out, (0, 1))
        if nl.program_id(0) == 1 and repair:
            nisa.dma_copy(dst=out[24:48], src=a[24:48])
        return out

    compiled(lambda a: kernel(a, True), INPUT, lnc=2)
    assert _refused(lambda a: kernel(a, False), INPUT, lnc=2).core == 0


@pytest.mark.parametrize("lnc", [1, 2])
def test_outputs_that_nobody_writes_are_noted(lnc: int) -> None:
    def kernel(a):
        out = _hbm()
        me = nl.program_id(0) if lnc == 2 else 0
        nisa.dma_copy(dst=out[me * 20 : me * 20 + 20, :], src=a[0:20, :])
        return out

    first = compiled(kernel, INPUT, lnc=lnc).programs[0]
    number = named(first.storages, "out").number
    assert first.facts["unwritten_outputs"] == [[number, (48 - 20 * lnc) * 33, 48 * 33]]


# ---- the tables ---------------------------------------------------------------------------------


def test_every_instruction_has_a_rule() -> None:
    missing = sorted(set(INSTRUCTIONS) - set(RULES))
    assert not missing, f"instructions without a rule in taint_rules.RULES: {missing}"
    assert {rule.kind for rule in RULES.values()} <= set(APPLY)


def test_rules_name_parameters_that_exist() -> None:
    for opcode, rule in RULES.items():
        if opcode in INSTRUCTIONS:
            unknown = set(rule.sources) - set(INSTRUCTIONS[opcode].roles)
            assert not unknown, f"{opcode}: {unknown}"
    assert set(WRITES_IN_PART) <= set(RULES)


def test_elements_agree_with_indexing() -> None:
    """Masks of strided, reversed and reinterpreted views against NumPy's own indexing."""
    from nki_dist import dtypes
    from nki_dist.program import MemoryRegion, Storage

    s = Storage(0, MemoryRegion.sbuf, (5, 12), dtypes.float32)
    marks = Elements(s)
    marks.put(Access(s, 1, (5, 3), (12, 4), dtypes.float32), np.ones((5, 3), bool))
    marks.put(Access(s, 24 * 2 + 7, (4,), (-2,), dtypes.bfloat16), np.ones(4, bool))
    want = np.zeros((5, 12, 2), bool)
    want[:, 1::4][:, :3] = True
    want.reshape(-1)[[55, 53, 51, 49]] = True
    whole = Access(s, 0, (5, 12), (12, 1), dtypes.float32)
    assert np.array_equal(marks.any(whole), want.any(axis=2))
    halves = Access(s, 0, (5, 24), (24, 1), dtypes.bfloat16)
    assert np.array_equal(marks.any(halves), want.reshape(5, 24))


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "whole"),
    [
        ((5, 12), (12, 1), 0, True),
        ((12, 5), (1, 12), 0, True),
        ((5, 12), (12, -1), 11, True),
        ((5, 12), (12, 0), 0, False),
        ((5, 11), (12, 1), 0, False),
        ((1, 60), (0, 1), 0, True),
    ],
)
def test_covers(shape, strides, offset, whole) -> None:
    from nki_dist import dtypes
    from nki_dist.program import MemoryRegion, Storage

    s = Storage(0, MemoryRegion.sbuf, (5, 12), dtypes.float32)
    assert covers(Access(s, offset, shape, strides, dtypes.float32)) is whole
