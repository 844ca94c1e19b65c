"""Unwritten elements: harmless while discarded, an error where they would be noticed."""

from __future__ import annotations

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.passes.uninitialised import WRITES_COUNTED
from tests.compiler.compiling import compiled, line_of, named
from tests.compiler.uninitialised import INPUT, hbm, refusal, sbuf


def test_a_clean_kernel_poisons_nothing() -> None:
    def kernel(a):
        out = hbm()
        tile, other = sbuf(), sbuf()
        for n in range(3):
            nisa.dma_copy(dst=tile[:, n::3], src=a[:, n::3])
        nisa.tensor_tensor(dst=other, data1=tile, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out, src=other)
        return out

    facts = compiled(kernel, INPUT, check="strict").programs[0].facts
    assert facts["poison"] == [] == facts["uninitialised_reads"] == facts["doubtful_outputs"]


def test_what_reaches_an_output_is_named_from_read_to_store() -> None:
    def kernel(a):
        out = hbm()
        tile = nl.ndarray((48, 33), dtype=nl.float32, buffer=nl.sbuf, name="tile")
        other = sbuf()
        nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
        nisa.tensor_tensor(dst=other, data1=tile, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out, src=other)
        return {"sum": out}

    error = refusal(kernel)
    text = str(error)
    assert "48 of 1584 elements of output['sum'], out (48x33 float32 in shared_hbm)" in text
    assert f"nisa.tensor_tensor at {line_of(kernel, 'data1=tile')} read them from tile" in text
    assert f"allocated at {line_of(kernel, 'tile = ')}" in text
    assert f"nisa.dma_copy at {line_of(kernel, 'src=other')} stored" in text
    assert error.location == line_of(kernel, "data1=tile")
    assert error.core == 0 and error.instruction == "nisa.tensor_tensor"


def test_where_it_came_from_the_last_time_is_named() -> None:
    def kernel(a):
        out, tile = hbm(), sbuf()
        nisa.tensor_copy(dst=tile, src=sbuf(name="first"))
        nisa.dma_copy(dst=tile, src=a)
        nisa.tensor_copy(dst=tile, src=sbuf(name="second"))
        nisa.dma_copy(dst=out, src=tile)
        return out

    assert "nisa.tensor_copy at " in str(refusal(kernel))
    assert "read them from second" in str(refusal(kernel))


def test_discarded_padding_is_poisoned_and_let_pass_but_not_by_strict() -> None:
    def kernel(a):
        out = hbm((48, 32))
        tile, other = sbuf(name="tile"), sbuf()
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
    error = refusal(kernel, check="strict")
    assert error.location == line_of(kernel, "src=tile") and error.core == 0
    assert "tile (48x33 float32 in sbuf)" in str(error)


def test_a_written_part_may_be_read_and_the_rest_still_may_not() -> None:
    def kernel(a, columns):
        out, tile, other = hbm(), sbuf(name="tile"), sbuf()
        nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
        nisa.tensor_copy(dst=other[:, 0:32], src=tile[:, 0:32])
        nisa.tensor_copy(dst=other[:, 0:columns], src=tile[:, 0:columns])
        nisa.dma_copy(dst=out[:, 0:32], src=other[:, 0:32])
        nisa.dma_copy(dst=out[:, 32:33], src=a[:, 32:33])
        return out

    compiled(lambda a: kernel(a, 32), INPUT, check="strict")
    assert "tile (48x33" in str(refusal(lambda a: kernel(a, 33), check="strict"))


@pytest.mark.parametrize("last", [32, 33])
def test_columns_written_over_and_over_are_counted_once(last: int) -> None:
    """Though after so many times nobody counts any more what a store makes complete."""

    def kernel(a):
        out, tile, other = hbm(), sbuf(name="tile"), sbuf()
        nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
        for _ in range(WRITES_COUNTED + 1):
            nisa.dma_copy(dst=tile[:, 0:1], src=a[:, 0:1])
        nisa.dma_copy(dst=tile[:, 31:last], src=a[:, 31:last])
        for dst in (other, out):
            nisa.dma_copy(dst=dst, src=tile)
        return out

    if last == 33:
        compiled(kernel, INPUT, check="strict")
    else:
        assert "tile (48x33" in str(refusal(kernel, check="strict"))


@pytest.mark.parametrize("unwritten", [0, 1, None])
def test_every_tensor_of_a_list_is_read(unwritten: int | None) -> None:
    def kernel(a):
        out, tiles = hbm(), [sbuf(name=f"t{n}") for n in range(2)]
        for n, tile in enumerate(tiles):
            if n != unwritten:
                nisa.dma_copy(dst=tile, src=a)
        nisa.dma_compute(out, tiles, nl.add)
        return out

    if unwritten is None:
        compiled(kernel, INPUT, check="strict")
    else:
        assert f"t{unwritten} (48x33" in str(refusal(kernel, check="strict"))


