"""Matmuls that add to one PSUM tile are one product, unless something looks in between.

Inputs are such that another order of additions gives other bits.
"""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.runtime.sums import (
    CUTS,
    ONE,
    PARTS,
    A,
    B,
    M,
    N,
    added,
    everywhere,
    output,
    product,
    stored,
    tile_of,
    tiles,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
]


def test_the_order_of_additions_shows() -> None:
    assert len({x.tobytes() for x in (ONE, *CUTS.values(), added(A, B, 1, 2, 3, 4))}) == 6


@nki.jit
def chain(a, b, between=None):
    """One tile of sums; `between(n, acc, left, right)` runs after matmul n."""
    left, right = tiles(a), tiles(b)
    out, extra, acc = output(M, N), output(PARTS, 128, N), tile_of()
    for n in range(PARTS):
        nisa.nc_matmul(dst=acc, stationary=left[n], moving=right[n])
        nl.store(extra[n], right[n])
        if between is not None:
            between(n, acc, left, right, extra)
    stored(out, acc)
    return out, extra


def after(place, action, n, acc, left, right, extra):
    if n == place:
        action(acc, left, right, extra)


def nothing(acc, left, right, extra):
    pass


def read(acc, left, right, extra):
    stored(extra[0, 0:M, :], acc)


def read_partly(acc, left, right, extra):
    stored(extra[0, 3:4, 0:1], acc[32:33, N - 1 : N])


def overwrite_operands(acc, left, right, extra):
    for tile in (*left[:3], *right[:3]):
        nisa.memset(dst=tile, value=7.0)


def other_tile(acc, left, right, extra):
    other = tile_of()
    nisa.nc_matmul(dst=other, stationary=left[0], moving=right[0])
    stored(extra[0, 0:M, :], other)


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        (nothing, ONE),
        (overwrite_operands, ONE),
        (other_tile, ONE),
        (read, CUTS[3]),
        (read_partly, CUTS[3]),
    ],
)
def test_what_ends_a_chain(action, wanted) -> None:
    out, extra = everywhere(partial_kernel(action), A, B)
    assert out.tobytes() == wanted.tobytes()
    seen = product(A[:3], B[:3])
    if action is read:
        assert extra[0, :M].tobytes() == seen.tobytes()
    elif action is read_partly:
        assert extra[0, 3, 0] == seen[32, N - 1]


def partial_kernel(action):
    @nki.jit
    def kernel(a, b):
        return chain.fn(a, b, partial(after, 2, action))

    return kernel


@nki.jit
def restarted(a, b):
    left, right = tiles(a), tiles(b)
    outs, acc = (output(M, N), output(M, N)), tile_of()
    for n in range(PARTS):
        nisa.nc_matmul(dst=acc, stationary=left[n], moving=right[n], accumulate=n not in (0, 3))
    stored(outs[0], acc)
    for n in range(2):
        nisa.nc_matmul(dst=acc, stationary=left[n], moving=right[n], accumulate=True)
    stored(outs[1], acc)
    return outs


def test_accumulation_begins_anew_where_it_is_told_to() -> None:
    first, second = everywhere(restarted, A, B)
    assert first.tobytes() == product(A[3:], B[3:]).tobytes()
    assert second.tobytes() == (product(A[3:], B[3:]) + product(A[:2], B[:2])).tobytes()


@nki.jit
def halves(a, b):
    """Two halves of one PSUM tensor in turn; one is looked at halfway."""
    left, right = tiles(a), tiles(b)
    outs, half = (output(M, 40), output(M, N - 40), output(M, 40)), 40
    acc = tile_of()
    for n in range(PARTS):
        nisa.nc_matmul(dst=acc[:, 0:half], stationary=left[n], moving=right[n][:, 0:half])
        nisa.nc_matmul(dst=acc[:, half:N], stationary=left[n], moving=right[n][:, half:N])
        if n == 1:
            stored(outs[2], acc[:, 0:half])
    stored(outs[0], acc[:, 0:half])
    stored(outs[1], acc[:, half:N])
    return outs


def test_parts_of_a_tensor_are_chains_of_their_own() -> None:
    low, high, seen = everywhere(halves, A, B)
    assert low.tobytes() == added(A, B[:, :, :40], 2).tobytes()
    assert high.tobytes() == added(A, B[:, :, 40:]).tobytes()
    assert seen.tobytes() == product(A[:2], B[:2, :, :40]).tobytes()


@nki.jit
def overlapping(a, b):
    """A matmul into a part of the tile adds to what the chain has left there."""
    left, right = tiles(a), tiles(b)
    out, acc = output(M, N), tile_of()
    for n in range(PARTS):
        nisa.nc_matmul(dst=acc, stationary=left[n], moving=right[n])
        if n == 1:
            nisa.nc_matmul(dst=acc[:, 0:9], stationary=left[n], moving=right[n][:, 0:9])
    stored(out, acc)
    return out


