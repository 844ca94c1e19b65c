"""`.indirect()` views: columns gathered and scattered by on-chip instructions of NeuronCore-v4."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.errors import NkiError, NkiValidationError, OutOfBoundsError
from tests.compiler.compiling import compiled
from tests.isa.helpers import numbers, on_tiles, output, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
]

BF16 = ml_dtypes.bfloat16


def snake(offsets: Any, partitions: int, group: int = 16, dtype: Any = np.uint32) -> np.ndarray:
    """An index tile that holds the offsets; unused elements hold what must not be used."""
    columns = -(-len(offsets) // group)
    tile = np.full((partitions, columns), 60000, dtype)
    for n, offset in enumerate(offsets):
        tile[n % group, n // group] = offset
    return tile


COLUMNS = [5, 0, 39, 7, 7, 21, 3, 16, 2, 38, 11, 12, 13, 14, 30, 31, 8, 1, 20]  # 7 twice
DISTINCT = [5, 0, 39, 7, 21, 3, 16, 2, 38, 11, 12, 13, 14, 30, 31, 8, 1, 20]
P = 48
X = numbers(1, (P, 40))


def tiles(body, inputs, out, dtype=np.float32, platform="trn3", psum=()):
    return on_tiles(body, inputs, [((P, out), dtype)], platform=platform, psum=psum)[0]


@pytest.mark.parametrize("count", [1, 3, 16, 17, 19])
@pytest.mark.parametrize("psum", [(), (0,), (2,)])
def test_gathered_copies(count: int, psum) -> None:
    got = tiles(
        lambda x, index, dst: nisa.tensor_copy(dst, x.indirect(index, count)),
        [X, snake(COLUMNS[:count], P)],
        count,
        psum=psum,
    )
    np.testing.assert_array_equal(got, X[:, COLUMNS[:count]])


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32])
def test_scattered_copies(dtype) -> None:
    x, n = numbers(2, (P, len(DISTINCT)), dtype), len(DISTINCT)
    got = tiles(
        lambda x, index, dst: nisa.tensor_copy(dst.indirect(index, n), x),
        [x, snake(DISTINCT, P)],
        40,
        dtype,
    )
    want = np.full((P, 40), 7, dtype)
    want[:, DISTINCT] = x
    np.testing.assert_array_equal(got, want)


def test_of_two_columns_for_one_place_the_later_stays() -> None:
    x = numbers(3, (P, 4))
    got = tiles(
        lambda x, i, dst: nisa.tensor_copy(dst.indirect(i, 4), x), [x, snake([1, 3, 1, 1], P)], 5
    )
    np.testing.assert_array_equal(got[:, 1], x[:, 3])
    np.testing.assert_array_equal(got[:, 3], x[:, 1])


def test_gather_and_scatter_in_one_instruction_over_one_tile() -> None:
    def body(x, i, j, dst):
        nisa.tensor_copy(dst, x)
        nisa.tensor_copy(dst.indirect(i, 18), dst.indirect(j, 18))

    got = tiles(body, [X, snake(DISTINCT, P), snake(DISTINCT[::-1], P)], 40)
    want = X.copy()
    want[:, DISTINCT] = X[:, DISTINCT[::-1]]
    np.testing.assert_array_equal(got, want)


def test_strided_views_and_several_dimensions_are_flattened() -> None:
    i = snake([3, 0, 9], P)
    got = tiles(lambda x, i, dst: nisa.tensor_copy(dst, x[:, 1:40:4].indirect(i, 3)), [X, i], 3)
    np.testing.assert_array_equal(got, X[:, 1:40:4][:, [3, 0, 9]])
    deep = X.reshape(P, 5, 8)
    got = tiles(lambda x, i, dst: nisa.tensor_copy(dst, x.indirect(i, 3)), [deep, i], 3)
    np.testing.assert_array_equal(got, X[:, [3, 0, 9]])


def test_the_default_uses_every_element_of_the_index() -> None:
    x, index = X[:16], np.random.default_rng(4).integers(0, 40, (16, 3)).astype(np.uint32)
    (got,) = on_tiles(
        lambda x, i, dst: nisa.tensor_copy(dst, x.indirect(i)),
        [x, index],
        [((16, 48), np.float32)],
        platform="trn3",
    )
    np.testing.assert_array_equal(got, x[:, index.T.reshape(-1)])
    with pytest.raises(NkiValidationError, match=r"uses 48 offsets.* row n % 16, column n // 16"):
        on_tiles(
            lambda x, i, dst: nisa.tensor_copy(dst, x.indirect(i)),
            [X, np.zeros((P, 1), np.uint32)],
            [((P, P), np.float32)],
            platform="trn3",
        )


CASES = {
    "tensor_tensor": lambda d, a, y: nisa.tensor_tensor(d, a, y, nl.subtract),
    "tensor_scalar": lambda d, a, y: nisa.tensor_scalar(d, a, nl.multiply, y[:, 0:1]),
    "activation": lambda d, a, y: nisa.activation(d, nl.square, a, scale=0.5),
    "tensor_scalar_reduce": lambda d, a, y: nisa.tensor_scalar_reduce(
        d, a, nl.add, 2.0, nl.add, None
    ),
    "tensor_scalar_cumulative": lambda d, a, y: nisa.tensor_scalar_cumulative(
        d, a, nl.multiply, nl.add, 1.0
    ),
    "exponential": lambda d, a, y: nisa.exponential(d, a),
    "activation_reduce": lambda d, a, y: nisa.activation_reduce(d, nl.square, a, nl.add, y[:, 0:1]),
    "activate2": lambda d, a, y: nisa.activate2(d, nl.square, a, 2.0, 1.0, nl.multiply, nl.add),
}


@pytest.mark.parametrize("name", CASES)
def test_as_if_copied_before_and_after(name: str) -> None:
    """Each instruction gives the same bits as on a tile of its own."""
    instruction, n = CASES[name], len(COLUMNS)
    y, places = numbers(5, (P, n)), list(range(2 * n))[::-2]

    def direct(x, y, i, j, dst):
        nisa.tensor_copy(dst, x)
        instruction(dst.indirect(j, n), x.indirect(i, n), y)

    def copied(x, y, i, j, dst):
        nisa.tensor_copy(dst, x)
        a = nl.ndarray((P, n), dtype=nl.float32, buffer=nl.sbuf)
        b = nl.ndarray((P, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(a, x.indirect(i, n))
        instruction(b, a, y)
        nisa.tensor_copy(dst.indirect(j, n), b)

    inputs = [X, y, snake(COLUMNS, P), snake(places, P)]
    got, want = tiles(direct, inputs, 40), tiles(copied, inputs, 40)
    np.testing.assert_array_equal(got, want)
    assert (want[:, places] != X[:, places]).any()


def test_tensor_reduce_and_predicated_copies() -> None:
    def body(x, index, dst):
        nisa.tensor_reduce(dst.indirect(index, 1), nl.add, x.indirect(index, 3), axis=1)

    got = tiles(body, [X, snake([4, 9, 2], P)], 6)
    np.testing.assert_allclose(got[:, 4], X[:, [4, 9, 2]].sum(1), rtol=1e-6)
    assert (np.delete(got, 4, 1) == 7).all()

    def predicated(x, mask, index, dst):
        nisa.tensor_copy_predicated(dst.indirect(index, 3), x[:, 0:3], mask.indirect(index, 3))

    mask = (np.arange(P * 6).reshape(P, 6) % 3 == 0).astype(np.uint8)
    got = tiles(predicated, [X, mask, snake([4, 1, 2], P)], 6)
    want = np.full((P, 6), 7, np.float32)
    want[:, [4, 1, 2]] = np.where(mask[:, [4, 1, 2]], X[:, :3], 7)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bad", [40, -1])
def test_offsets_outside_the_view(bad: int) -> None:
    index = snake([3, bad, 5], P, dtype=np.int32)
    for body in (
        lambda x, i, dst: nisa.tensor_copy(dst[:, 0:3], x.indirect(i, 3)),
        lambda x, i, dst: nisa.tensor_copy(dst.indirect(i, 3), x[:, 0:3]),
    ):
        with pytest.raises(OutOfBoundsError, match=rf"offset {bad} \(number 1\)") as caught:
            tiles(body, [X, index], 40)
        assert "[0, 40) of the .indirect() view" in caught.value.message
        assert caught.value.numbers == {"got": bad, "least": 0, "most": 39}


REFUSED = [
    (lambda x, i, d: nisa.max8(d[:, 0:8], x.indirect(i, 16)), "doesn't take there"),
    (
        lambda x, i, d: nisa.tensor_copy(d[:, 0:3], x.indirect(i, 3), engine=nisa.engine.gpsimd),
        "engine=gpsimd; allowed: vector, scalar",
    ),
    (lambda x, i, d: x.indirect(i, 3)[:, 0:2], "take the view last"),
    (lambda x, i, d: x.indirect(i, 3).reshape((P, 3, 1)), "take the view last"),
    (lambda x, i, d: x.indirect(i, 3).ap([[40, P], [1, 2]]), "take the view last"),
    (lambda x, i, d: nisa.tensor_copy(d[:, 0:3], x.indirect(x, 3)), "tile .P, K. of integers"),
    (lambda x, i, d: nisa.tensor_copy(d[:, 0:33], x.indirect(i, 33)), r"at least \(16, 3\)"),
]


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_refused(body, message: str) -> None:
    with pytest.raises(NkiValidationError, match=message):
        tiles(body, [X, snake(COLUMNS, P)], 40)


def test_scalar_engine_scatters_to_sbuf_only() -> None:
    def body(x, i, d):
        nisa.activation(d.indirect(i, 3), nl.square, x[:, 0:3])

    assert tiles(body, [X, snake([1, 2, 3], P)], 40)[0, 1] == np.square(X[0, 0])
    with pytest.raises(NkiValidationError, match="Scalar engine scatters to SBUF only"):
        tiles(body, [X, snake([1, 2, 3], P)], 40, psum=[2])


def test_address_arithmetic_is_refused() -> None:
    x = np.arange(P * 8, dtype=np.int32).reshape(P, 8)

    def body(op):
        return lambda x, i, d: nisa.tensor_scalar(d[:, 0:2], x.indirect(i, 2), op, 1)

    index = snake([1, 5], P)
    got = tiles(body(nl.bitwise_and), [x, index], 8, np.int32)
    np.testing.assert_array_equal(got[:, :2], x[:, [1, 5]] & 1)
    with pytest.raises(NkiValidationError, match="address arithmetic"):
        tiles(body(nl.add), [x, index], 8, np.int32)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ((32, 32, 32, 32), ""),
        ((32, 32, 16, 32), "the index of dst starts at partition 16; must be a multiple of 32"),
        ((32, 64, 32, 32), "src and its index start at partitions 32 and 64"),
        ((32, 32, 64, 0), "src and the index of dst start at partitions 32 and 64"),
    ],
)
def test_partitions_of_placed_tensors(places, message: str) -> None:
    def kernel(x, index):
        def tile(first, byte, like):
            made = nl.ndarray(like.shape, dtype=like.dtype, buffer=nl.sbuf, address=(first, byte))
            nisa.dma_copy(made, like)
            return made

        src, i = tile(places[0], 0, x), tile(places[1], 256, index)
        j, dst = tile(places[2], 300, index), tile(places[3], 400, x)
        nisa.tensor_copy(dst.indirect(j, 3), src.indirect(i, 3))
        return output(dst)

    x, index = X[:32], snake([4, 2, 9], 32)
    if not message:
        np.testing.assert_array_equal(run(kernel, x, index, platform="trn3"), x)
    else:
        with pytest.raises(NkiValidationError, match=message):
            run(kernel, x, index, platform="trn3")


def test_in_a_dynamic_loop_the_index_of_each_iteration_counts() -> None:
    def kernel(x, index):
        tile, i = nl.load(x), nl.load(index)
        got = nl.ndarray((P, 6), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(got, 0)
        for n in nl.dynamic_range(3):
            now = nl.ndarray((P, 1), dtype=nl.uint32, buffer=nl.sbuf)
            nisa.tensor_copy(now, i[:, nl.ds(n, 1)])
            nisa.tensor_copy(got[:, nl.ds(n, 2)], tile.indirect(now, 2))
        return output(got)

    index = np.concatenate([snake(o, P) for o in ([1, 2], [3, 4], [5, 6])], 1)
    got = run(kernel, X, index, platform="trn3")
    np.testing.assert_array_equal(got[:, :4], X[:, [1, 3, 5, 6]])


def _stored(index_rows: int, read: int):
    """A kernel that writes some rows of an index tile and gathers `read` columns with it."""

    def kernel(x, index):
        tile = nl.load(x)
        i = nl.ndarray((P, 1), dtype=nl.uint32, buffer=nl.sbuf, name="index")
        nisa.dma_copy(i[0:index_rows], index[0:index_rows])
        got = nl.ndarray((P, read), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(got, tile.indirect(i, read))
        return output(got)

    return kernel


def test_only_the_offsets_in_use_have_to_be_written() -> None:
    got = run(_stored(5, 5), X, snake([3, 1, 9, 0, 2], P), platform="trn3")
    np.testing.assert_array_equal(got, X[:, [3, 1, 9, 0, 2]])
    with pytest.raises(NkiError, match="uses them as run-time index"):
        run(_stored(4, 5), X, snake([3, 1, 9, 0, 2], P), platform="trn3")


def test_encoded_programs_keep_indirection() -> None:
    signatures = (((P, 40), np.float32), ((P, 1), np.uint32))
    program = compiled(_stored(16, 5), *signatures, platform="trn3").programs[0]
    data = encode(program)
    back = decode(data)
    assert encode(back) == data
    (copy,) = [i for i in back.body if i.opcode == "tensor_copy"]
    assert copy["src"].dynamic.kind == "tensor"
    assert copy["src"].dynamic.source.shape == (5, 1)
