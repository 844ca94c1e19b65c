"""How instructions pass on unwritten elements: by element, row, column, group, and as moved."""

from __future__ import annotations

import ml_dtypes
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.compiler.compiling import compiled
from tests.compiler.uninitialised import INPUT, hbm, refusal, sbuf, stored


def test_elementwise_marks_the_same_element() -> None:
    def at(column, data1_partly=True):
        def body(a, loaded, partly, result):
            other = sbuf()
            one, two = (partly, loaded) if data1_partly else (loaded, partly)
            nisa.tensor_tensor(dst=other, data1=one, data2=two, op=nl.multiply)
            nisa.tensor_copy(dst=result[:, 0:1], src=other[:, column : column + 1])

        return body

    stored(at(7), True)
    stored(at(7, False), True)
    stored(at(6), False)
    stored(at(8), False)


def test_one_element_per_partition_marks_the_partition() -> None:
    def scaled_by(column):
        def body(a, loaded, partly, result):
            whole = sbuf()
            nisa.tensor_copy(dst=whole, src=partly)
            operand = whole[:, column : column + 1]
            nisa.tensor_scalar(dst=result, data=loaded, op0=nl.multiply, operand0=operand)

        return body

    stored(scaled_by(7), True)
    stored(scaled_by(9), False)


def test_activation_marks_data_and_bias() -> None:
    def body(a, loaded, partly, result):
        other = sbuf()
        nisa.activation(dst=other, op=nl.exp, data=partly)
        nisa.tensor_copy(dst=result[:, 5:9], src=other[:, 5:9])

    stored(body, True)


def test_a_reduction_marks_the_rows_that_contain_it() -> None:
    def over(first, last):
        def body(a, loaded, partly, result):
            total, whole = sbuf((48, 1)), sbuf()
            nisa.tensor_copy(dst=whole, src=partly)
            nisa.tensor_reduce(dst=total, op=nl.add, data=whole[:, first:last], axis=1)
            nisa.tensor_copy(dst=result[:, 0:1], src=total)

        return body

    stored(over(0, 8), True)
    stored(over(8, 33), False)


def test_a_grouped_reduction_marks_only_its_group() -> None:
    def group(number):
        def body(a, loaded, partly, result):
            total, whole = sbuf((48, 3)), sbuf()
            nisa.tensor_copy(dst=whole, src=partly)
            nisa.tensor_reduce(dst=total, op=nl.add, data=whole.reshape((48, 3, 11)), axis=2)
            nisa.tensor_copy(dst=result[:, 0:1], src=total[:, number : number + 1])

        return body

    stored(group(0), True)
    stored(group(1), False)


def test_a_matmul_marks_columns_of_either_operand() -> None:
    def kernel(a, rows, columns):
        out = hbm((40, 33))
        loaded, partly = sbuf(), sbuf((48, 40), name="partly")
        nisa.dma_copy(dst=loaded[:, 0:30], src=a[:, 0:30])
        nisa.memset(dst=partly[:, 0:35], value=1)
        product = sbuf((40, 33), buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=partly, moving=loaded)
        copied = sbuf((40, 33))
        nisa.tensor_copy(dst=copied, src=product)
        nisa.dma_copy(dst=out[0:rows, 0:columns], src=copied[0:rows, 0:columns])
        return out[0:rows, 0:columns]

    compiled(lambda a: kernel(a, 35, 30), INPUT)
    refusal(lambda a: kernel(a, 36, 30))
    refusal(lambda a: kernel(a, 35, 31))


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


@pytest.mark.parametrize(
    ("rows", "columns", "clean"), [(16, 2, True), (17, 2, False), (16, 3, False)]
)
def test_quantizing_marks_groups_that_share_a_scale(rows: int, columns: int, clean: bool) -> None:
    def kernel(a):
        out = hbm((32, 4), nl.float8_e5m2_x4)
        partly = sbuf((32, 16), nl.bfloat16, "partly")
        nisa.dma_copy(dst=partly[0:21, 0:9], src=a[0:21, 0:9])
        packed, scale = sbuf((32, 4), nl.float8_e5m2_x4), sbuf((4, 4), nl.uint8)
        nisa.quantize_mx(dst=packed, src=partly, dst_scale=scale)
        nisa.dma_copy(dst=out[0:rows, 0:columns], src=packed[0:rows, 0:columns])
        return out[0:rows, 0:columns]

    given = ((32, 16), ml_dtypes.bfloat16)
    if clean:
        assert compiled(kernel, given, platform="trn3").programs[0].facts["uninitialised_reads"]
    else:
        assert "partly" in str(refusal(kernel, given, platform="trn3"))


