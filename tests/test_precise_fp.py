"""NKI_PRECISE_FP=0: tensors of low precision hold float32, except those whose bits are looked at.

The same kernels run with both values of the variable: with 1 they lose what their types can't
hold, with 0 they come within float32's rounding of float64.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import LaunchError, RaceError

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

TYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def both(monkeypatch, kernel, *arrays, lnc: int = 1):
    """What a kernel returns with 1 and with 0."""
    found = []
    for value in ("1", "0"):
        monkeypatch.setenv("NKI_PRECISE_FP", value)
        found.append(nki.simulate(kernel)[lnc](*arrays))
    return found


def tile_like(x, dtype, buffer=nl.sbuf):
    return nl.ndarray(x.shape, dtype=dtype, buffer=buffer)


def returned(tile, dtype=nl.float32):
    out = tile_like(tile, dtype, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.mark.parametrize("name", [*TYPES, "tfloat32"])
def test_a_chain_keeps_its_bits(monkeypatch, name):
    def kernel(x, y):
        a, b, t = nl.load(x), nl.load(y), tile_like(x, name)
        nisa.tensor_tensor(dst=t, data1=a, data2=b, op=nl.multiply)
        nisa.activation(dst=t, op=nl.exp, data=t, scale=0.5)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=3.0)
        return returned(t)

    x, y = numbers(0, 9, 7), numbers(1, 9, 7)
    precise, wide = both(monkeypatch, kernel, x, y)
    want = np.exp(0.5 * (x.astype(np.float64) * y)) + 3
    assert np.abs(precise - want).max() > 1e-4
    np.testing.assert_allclose(wide, want, rtol=1e-6)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e5m2"])
def test_matmul_of_computed_operands(monkeypatch, name):
    def kernel(x, y):
        a, b = tile_like(x, name), tile_like(y, name)
        nisa.tensor_scalar(dst=a, data=nl.load(x), op0=nl.multiply, operand0=0.7)
        nisa.tensor_scalar(dst=b, data=nl.load(y), op0=nl.add, operand0=0.1)
        psum = nl.ndarray((20, 30), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=psum, stationary=a, moving=b)
        turned = nl.ndarray((20, 33), dtype=name, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=a, engine=nisa.tensor_engine)
        result, other = [tile_like(p, nl.float32) for p in (psum, turned)]
        nisa.tensor_copy(dst=result, src=psum)
        nisa.tensor_copy(dst=other, src=turned)
        return returned(result), returned(other)

    x, y = numbers(2, 33, 20), numbers(3, 33, 30)
    precise, wide = both(monkeypatch, kernel, x, y)
    a, b = x.astype(np.float64) * 0.7, y.astype(np.float64) + 0.1
    for got, lossy, want in zip(wide, precise, (a.T @ b, a.T)):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-5)
        assert np.abs(lossy - want).max() > 1e-4


def test_tensors_in_hbm_too(monkeypatch):
    """Spilled to HBM and back; results and written arguments are rounded once."""

    def kernel(x, history):
        spilled = [tile_like(x, nl.bfloat16, b) for b in (nl.private_hbm, nl.shared_hbm)]
        t = nl.load(x)
        for place in spilled:
            nisa.dma_copy(dst=place, src=t)
            nisa.dma_copy(dst=t, src=place)
        was = nl.load(history)
        for _ in range(300):  # each step is below half a unit in bfloat16's last place
            nisa.tensor_scalar(dst=was, data=was, op0=nl.add, operand0=0.001)
            nisa.dma_copy(dst=history, src=was)
            nisa.dma_copy(dst=was, src=history)
        return returned(t), returned(t, nl.bfloat16)

    x = numbers(4, 6, 11)
    kept = []
    for value in ("1", "0"):
        monkeypatch.setenv("NKI_PRECISE_FP", value)
        history = np.ones((6, 3), ml_dtypes.bfloat16)
        out, rounded = nki.simulate(kernel)(x, history)
        kept.append((out, history))
        assert rounded.dtype == history.dtype == ml_dtypes.bfloat16
    assert np.abs(kept[0][0] - x).max() > 1e-4
    assert np.array_equal(kept[1][0], x)
    assert np.array_equal(rounded, x.astype(ml_dtypes.bfloat16))
    assert (kept[0][1] == 1).all()
    assert (kept[1][1] == np.float32(1.3).astype(ml_dtypes.bfloat16)).all()


def test_bits_that_are_looked_at_stay_bits(monkeypatch):
    """A tile that is viewed as integers, and what moves in and out of it, keep their type."""

    def kernel(x, y):
        t, copy = tile_like(x, nl.bfloat16), tile_like(x, nl.bfloat16)
        nisa.tensor_tensor(dst=t, data1=nl.load(x), data2=nl.load(y), op=nl.add)
        nisa.tensor_copy(dst=copy, src=t)
        nisa.tensor_copy(dst=t, src=copy)
        signs = tile_like(x, nl.uint16)
        nisa.tensor_scalar(dst=signs, data=t.view(nl.uint16), op0=nl.bitwise_and, operand0=0x7FFF)
        spilled = tile_like(x, nl.bfloat16, nl.private_hbm)
        nisa.dma_copy(dst=spilled, src=signs.view(nl.bfloat16))
        nisa.dma_copy(dst=copy, src=spilled)
        return returned(signs, nl.uint16), returned(copy, nl.bfloat16), returned(t)

    x, y = numbers(5, 40, 13), numbers(6, 40, 13)
    precise, wide = both(monkeypatch, kernel, x, y)
    for a, b in zip(precise, wide):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
    total = (x + y).astype(ml_dtypes.bfloat16)
    assert np.array_equal(wide[1], np.abs(total))
    assert np.array_equal(wide[0], np.abs(total).view(np.uint16))


def test_integers_in_a_tensor_of_floats_survive(monkeypatch):
    """Bits of all kinds, NaN with a payload among them, go through HBM declared as float16."""

    def kernel(bits):
        place = nl.ndarray(bits.shape, dtype=nl.float16, buffer=nl.private_hbm)
        again = nl.ndarray(bits.shape, dtype=nl.float16, buffer=nl.private_hbm)
        t = nl.load(bits)
        nisa.dma_copy(dst=place, src=t.view(nl.float16))
        nisa.dma_copy(dst=again, src=place)
        nisa.dma_copy(dst=t.view(nl.float16), src=again)
        return returned(t, nl.uint16)

    bits = np.arange(1 << 16, dtype=np.uint16).reshape(128, 512)
    for got in both(monkeypatch, kernel, bits):
        assert np.array_equal(got, bits)


def test_padded_transposes_stay_padded(monkeypatch):
    """The Tensor engine transposes fp8 into 16-bit places: the bits, not the numbers."""

    def kernel(x, eye):
        a = tile_like(x, nl.float8_e4m3)
        nisa.tensor_copy(dst=a, src=nl.load(x))
        psum = nl.ndarray((7, 9), dtype=nl.bfloat16, buffer=nl.psum)
        nisa.nc_matmul(dst=psum, stationary=a, moving=nl.load(eye), is_transpose=True)
        result = tile_like(psum, nl.bfloat16)
        nisa.tensor_copy(dst=result, src=psum)
        return returned(result, nl.bfloat16)

    x, eye = numbers(7, 9, 7), np.eye(9, dtype=ml_dtypes.float8_e4m3)
    precise, wide = both(monkeypatch, kernel, x, eye)
    assert np.array_equal(precise.view(np.uint16), wide.view(np.uint16))
    want = x.astype(ml_dtypes.float8_e4m3).T
    assert np.array_equal(wide.view(np.uint16), want.view(np.uint8))


def test_values_are_found_again(monkeypatch):
    """max8, nc_find_index8, nc_match_replace8, topk: what one returns the next one finds."""

    def kernel(x, y, view):
        t = tile_like(x, nl.bfloat16)
        nisa.tensor_tensor(dst=t, data1=nl.load(x), data2=nl.load(y), op=nl.add)
        best = nl.ndarray((16, 8), dtype=nl.bfloat16, buffer=nl.sbuf)
        where = nl.ndarray((16, 8), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.max8(dst=best, src=t)
        nisa.nc_find_index8(dst=where, data=t, vals=best)
        if view:  # one narrow tile makes all of them narrow
            returned(best.view(nl.uint16), nl.uint16)
        rest = tile_like(t, nl.bfloat16)
        nisa.nc_match_replace8(dst=rest, data=t, vals=best, imm=-9.0)
        first = nl.zeros((16, 16), dtype=nl.bfloat16, buffer=nl.sbuf)
        place = nl.zeros((16, 16), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.topk(val_dst=first, idx_dst=place, src=t, n=16 * 40)
        return (
            returned(where, nl.uint32),
            returned(rest),
            returned(first),
            returned(place, nl.uint32),
        )

    x, y = numbers(8, 16, 40), numbers(9, 16, 40)
    total = (x + y).astype(np.float64)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    where, rest, first, place = nki.simulate(kernel)(x, y, False)
    order = np.argsort(-total, axis=1)[:, :8]
    assert np.array_equal(where, order)
    assert (np.take_along_axis(rest, order, 1) == -9).all() and (rest == -9).sum() == 16 * 8
    snake = total.T.reshape(-1)
    largest = np.argsort(snake)[-16:]
    assert np.array_equal(place[:, 0], largest)
    np.testing.assert_allclose(first[:, 0], snake[largest], rtol=1e-7)

    where, rest, *_ = nki.simulate(kernel)(x, y, True)
    narrow = (x + y).astype(ml_dtypes.bfloat16).astype(np.float64)
    assert np.array_equal(where[:, 0], narrow.argmax(axis=1))
    assert (rest == -9).sum() == 16 * 8


def exchanged(x):
    """The cores swap what they computed; each adds the other's."""
    me = nl.program_id(0)
    mine, theirs = [nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf) for _ in range(2)]
    nisa.tensor_scalar(dst=mine, data=nl.load(x), op0=nl.multiply, operand0=1.1 + me)
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    both_cores = nl.ndarray((2, *x.shape), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nisa.tensor_tensor(dst=mine, data1=mine, data2=theirs, op=nl.add)
    nisa.dma_copy(dst=both_cores[me], src=mine)
    return both_cores, returned_by_core(mine, me)


def returned_by_core(tile, me):
    out = nl.ndarray((2, *tile.shape), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[me], src=tile)
    return out


def test_two_cores_exchange(monkeypatch):
    x = numbers(10, 12, 5)
    precise, wide = both(monkeypatch, exchanged, x, lnc=2)
    want = x.astype(np.float64) * 1.1 + x.astype(np.float64) * 2.1
    for core in range(2):
        assert np.abs(precise[1][core] - want).max() > 1e-4
        np.testing.assert_allclose(wide[1][core], want, rtol=1e-6)
        assert np.array_equal(wide[0][core], wide[1][core].astype(ml_dtypes.bfloat16))


def test_one_narrow_tile_makes_the_exchange_narrow(monkeypatch):
    """Core 1 looks at the bits of what it receives, so nobody may send float32."""

    def kernel(x):
        me = nl.program_id(0)
        mine, theirs = [tile_like(x, nl.bfloat16) for _ in range(2)]
        nisa.tensor_scalar(dst=mine, data=nl.load(x), op0=nl.multiply, operand0=1.1 + me)
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
        out = nl.ndarray((2, *x.shape), dtype=nl.uint16, buffer=nl.shared_hbm)
        if me == 1:
            nisa.dma_copy(dst=out[0], src=theirs.view(nl.uint16))
        else:
            nisa.memset(dst=out[1], value=0)
        return out

    x = numbers(11, 12, 5)
    _, wide = both(monkeypatch, kernel, x, lnc=2)
    want = (x * np.float32(1.1)).astype(ml_dtypes.bfloat16)
    assert np.array_equal(wide[0], want.view(np.uint16))


def test_collectives(monkeypatch):
    @nki.jit
    def kernel(x, group):
        local, total = [tile_like(x, nl.bfloat16, nl.shared_hbm) for _ in range(2)]
        parts = nl.ndarray((3 * x.shape[0], x.shape[1]), dtype=nl.bfloat16, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=local, src=x)
        ncc.all_reduce(srcs=[local], dsts=[total], replica_group=group, op=nl.add)
        ncc.all_gather(srcs=[local], dsts=[parts], replica_group=group, collective_dim=0)
        out = nl.ndarray(parts.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=parts)
        return returned(total), out

    x = [numbers(20 + rank, 5, 8) for rank in range(3)]
    group = ncc.ReplicaGroup([[0, 1, 2]])
    for value, bound in (("1", 1.0), ("0", 1e-6)):
        monkeypatch.setenv("NKI_PRECISE_FP", value)
        with nki.World(ranks=3, host="inprocess") as world:
            outs = world.run(kernel, nki.per_rank(x), group=group)
        worst = 0.0
        for total, parts in outs:
            worst = max(worst, np.abs(total - np.sum(x, axis=0, dtype=np.float64)).max())
            worst = max(worst, np.abs(parts - np.concatenate(x)).max())
        assert worst < bound and (worst > 1e-3) == (value == "1")


def test_dynamic_addresses_count_elements(monkeypatch):
    def kernel(x, rows):
        t, picked = tile_like(x, nl.bfloat16), nl.ndarray((4, 6), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=t, data=nl.load(x), op0=nl.multiply, operand0=1.1)
        table = tile_like(x, nl.bfloat16, nl.private_hbm)
        nisa.dma_copy(dst=table, src=t)
        index = nl.load(rows)
        nisa.dma_copy(
            dst=picked, src=table.ap([[6, 4], [1, 6]], vector_offset=index, indirect_dim=0)
        )
        column = nl.ndarray((10, 5), dtype=nl.bfloat16, buffer=nl.sbuf)
        for j in nl.dynamic_range(0, 5):
            nisa.tensor_copy(dst=column[:, nl.ds(j, 1)], src=t[:, nl.ds(j, 1)])
        return returned(picked), returned(column)

    x, rows = numbers(12, 10, 6), np.array([[7], [0], [9], [7]], np.uint32)
    _, (picked, column) = both(monkeypatch, kernel, x, rows)
    want = x.astype(np.float64) * np.float32(1.1)
    np.testing.assert_allclose(picked, want[rows[:, 0]], rtol=1e-6)
    np.testing.assert_allclose(column, want[:, :5], rtol=1e-6)


@nki.jit
def thrice(x):
    t = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=t, data=nl.load(x), op0=nl.multiply, operand0=3.0)
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, t)
    return out


