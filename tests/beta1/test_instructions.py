"""`nisa` of Beta 1: instructions that return tiles."""

import numpy as np
import pytest

from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import language as nl
from nki_dist.errors import NkiValidationError
from tests.beta1.helpers import close, normal, run
from tests.beta1.test_functions import out_of

P, F = 17, 24


def one(body, *arrays, tolerance=1e-5, wanted):
    """Run `body(tiles...)` and compare its tile(s)."""

    def kernel(*tensors):
        result = body(*(nl.load(t) for t in tensors))
        return [out_of(t) for t in (result if isinstance(result, (list, tuple)) else [result])]

    got = run(kernel, *arrays)
    for g, w in zip(got, wanted, strict=True):
        close(g, w, tolerance)


A, B, S = normal(P, F), normal(P, F, seed=1), normal(P, 1, seed=2)


def test_activation_and_its_reduction():
    def body(a, s):
        total = nl.ndarray((P, 1), dtype=nl.float32)
        x = nisa.activation(op=np.exp, data=a, scale=0.5, bias=s)
        y = nisa.activation_reduce(np.exp, a, reduce_op=np.add, reduce_res=total, bias=s)
        return x, y, total

    e = np.exp(A + S)
    one(body, A, S, wanted=[np.exp(A * 0.5 + S), e, e.sum(1, keepdims=True)])


def test_tensor_scalar_forms():
    def body(a, s):
        return (
            nisa.tensor_scalar(a, np.subtract, 1.0, reverse0=True),
            nisa.tensor_scalar(a, np.multiply, s, op1=np.add, operand1=2.5),
            nisa.tensor_scalar(a, op0=nl.maximum, operand0=s, dtype=nl.float32),
        )

    one(body, A, S, wanted=[1 - A, A * S + 2.5, np.maximum(A, S)])


def test_two_tiles_and_three():
    def body(a, b, s):
        kept = nl.ndarray((P, 1), dtype=nl.float32)
        reduced = nisa.tensor_scalar_reduce(
            data=a, op0=np.multiply, operand0=s, reduce_op=np.max, reduce_res=kept
        )
        return (
            nisa.tensor_tensor(a, b, op=nl.multiply),
            nisa.scalar_tensor_tensor(data=a, op0=np.add, operand0=s, op1=np.multiply, operand1=b),
            reduced,
            kept,
            nisa.tensor_copy(a, dtype=nl.float32, engine=nisa.vector_engine),
            nisa.reciprocal(a),
        )

    scaled = A * S
    wanted = [A * B, (A + S) * B, scaled, scaled.max(1, keepdims=True), A, 1 / A]
    one(body, A, B, S, wanted=wanted)


def test_scans_and_reductions():
    def body(a, b):
        return (
            nisa.tensor_tensor_scan(a, b, initial=0, op0=np.multiply, op1=np.add),
            nisa.tensor_reduce(np.max, a, axis=[1], negate=True),
            nisa.tensor_partition_reduce(np.add, a),
        )

    scan, before = np.empty_like(A), np.zeros(P)
    for j in range(F):
        before = scan[:, j] = before * A[:, j] + B[:, j]
    wanted = [scan, -A.max(1, keepdims=True), A.sum(0, keepdims=True)]
    one(body, A, B, wanted=wanted)


def test_statistics():
    def body(a):
        both = nisa.bn_aggr(nisa.bn_stats(a))
        return both[:, 0], both[:, 1]

    mean, var = A.mean(1, keepdims=True), A.var(1, keepdims=True)
    one(body, A, wanted=[mean, var])


def test_selections():
    i, j = np.mgrid[0:P, 0:F]

    def body(a):
        p, f = nl.mgrid[0:P, 0:F]
        kept = nl.zeros((P, F), dtype=nl.float32)
        positive = nl.greater(a, 0.0, dtype=nl.uint8)
        nisa.tensor_copy_predicated(src=a, dst=kept, predicate=positive)
        return (
            nisa.affine_select(pred=(2 * p + 1 >= f), on_true_tile=a, on_false_value=-3.0),
            nisa.affine_select(pred=(f < p), on_true_tile=a, on_false_value=nl.fp32.min),
            kept,
        )

    wanted = [np.where(2 * i + 1 >= j, A, -3), np.where(j < i, A, nl.fp32.min)]
    one(body, A, wanted=[*wanted, np.where(A > 0, A, 0)])