def test_inputs_written_in_place_count_as_outputs() -> None:
    def kernel(a):
        tile = sbuf()
        nisa.dma_copy(dst=a, src=tile)

    assert "1584 of 1584 elements of input arg0" in str(refusal(kernel))


def test_inputs_may_be_written_in_part() -> None:
    """What they held before is data, too."""

    def kernel(a):
        tile = sbuf((24, 33))
        nisa.memset(dst=tile, value=1)
        nisa.dma_copy(dst=a[0:24], src=tile)

    assert compiled(kernel, INPUT, check="strict").warnings == ()


def test_a_later_store_of_clean_data_repairs_an_output() -> None:
    def kernel(a):
        out, tile = hbm(), sbuf()
        nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
        nisa.dma_copy(dst=out, src=tile)
        nisa.dma_copy(dst=out[:, 32:33], src=a[:, 32:33])
        return out

    compiled(kernel, INPUT)


def test_only_the_returned_part_of_a_tensor_counts() -> None:
    def kernel(a, columns):
        out, tile = hbm(), sbuf()
        nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
        nisa.dma_copy(dst=out, src=tile)
        return out[:, 0:columns]

    compiled(lambda a: kernel(a, 32), INPUT)
    refusal(lambda a: kernel(a, 33))


def test_private_hbm_is_followed_like_a_tile() -> None:
    def kernel(a, columns):
        out = hbm((48, 33))
        scratch = sbuf(name="scratch", buffer=nl.private_hbm)
        nisa.dma_copy(dst=scratch[:, 0:30], src=a[:, 0:30])
        nisa.dma_copy(dst=out[:, 0:columns], src=scratch[:, 0:columns])
        return out

    facts = compiled(lambda a: kernel(a, 30), INPUT).programs[0].facts
    assert facts["uninitialised_reads"] == []
    assert "scratch" in str(refusal(lambda a: kernel(a, 31)))


def test_adding_to_unwritten_psum_is_a_read_and_replacing_is_not() -> None:
    def kernel(a, accumulate):
        out = hbm((33, 33))
        loaded = sbuf()
        nisa.dma_copy(dst=loaded, src=a)
        product = sbuf((33, 33), name="product", buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=loaded, moving=loaded, accumulate=accumulate)
        copied = sbuf((33, 33))
        nisa.tensor_copy(dst=copied, src=product)
        nisa.dma_copy(dst=out, src=copied)
        return out

    compiled(lambda a: kernel(a, None), INPUT, check="strict")
    compiled(lambda a: kernel(a, False), INPUT, check="strict")
    assert "product" in str(refusal(lambda a: kernel(a, True)))


def test_a_view_of_another_dtype_marks_the_bytes() -> None:
    def kernel(a, half):
        out = hbm((48, 33))
        tile = sbuf((48, 66), nl.bfloat16)
        nisa.memset(dst=tile[:, half::2], value=0)
        nisa.dma_copy(dst=out, src=tile.view(nl.float32))
        return out

    def both(a):
        out = hbm((48, 33))
        tile = sbuf((48, 66), nl.bfloat16)
        for half in range(2):
            nisa.memset(dst=tile[:, half::2], value=0)
        nisa.dma_copy(dst=out, src=tile.view(nl.float32))
        return out

    refusal(lambda a: kernel(a, 0))
    refusal(lambda a: kernel(a, 1))
    compiled(both, INPUT, check="strict")


# ---- shared memory and cores --------------------------------------------------------------------


def test_a_shared_tensor_that_nobody_writes_is_unwritten() -> None:
    def kernel(a):
        shared, out = hbm(name="shared"), hbm()
        tile = sbuf()
        nisa.dma_copy(dst=tile, src=shared)
        nisa.dma_copy(dst=out, src=tile)
        return out

    assert "shared" in str(refusal(kernel, INPUT, lnc=2))
    assert "shared" in str(refusal(kernel, INPUT, lnc=1))


def test_halves_of_an_output_repaired_by_the_other_core_are_not_refused() -> None:
    def kernel(a, repair):
        out, tile = hbm(), sbuf()
        nisa.dma_copy(dst=tile[0:24], src=a[0:24])
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=out, src=tile)
        nisa.core_barrier(out, (0, 1))
        if nl.program_id(0) == 1 and repair:
            nisa.dma_copy(dst=out[24:48], src=a[24:48])
        return out

    compiled(lambda a: kernel(a, True), INPUT, lnc=2)
    assert refusal(lambda a: kernel(a, False), INPUT, lnc=2).core == 0
