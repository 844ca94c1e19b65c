"""Signs in who reads what: a result lost, a window that stands still, a twin, a start that wins."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.insight.lines import lines_of

LINES = lines_of(__file__)
LAST = "it made this number; what follows only moved it"


def sbuf(shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


@nki.jit
def two_layers(x, w1, w2, wrong=True):
    """w2.T @ relu(w1.T @ x), the hidden rows in two blocks that share one buffer if wrong."""
    m, n = x.shape[1], w2.shape[1]
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.load(x)
    shared = sbuf((64, m))
    hidden = [shared if wrong else sbuf((64, m)) for _ in range(2)]
    for j in range(2):
        block = nl.ndarray((64, m), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=block, stationary=nl.load(w1[:, 64 * j : 64 * j + 64]), moving=rows)
        # LINE two_layers
        nisa.activation(dst=hidden[j], op=nl.relu, data=block)
    acc = nl.ndarray((n, m), dtype=nl.float32, buffer=nl.psum)
    for j in range(2):
        part = nl.load(w2[64 * j : 64 * j + 64, :])
        nisa.nc_matmul(dst=acc, stationary=part, moving=hidden[j], accumulate=j > 0)
    result = sbuf((n, m))
    nisa.tensor_copy(dst=result, src=acc)
    nl.store(out, result)
    return out


@nki.jit
def window_mean(x, wrong=True):
    """The mean of three neighbours; the third is the second again if wrong."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns - 2), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, total = nl.load(x), sbuf((rows, columns - 2))
    first, second = tile[:, 0 : columns - 2], tile[:, 1 : columns - 1]
    third = second if wrong else tile[:, 2:columns]
    nisa.tensor_tensor(dst=total, data1=first, data2=second, op=nl.add)
    # LINE window_mean
    nisa.tensor_tensor(dst=total, data1=total, data2=third, op=nl.add)
    nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=1 / 3)
    nl.store(out, total)
    return out


@nki.jit
def gated(x, up, gate_bias, up_bias, wrong=True):
    """silu(x + gate_bias) * (up + up_bias); the gate's bias twice if wrong."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    gate, tile = nl.load(x), nl.load(up)
    of_gate, of_up = nl.load(gate_bias), nl.load(up_bias)
    nisa.activation(dst=gate, op=nl.silu, data=gate, bias=of_gate)
    # LINE gated
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=of_gate if wrong else of_up)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=gate, op=nl.multiply)
    nl.store(out, tile)
    return out


@nki.jit
def running_maximum(x, wrong=True):
    """The maximum of each row in blocks of 16 columns; begins with zero if wrong."""
    out = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    best, block = sbuf((x.shape[0], 1)), sbuf((x.shape[0], 1))
    # LINE running_maximum
    nisa.memset(dst=best, value=0.0 if wrong else -1e30)
    for first in range(0, x.shape[1], 16):
        columns = nl.load(x[:, first : first + 16])
        nisa.tensor_reduce(dst=block, op=nl.maximum, data=columns, axis=1)
        nisa.tensor_tensor(dst=best, data1=best, data2=block, op=nl.maximum)
    nl.store(out, best)
    return out


SHAPES = {
    two_layers: [(32, 20), (32, 128), (128, 24)],
    window_mean: [(12, 18)],
    gated: [(24, 10), (24, 10), (24, 1), (24, 1)],
    running_maximum: [(20, 48)],
}
SIGNS = {
    two_layers: "nothing had read",
    window_mean: "the same part of tile",
    gated: "of_up is like it",
    running_maximum: "left nothing but this start",
}


def of(kernel, wrong):
    rng = np.random.default_rng(4)
    arguments = [rng.standard_normal(shape).astype(np.float32) - 4 for shape in SHAPES[kernel]]
    return nki.record(kernel)(*arguments, wrong=wrong).origin(0, (3, 0))


@pytest.mark.parametrize("kernel", SHAPES, ids=lambda k: k.__name__)
def test_the_guilty_line(kernel):
    origin = of(kernel, wrong=True)
    assert origin[0].location == LINES[kernel.__name__], str(origin)
    assert SIGNS[kernel] in origin.why


@pytest.mark.parametrize("kernel", SHAPES, ids=lambda k: k.__name__)
def test_right_kernels_show_no_sign(kernel):
    assert of(kernel, wrong=False).why == LAST


@nki.jit
def scratch(x):
    """Results that are dropped on purpose: squares of which only the sums count; a relu's floor."""
    out = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, squares, total = nl.load(x), sbuf(x.shape), sbuf((x.shape[0], 2))
    for n in range(2):
        nisa.activation_reduce(
            dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total[:, n : n + 1]
        )
    nisa.tensor_tensor(dst=total[:, 0:1], data1=total[:, 0:1], data2=total[:, 1:2], op=nl.add)
    zero = sbuf((x.shape[0], 1))
    nisa.memset(dst=zero, value=0.0)
    nisa.tensor_tensor(dst=zero, data1=zero, data2=total[:, 0:1], op=nl.minimum)
    nl.store(out, zero)
    return out


def test_what_is_dropped_on_purpose_is_no_sign():
    x = np.random.default_rng(1).standard_normal((16, 12)).astype(np.float32)
    assert nki.record(scratch)(x).origin(0, (3, 0)).why == LAST


@nki.jit
def weighted_window(x):
    """x[i] + 2 * x[i + 1] + x[i + 2]: a window is read twice, and the one further on as well."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns - 2), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, total = nl.load(x), sbuf((rows, columns - 2))
    windows = [tile[:, 0 : columns - 2], tile[:, 1 : columns - 1], tile[:, 2:columns]]
    nisa.tensor_tensor(dst=total, data1=windows[0], data2=windows[1], op=nl.add)
    nisa.tensor_tensor(dst=total, data1=total, data2=windows[1], op=nl.add)
    nisa.tensor_tensor(dst=total, data1=total, data2=windows[2], op=nl.add)
    nl.store(out, total)
    return out


def test_a_window_that_counts_twice_is_no_sign():
    x = np.random.default_rng(1).standard_normal((16, 12)).astype(np.float32)
    assert nki.record(weighted_window)(x).origin(0, (3, 0)).why == LAST
