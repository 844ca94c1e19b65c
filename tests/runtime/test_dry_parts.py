"""Dry runs in part: results that are wanted, overlaps that are left open, specs for inputs."""

import importlib

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from tests.collectives import kernels as C
from tests.hosts import kernels as H
from tests.runtime.test_dry_run import F32, same_as_full, world

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]


@nki.jit
def rounds_of_a_sum(x):
    """Of an activation the sums are wanted, and what they are sums of isn't."""
    tile, total = nl.load(x), C.sbuf((1, 1), F32)
    squares, rounds = C.sbuf(x.shape, F32), C.sbuf((1, 1), nl.int32)
    reset = nisa.reduce_cmd.reset_reduce
    nisa.activation(squares, nl.square, tile, reduce_op=nl.add, reduce_res=total, reduce_cmd=reset)
    nisa.tensor_copy(dst=rounds, src=total)
    out, count = C.hbm(x.shape, F32), nisa.register_alloc(rounds)
    for _ in nl.dynamic_range(count):
        nisa.core_barrier(data=out, cores=(0, 1))
    if nl.program_id(0) == 0:
        nl.store(out, squares)
    return out


def test_of_an_instruction_one_result_is_wanted():
    dry = same_as_full(world(1), rounds_of_a_sum, np.ones((1, 5), F32))
    assert dry.exchanges == {"nisa.core_barrier": 2 * 5}


@nki.jit
def there_and_back(x, counts, group):
    """Counts are made from an argument; what arrived decides what goes back."""
    n = counts.shape[1]
    src, there, back = (C.hbm((n, *x.shape[1:]), x.dtype) for _ in range(3))
    outward, homeward = C.hbm((3, n), nl.uint32), C.hbm((3, n), nl.uint32)
    starts, some = C.sbuf((1, n), nl.uint32), nl.load(counts)
    nisa.iota(dst=starts, pattern=[[x.shape[1], n]])
    nisa.dma_copy(dst=src, src=x)
    nisa.dma_copy(dst=outward[0:1], src=some)
    nisa.dma_copy(dst=outward[1:2], src=starts)
    nisa.dma_copy(dst=homeward[1:2], src=starts)
    ncc.all_to_all_v([src], [there], group, outward)
    nisa.dma_copy(dst=homeward[0:1], src=outward[2:3])
    ncc.all_to_all_v([there], [back], group, homeward)
    return back


def test_counts_that_depend_on_counts():
    """Known, they travel; of a TensorSpec nothing does, and everybody meets all the same."""
    x, made, group = np.ones((2, 5), F32), world(2), [[0, 1]]
    counts = nki.per_rank([np.array([[2, 3]], np.uint32), np.array([[4, 1]], np.uint32)])
    dry = same_as_full(made, there_and_back, x, counts, group)
    assert dry.exchanges == {"ncc.all_to_all_v": 8}
    unknown = nki.TensorSpec((1, 2), np.uint32)
    assert made.dry_run(there_and_back, x, unknown, group).exchanges == dry.exchanges
    too_many = nki.per_rank([np.array([[9, 3]], np.uint32), np.array([[4, 1]], np.uint32)])
    with pytest.raises(errors.OutOfBoundsError, match="the chunk from rank 0"):
        made.dry_run(there_and_back, nki.TensorSpec((2, 5), F32), too_many, group)


@nki.jit
def both_store(x):
    """Both cores store to all of `out`."""
    out = C.hbm(x.shape, x.dtype)
    tile = C.sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_overlaps_are_left_to_a_full_run():
    dry = world(1).dry_run(both_store, nki.TensorSpec((4, 6), F32))
    assert len(dry.overlaps) == 1
    assert "test_dry_parts.py" in dry.overlaps[0]
    assert "in no order" in str(dry)
    assert dry.may_overlap == ()
    halves = world(1).dry_run(H.add_halves, np.ones((4, 6), F32), np.ones((4, 6), F32))
    assert halves.overlaps == halves.may_overlap == ()


@nki.jit
def own_heads(x):
    """Each core goes through heads of its own, whose numbers are registers."""
    out = C.hbm(x.shape, x.dtype)
    half = x.shape[0] // 2

    def body(head):
        tile = C.sbuf((x.shape[1], x.shape[2]), x.dtype)
        nisa.dma_copy(dst=tile, src=x[nl.ds(head, 1)])
        nisa.dma_copy(dst=out[nl.ds(head, 1)], src=tile)

    nl.fori_loop(nl.program_id(0) * half, (nl.program_id(0) + 1) * half, body)
    return out


def test_run_time_addresses_may_overlap():
    """That heads are disjoint isn't known before a run: no more is said than that."""
    x = np.arange(4 * 6 * 5, dtype=F32).reshape(4, 6, 5)
    np.testing.assert_array_equal(world(1).run(own_heads, x)[0], x)
    dry = world(1).dry_run(own_heads, nki.TensorSpec(x.shape, F32))
    assert dry.overlaps == () and len(dry.may_overlap) == 1
    assert "maybe touched by both cores of a rank in no order" in str(dry)


@pytest.mark.parametrize(
    "name",
    ["data_parallel", "expert_parallel", "grid_matmul", "ring_attention", "tensor_parallel_mlp"],
)
def test_examples(name):
    example = importlib.import_module(name).EXAMPLE
    case = example.case(np.random.default_rng(3), 4, True)
    made = world(4, 2, platform=example.platform)
    same_as_full(made, example.kernel, **case.arguments)


@pytest.mark.parametrize("shape", [(3, 0), [3, 4], (2.5,), "x"])
def test_specs_are_checked(shape):
    with pytest.raises(errors.LaunchError, match="allowed: a tuple of positive ints"):
        nki.TensorSpec(shape, F32)
    with pytest.raises(errors.NkiValidationError, match="data type"):
        nki.TensorSpec((3, 4), np.float64)


def test_specs_of_ranks_and_inside_containers():
    made = world(2)
    specs = nki.per_rank([nki.TensorSpec((8, 5), F32), np.ones((8, 5), F32)])
    assert len(made.dry_run(H.add_halves, specs, nki.TensorSpec((8, 5), nl.float32)).messages) == 4
    uneven = nki.per_rank(lambda rank: nki.TensorSpec((8, 5 + rank), F32))
    with pytest.raises(errors.LaunchError, match="shapes and dtypes must agree"):
        made.dry_run(H.add_halves, uneven, np.ones((8, 5), F32))


def test_a_spec_outside_a_dry_run_is_refused():
    with pytest.raises(errors.NkiError):
        world(1).run(both_store, nki.TensorSpec((4, 6), F32))


def test_padding_that_is_exchanged_has_no_contents():
    """A tile nobody wrote begins its life in an exchange; a full run would poison it."""

    def kernel(x):
        mine = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.sbuf)
        theirs, other = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.sbuf), 1 - nl.program_id(0)
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    made = world(1, 2)
    assert all(p.facts["poison"] for p in made.compile(kernel, np.ones((4, 6), F32)).programs)
    assert made.dry_run(kernel, nki.TensorSpec((4, 6), F32)).messages == (1, 1)
