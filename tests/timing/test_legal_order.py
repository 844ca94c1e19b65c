"""Orders that the edges allow give the same bytes."""

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.timing import order
from tests.timing import reorder
from tests.timing.build import compiled, executed
from tests.timing.reorder import legal_order, reordered
from tests.timing.test_order import scatter_kernel


def test_legal_order_is_seeded_and_keeps_edges():
    (program,), _ = compiled(scatter_kernel(11), [(8, 8)])
    graph = order(program)
    one, two = legal_order(program, 1), legal_order(program, 2)
    assert sorted(one) == list(range(len(graph))) and one == legal_order(program, 1) != two
    rank = {at: n for n, at in enumerate(one)}
    assert all(rank[p] < rank[at] for at in range(len(graph)) for p in graph.before(at))


@pytest.mark.parametrize("seed", range(4))
def test_a_legal_order_gives_the_same_bytes(seed):
    x = np.random.default_rng(seed).standard_normal((96, 40)).astype(np.float32)
    expected, (program,), _, _ = executed(scatter_kernel_with_input, [x])
    moved, _, _, _ = executed(scatter_kernel_with_input, [x], change=lambda p: reordered(p, seed))
    assert np.array_equal(moved, expected)
    assert reordered(program, seed).body != program.body


def test_an_order_without_the_edges_gives_other_bytes(monkeypatch):
    def loose(program):
        graph = order(program)
        graph.data = [()] * len(graph)
        return graph

    x = np.random.default_rng(0).standard_normal((96, 40)).astype(np.float32)
    expected, _, _, _ = executed(scatter_kernel_with_input, [x])
    monkeypatch.setattr(reorder, "order", loose)
    found, _, _, _ = executed(scatter_kernel_with_input, [x], change=lambda p: reordered(p, 1))
    assert not np.array_equal(found, expected)


def scatter_kernel_with_input(x):
    out = nl.ndarray((96, 40), nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((96, 40), nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((96, 40), nl.float32, buffer=nl.sbuf)
    for tile in (a, b):
        nisa.dma_copy(dst=tile[:, 0:13], src=x[:, 13:26])
        nisa.dma_copy(dst=tile[:, 13:40], src=x[:, 0:27])
    for n in range(0, 40, 5):
        nisa.tensor_tensor(dst=a[:, n : n + 5], data1=a[:, n : n + 5], data2=b[:, 0:5], op=nl.add)
        nisa.tensor_copy(dst=b[:, 0:5], src=a[:, n : n + 5])
    nisa.dma_copy(dst=out, src=a)
    return out


def test_sums_left_in_the_registers_are_read_after_they_are_made():
    def kernel(x):
        a, b, c = (nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf) for _ in range(3))
        total = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=a, value=2)
        nisa.activation_reduce(dst=b, op=nl.copy, data=a, reduce_op=nl.add, reduce_res=None)
        nisa.activation(
            dst=c,
            op=nl.copy,
            data=a,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.idle,
        )

    (program,), _ = compiled(kernel, [(2, 2)])
    assert order(program).data[2] == (0, 1)
