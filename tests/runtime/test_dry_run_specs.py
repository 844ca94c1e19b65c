"""What stands for inputs in a dry run, and examples that run dry."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from tests.hosts import kernels as H
from tests.runtime.test_dry_overlaps import both_store
from tests.runtime.test_dry_run import F32, same_as_full, world


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