def test_a_matmul_into_a_part_of_the_tile_ends_the_chain() -> None:
    (out,) = everywhere(overlapping, A, B)
    wanted = product(A[:2], B[:2])
    wanted[:, :9] += product(A[1], B[1, :, :9])
    assert out.tobytes() == (wanted + product(A[2:], B[2:])).tobytes()


@nki.jit
def many_tiles(a, b):
    """One more tile than PSUM has banks, in turn."""
    left, right = tiles(a), tiles(b)
    accs = [tile_of(20) for _ in range(9)]
    out = output(9, M, 20)
    for n in range(PARTS):
        for m in range(len(accs)):
            acc = accs[m]
            nisa.nc_matmul(dst=acc, stationary=left[n], moving=right[n][:, m : m + 20])
    for m in range(len(accs)):
        acc = accs[m]
        stored(out[m], acc)
    return out


def test_no_more_chains_are_open_than_psum_has_banks() -> None:
    (out,) = everywhere(many_tiles, A, B)
    for m in range(9):
        part = B[:, :, m : m + 20]
        assert out[m].tobytes() == added(A, part, *range(1, PARTS)).tobytes()


@nki.jit
def looped(a, b, rounds):
    """Two matmuls before a dynamic loop, two in it, two after it."""
    left, right = tiles(a), tiles(b)
    out, acc = output(M, N), tile_of()

    def pair():
        for n in range(2):
            nisa.nc_matmul(dst=acc, stationary=left[n], moving=right[n])

    pair()
    for _ in nl.dynamic_range(rounds):
        pair()
    pair()
    stored(out, acc)
    return out


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_loops_end_chains(rounds) -> None:
    (out,) = everywhere(looped, A, B, rounds)
    part = product(A[:2], B[:2])
    total = part.copy()
    for _ in range(rounds + 1):
        total += part
    assert out.tobytes() == total.tobytes()


@nki.jit
def waiting(a, b):
    left, right = tiles(a), tiles(b)
    out = nl.ndarray((2, M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    acc, me = tile_of(), nl.program_id(0)
    for n in range(PARTS):
        nisa.nc_matmul(dst=acc, stationary=left[n], moving=right[n])
        if n == 2:
            nisa.sendrecv(
                src=right[4], dst=right[3], send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0
            )
    stored(out[me], acc)
    return out


def test_waiting_for_the_other_core_ends_chains() -> None:
    (out,) = everywhere(waiting[2], A, B)
    other = np.concatenate([B[:3], B[4:], B[4:]])
    for core in (0, 1):
        assert out[core].tobytes() == added(A, other, 3).tobytes()


@nki.jit
def mixed(a, b):
    """A chain whose first matmul finds sums in some columns only."""
    left, right = tiles(a), tiles(b)
    out, acc = output(M, N), tile_of()
    nisa.memset(dst=acc, value=9.0)
    nisa.nc_matmul(dst=acc[:, 50:90], stationary=left[0], moving=right[0][:, 50:90])
    for n in range(1, PARTS):
        nisa.nc_matmul(dst=acc, stationary=left[n], moving=right[n])
    stored(out, acc)
    return out


def test_a_chain_adds_where_there_are_sums() -> None:
    (out,) = everywhere(mixed, A, B)
    wanted = product(A[1:], B[1:])
    wanted[:, 50:90] += product(A[0], B[0, :, 50:90])
    assert out.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("kernel", [chain, mixed])
def test_records_see_the_sum_at_the_last_matmul(kernel) -> None:
    record = nki.record(kernel)(A, B)
    writes = [w for w in record.writes("acc") if w.instruction == "nisa.nc_matmul"]
    out = record.outputs[0] if isinstance(record.outputs, tuple) else record.outputs
    assert np.asarray(writes[-1].values).tobytes() == out.tobytes()
    for w in writes[-PARTS:-1]:
        assert not np.array_equal(w.values, out) and np.isfinite(w.values).all()


def test_rounds_that_a_debugger_recorded_end_chains_too(monkeypatch) -> None:
    """With this setting results are computed by the program that debugging has recorded."""
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    a, b = A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)
    part = product(a[:2], b[:2])
    (out,) = everywhere(looped, a, b, 2)
    assert out.tobytes() == (part + part + part + part).tobytes()


@nki.jit
def watched(a, b):
    left, right = tiles(a), tiles(b)
    out, acc = output(M, N), tile_of()
    for n in range(PARTS):
        nisa.nc_matmul(dst=acc, stationary=left[n], moving=right[n])
        acc.numpy()
    assert (acc.numpy() == ONE).all()
    stored(out, acc)
    return out


def test_looking_in_a_debugger_changes_nothing() -> None:
    assert nki.debug(watched)(A, B).tobytes() == ONE.tobytes()
