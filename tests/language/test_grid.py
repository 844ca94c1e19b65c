"""Program ids: with cores, with the Beta 1 grid, without a grid; no_reorder groups."""

import numpy as np
import pytest

import nki_dist
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

X = np.ones((12, 3), np.float32)


def launch(kernel, grid=None):
    simulated = nki_dist.simulate(nki_dist.jit(kernel))
    return (simulated if grid is None else simulated[grid])(X)


def numbered(x):
    """Each row times the number of the program instance that wrote it."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    axes = range(nl.program_ndim())
    number = 0
    for axis in axes:
        number = number * nl.num_programs(axis) + nl.program_id(axis)
    rows = 12 // nl.num_programs(None)
    here = nl.ds(number * rows, rows)
    nl.store(out[here], nl.multiply(nl.load(x[here]), float(number)))
    return out


@pytest.mark.parametrize(
    ("grid", "programs"),
    [
        (None, 1),
        (1, 1),
        (2, 2),
        ((2,), 2),
        (nl.nc(2), 2),
        (nl.spmd_dim(nl.nc(2), 3), 6),
        (nl.nc(2) * 2, 4),
        ((2, 3), 6),
        ((nl.nc(2), 3), 6),
        ((3, nl.nc(2), 2), 12),
    ],
    ids=str,
)
def test_every_program_instance_runs_once(grid, programs):
    rows = np.arange(12) // (12 // programs)
    np.testing.assert_array_equal(launch(numbered, grid), X * rows[:, None])


def test_without_a_grid():
    def kernel(x):
        assert nl.program_ndim() == 0
        assert (nl.program_id(0), nl.num_programs(0), nl.num_programs(None)) == (0, 1, 1)
        assert nl.num_programs() == 1

    launch(kernel)


def test_numbers_of_programs():
    def kernel(x):
        assert nl.program_ndim() == 3
        assert [nl.num_programs(a) for a in range(3)] == [3, 2, 2]
        assert nl.num_programs((0, 2)) == 6 and nl.num_programs(None) == 12
        assert nl.program_id(-1) == nl.program_id(2)

    launch(kernel, (3, nl.nc(2), 2))


@pytest.mark.parametrize("axis", [1, -2, "x", None])
def test_an_axis_the_grid_doesnt_have(axis):
    with pytest.raises(NkiValidationError, match=r"axis .* of a launch grid with 1 axes") as caught:
        launch(lambda x: nl.program_id(axis), 2)
    assert "test_grid.py" in caught.value.location


def test_no_reorder_groups_its_instructions(trace):
    a = nl.zeros((2, 2), nl.float32)
    with nl.no_reorder():
        nl.add(a, 1.0)
        nl.add(a, 2.0)
    with nl.no_reorder():
        nl.add(a, 3.0)
    nl.add(a, 4.0)
    groups = [i.order_group for i in trace.program.body]
    assert groups[0] == groups[4] == 0
    assert groups[1] == groups[2] != 0 and groups[3] not in (0, groups[1])