def test_iota_and_memset():
    def body(a):
        p, f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        return (
            nisa.iota(5 + 2 * p - 3 * f, dtype=nl.int32),
            nisa.iota(f * -1, dtype=nl.int32),
            nisa.memset(shape=(P, F), value=-7, dtype=nl.int32),
        )

    i, j = np.mgrid[0:P, 0:F]
    one(body, A, wanted=[5 + 2 * i - 3 * j, -j[:1], np.full((P, F), -7)])


def test_largest_values():
    def body(a):
        best = nisa.max8(src=a)
        where = nisa.nc_find_index8(data=a, vals=best)
        return best, where, nisa.nc_match_replace8(data=a, vals=best, imm=-9.0)

    order = np.argsort(-A, axis=1)[:, :8]
    replaced = A.copy()
    np.put_along_axis(replaced, order, -9, 1)
    one(body, A, wanted=[np.take_along_axis(A, order, 1), order, replaced])


def test_masked_instructions():
    def body(a):
        p, f = nl.mgrid[0:P, 0:F]
        mask = f < 20
        best = nisa.max8(src=a, mask=mask)
        full = nl.zeros((P, F), dtype=nl.float32)
        full[p, f] = nisa.nc_match_replace8(data=a, vals=best, imm=0.0, mask=mask)
        return best, full

    order = np.argsort(-A[:, :20], axis=1)[:, :8]
    replaced = A.copy()
    np.put_along_axis(replaced, order, 0, 1)
    replaced[:, 20:] = 0
    one(body, A, wanted=[np.take_along_axis(A, order, 1), replaced])


def test_dma_adds_and_shuffles():
    def kernel(a):
        out = nl.ndarray((32, F), dtype=a.dtype, buffer=nl.shared_hbm)
        rows = nisa.iota(30 - 3 * nl.arange(8)[:, None], dtype=nl.int32)
        nl.store(out, nl.load(a))
        nisa.dma_copy(
            dst=out[rows, nl.arange(F)[None, :]], src=nl.load(a[0:8, :]), dst_rmw_op=np.add
        )
        tile = nl.load(a)
        nisa.nc_stream_shuffle(src=tile, dst=tile, shuffle_mask=[(n + 1) % 32 for n in range(32)])
        more = nl.ndarray((32, F), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(more, nl.load(a))
        nl.atomic_rmw(more[rows, nl.arange(F)[None, :]], nl.load(a[0:8, :]), op=np.add)
        return out, out_of(tile), more

    a = normal(32, F)
    out, shuffled, more = run(kernel, a)
    wanted = a.copy()
    wanted[30 - 3 * np.arange(8)] += a[:8]
    close(out, wanted)
    close(more, wanted)
    close(shuffled, np.roll(a, -1, 0))


@pytest.mark.parametrize(
    "name, call",
    [
        ("tensor_copy_dynamic_src", lambda a: nisa.tensor_copy_dynamic_src(a)),
        ("tensor_copy_dynamic_dst", lambda a: nisa.tensor_copy_dynamic_dst(dst=a, src=a)),
        ("iota", lambda a: nisa.iota(3, dtype=nl.int32)),
        ("affine_select", lambda a: nisa.affine_select(True, a, 0.0)),
        ("dst_rmw_op", lambda a: nisa.dma_copy(dst=a, src=a, dst_rmw_op=np.multiply)),
    ],
)
def test_refused(name, call):
    def kernel(a):
        call(nl.load(a))

    with pytest.raises(NkiValidationError, match=name) as caught:
        run(kernel, A)
    assert "test_instructions.py:" in caught.value.location