def test_a_transpose_moves_marks() -> None:
    def kernel(a, rows):
        out = hbm((33, 48))
        tile = sbuf()
        nisa.dma_copy(dst=tile[:, 0:20], src=a[:, 0:20])
        turned = sbuf((33, 48), buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=tile)
        copied = sbuf((33, 48))
        nisa.tensor_copy(dst=copied, src=turned)
        nisa.dma_copy(dst=out[0:rows], src=copied[0:rows])
        return out[0:rows]

    compiled(lambda a: kernel(a, 20), INPUT)
    refusal(lambda a: kernel(a, 21))


def test_overwriting_with_clean_data_ends_it() -> None:
    def body(a, loaded, partly, result):
        other = sbuf()
        nisa.tensor_copy(dst=other, src=partly)
        nisa.memset(dst=other[:, 7:8], value=0)
        nisa.tensor_copy(dst=result, src=other)

    stored(body, False)


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


@pytest.mark.parametrize(("column", "want"), [(0, False), (1, True), (3, False), (5, False)])
def test_statistics_of_even_positions_dont_depend_on_odd_ones(column: int, want: bool) -> None:
    """Column 7 isn't written, which is even within columns 1 to 10; counts are known anyway."""

    def body(a, loaded, partly, result):
        whole, numbers = sbuf(), sbuf((48, 6))
        nisa.tensor_copy(dst=whole, src=partly)
        nisa.bn_stats(dst=numbers, data=whole[:, 1:11])
        nisa.tensor_copy(dst=result[:, 0:1], src=numbers[:, column : column + 1])

    stored(body, want)


@pytest.mark.parametrize(("column", "want"), [(0, False), (1, True)])
def test_a_mean_doesnt_depend_on_variances(column: int, want: bool) -> None:
    def body(a, loaded, partly, result):
        whole, both = sbuf(), sbuf((48, 2))
        nisa.tensor_copy(dst=whole, src=partly)
        nisa.bn_aggr(dst=both, data=whole[:, 2:11])  # triples; column 7 is the second's last
        nisa.tensor_copy(dst=result[:, 0:1], src=both[:, column : column + 1])

    stored(body, want)


@pytest.mark.parametrize(("columns", "want"), [(4, False), (6, True)])
def test_positions_dont_depend_on_values_looked_for_later(columns: int, want: bool) -> None:
    def kernel(a):
        out = hbm((48, columns), nl.uint32)
        data, values, found = sbuf(), sbuf((48, 8), name="values"), sbuf((48, 8), nl.uint32)
        nisa.dma_copy(dst=data, src=a)
        nisa.memset(dst=values[:, 0:5], value=1)
        nisa.nc_find_index8(dst=found, data=data, vals=values)
        nisa.dma_copy(dst=out, src=found[:, 0:columns])
        return out

    if want:
        assert "values" in str(refusal(kernel))
    else:
        assert compiled(kernel, INPUT).programs[0].facts["uninitialised_reads"]


@pytest.mark.parametrize("command", [nisa.reduce_cmd.idle, nisa.reduce_cmd.reset_reduce])
def test_registers_that_are_only_read_out_dont_depend_on_the_operands(command) -> None:
    def body(a, loaded, partly, result):
        other, total = sbuf(), sbuf((48, 1))
        add = {"reduce_op": nl.add, "reduce_res": total, "reduce_cmd": command}
        nisa.activation(dst=other, op=nl.exp, data=partly, **add)
        nisa.tensor_copy(dst=result[:, 0:1], src=total)

    stored(body, command is nisa.reduce_cmd.reset_reduce)