def test_the_variable_may_change_between_launches(monkeypatch):
    x = numbers(13, 5, 9)
    narrow = (x * 3).astype(ml_dtypes.bfloat16).astype(np.float32)
    for value, want in (("1", narrow), ("0", x * 3), ("1", narrow), ("", narrow), ("0", x * 3)):
        monkeypatch.setenv("NKI_PRECISE_FP", value)
        assert np.array_equal(nki.simulate(thrice)(x), want)


def test_prints_show_what_tensors_hold(monkeypatch, capsys):
    def kernel(x):
        t = tile_like(x, nl.bfloat16)
        nisa.tensor_scalar(dst=t, data=nl.load(x), op0=nl.multiply, operand0=1.0)
        nl.device_print("t", t)

    both(monkeypatch, kernel, np.array([[1.23456]], np.float32))
    rounded, wide = capsys.readouterr().out.splitlines()
    assert "1.23438" in rounded and "1.23456" in wide


def test_races_are_judged_by_what_tensors_hold(monkeypatch):
    """Both cores store to one place what only bfloat16 rounds to the same."""

    def kernel(x):
        t = tile_like(x, nl.bfloat16)
        factor = 1.1 + 1e-4 * nl.program_id(0)
        nisa.tensor_scalar(dst=t, data=nl.load(x), op0=nl.multiply, operand0=factor)
        return returned(t, nl.bfloat16)

    x = np.ones((4, 5), np.float32)
    monkeypatch.setenv("NKI_PRECISE_FP", "1")
    assert np.array_equal(nki.simulate(kernel)[2](x), (x * 1.1).astype(ml_dtypes.bfloat16))
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    with pytest.raises(RaceError, match=r"a store by core 0 .* a store by core 1"):
        nki.simulate(kernel)[2](x)


def test_other_values_are_refused(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "false")
    with pytest.raises(LaunchError, match="NKI_PRECISE_FP='false'; allowed: 1, 0"):
        nki.simulate(thrice)(numbers(1, 2, 2))
