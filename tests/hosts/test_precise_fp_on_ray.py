"""NKI_PRECISE_FP=0 with actors: the launcher decides, whatever the actors' environment says."""

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def swapped(x, total):
    """Each core scales the rows in bfloat16, swaps them, and adds up what it has."""
    me = nl.program_id(0)
    mine, theirs = [nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf) for _ in range(2)]
    nisa.tensor_scalar(dst=mine, data=nl.load(x), op0=nl.multiply, operand0=1.1 + me)
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    spilled = nl.ndarray((2, *x.shape), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    out = nl.ndarray((2, *x.shape), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=spilled[me], src=theirs)
    nisa.core_barrier(data=spilled, cores=(0, 1))
    nisa.dma_copy(dst=theirs, src=spilled[1 - me])
    nisa.dma_copy(dst=out[me], src=theirs)
    nisa.tensor_tensor(dst=mine, data1=mine, data2=theirs, op=nl.add)
    nisa.dma_copy(dst=total[me], src=mine)
    return out


@pytest.mark.parametrize("value", ["0", "1", "0"])
def test_both_hosts_agree(monkeypatch, value):
    monkeypatch.setenv("NKI_PRECISE_FP", value)
    x = np.random.default_rng(3).standard_normal((12, 7)).astype(np.float32)
    results = []
    for kernel in (swapped[2], nki.simulate(swapped)[2]):
        total = np.zeros((2, 12, 7), ml_dtypes.bfloat16)
        results.append((kernel(x, total), total))
    (out, total), (here, total_here) = results
    assert out.tobytes() == here.tobytes() and total.tobytes() == total_here.tobytes()
    scaled = np.stack([x.astype(np.float64) * 1.1, x.astype(np.float64) * 2.1])
    error = np.abs(out - scaled).max()
    assert error < 1e-6 if value == "0" else error > 1e-3
    if value == "0":
        assert np.array_equal(total, (2 * out).astype(ml_dtypes.bfloat16))
