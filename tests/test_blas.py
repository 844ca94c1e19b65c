"""Bits must not depend on how many BLAS threads the user's process has."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.linking.blas import OneBlasThread, features


@nki.jit
def product(lhsT, rhs):
    out = nl.ndarray((lhsT.shape[1], rhs.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray(lhsT.shape, dtype=nl.float32, buffer=nl.sbuf)
    right = nl.ndarray(rhs.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=lhsT)
    nisa.dma_copy(dst=right, src=rhs)
    acc = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc, stationary=left, moving=right)
    nisa.tensor_copy(dst=right[0 : out.shape[0], :], src=acc)
    nisa.dma_copy(dst=out, src=right[0 : out.shape[0], :])
    return out


def blas_threads() -> list[int]:
    return [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]


@pytest.mark.parametrize("threads", [2, 3])
def test_bits_are_the_same_for_any_number_of_blas_threads(threads: int) -> None:
    rng = np.random.default_rng(0)
    for k in (72, 128):
        lhsT = rng.standard_normal((k, k), dtype=np.float32)
        rhs = rng.standard_normal((k, 188), dtype=np.float32)
        results = set()
        for n in (1, threads):
            with threadpool_limits(n, user_api="blas"):
                results.add(nki.simulate(product)(lhsT, rhs).tobytes())
        assert len(results) == 1


def test_the_users_threads_come_back() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        one = np.ones((3, 3), np.float32)
        nki.simulate(product)(one, one)
        assert blas_threads() == before


def test_launches_from_other_threads_are_limited_too() -> None:
    """threadpoolctl obeys one thread only; here that is the main thread."""
    seen: list[list[int]] = []

    def other() -> None:
        with OneBlasThread().use():
            seen.append(blas_threads())
        seen.append(blas_threads())

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert set(seen[0]) == {1}
    assert seen[1] == before


def test_the_last_one_out_restores() -> None:
    limit = OneBlasThread()
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        entered, leave = threading.Event(), threading.Event()

        def other() -> None:
            with limit.use():
                entered.set()
                leave.wait()

        thread = threading.Thread(target=other)
        with limit.use():
            thread.start()
            entered.wait()
        assert set(blas_threads()) == {1}
        leave.set()
        thread.join()
        assert blas_threads() == before


def test_a_use_that_never_came_to_its_end_is_forgotten_with_its_frame() -> None:
    """As Ctrl-C does it that falls between a context and its end."""
    limit = OneBlasThread()
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        interrupted = limit.use()
        interrupted.__enter__()
        with limit.use():
            pass
        assert set(blas_threads()) == {1}
        del interrupted
        with limit.use():
            pass
        assert blas_threads() == before


def test_features_are_those_that_numpy_says_it_found() -> None:
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    assert features() == f"NumPy for {' '.join(found) or 'any processor'}"
