"""Run-time indices that leave their dimension and stay inside the tensor: strict refuses them.

Published kernels count through all blocks of a cache (nki-library, attention_block_tkg.py), so they
are taken by default.
"""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import OutOfBoundsError

BATCH, PLACES, WIDTH = 3, 10, 4


@nki.jit
def update(cache, new, at, batch=1, first=0, skip=False, stay=None):
    position = nl.load(at)
    rows = nl.load(new)
    view = cache if stay is None else cache[:, 0:stay]
    there = view.ap(
        [[WIDTH, new.shape[0]], [1, WIDTH]],
        offset=(batch * PLACES + first) * WIDTH,
        scalar_offset=position,
        indirect_dim=1,
    )
    mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error
    nisa.dma_copy(dst=there, src=rows, oob_mode=mode)
    return cache


@nki.jit
def by_register(cache, new, at):
    rows = nl.load(new)
    for n in nl.dynamic_range(nisa.register_alloc(nl.load(at))):
        there = cache.ap([[WIDTH, 1], [1, WIDTH]], scalar_offset=n, indirect_dim=1)
        nisa.dma_copy(dst=there, src=rows)
    return cache


def arrays(position, rows=1, dtype=np.float32):
    cache = np.arange(BATCH * PLACES * WIDTH, dtype=dtype).reshape(BATCH, PLACES, WIDTH)
    new = -1 - np.arange(rows * WIDTH, dtype=dtype).reshape(rows, WIDTH)
    return cache, new, np.array([[position]], np.int32)


def ran(kernel, arguments, check="strict", host="inprocess", **options):
    with nki.World(ranks=1, host=host, check=check) as world:
        return world.run(kernel, *arguments, **options)[0]


@pytest.mark.parametrize(
    ("position", "rows", "options"),
    [
        (PLACES, 1, {}),
        (PLACES - 1, 2, {}),
        (-1, 1, {}),
        (PLACES - 2, 1, {"first": 2}),
        (PLACES, 1, {"skip": True}),
        (PLACES + 3, 2, {"skip": True}),
        (-2, 1, {"first": 1, "skip": True}),
        (5, 1, {"stay": 5}),
    ],
)
@pytest.mark.parametrize("host", ["inprocess", "debug"])
def test_a_row_of_the_neighbours_is_refused_under_strict(host, position, rows, options):
    size = options.get("stay", PLACES)
    with pytest.raises(OutOfBoundsError) as found:
        ran(update, arrays(position, rows), host=host, **options)
    error = found.value
    assert f"run-time index {position} is outside [0, {size}) of dimension 1 of cache" in str(error)
    assert f"not among these {size} places but among their neighbours" in str(error)
    assert (error.code, error.numbers["got"]) == ("data-index-range", position)
    assert error.location.rpartition(":")[2] == str(update_line())
    cache, new, at = arrays(position, rows)
    start = 1 * PLACES + options.get("first", 0) + position
    want = cache.copy().reshape(-1, WIDTH)
    want[start : start + rows] = new
    found_there = ran(update, (cache, new, at), "default", host, **options)
    np.testing.assert_array_equal(found_there.reshape(-1, WIDTH), want)


def update_line() -> int:
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    return next(n for n, line in enumerate(lines, 1) if "dst=there, src=rows, oob_mode" in line)


@pytest.mark.parametrize(
    ("position", "rows", "options"),
    [
        (0, 1, {}),
        (PLACES - 2, 2, {}),
        (-2, 1, {"first": 2}),
        (PLACES - 3, 1, {"first": 2}),
        (10**6, 1, {"skip": True}),
        (-(10**6), 1, {"skip": True}),
        (PLACES - 1, 2, {"skip": True, "batch": BATCH - 1}),
    ],
)
def test_rows_of_the_dimension_and_those_that_are_skipped_are_taken(position, rows, options):
    default, strict = (
        ran(update, arrays(position, rows), check, **options) for check in ("default", "strict")
    )
    np.testing.assert_array_equal(default, strict)


def test_a_loop_reaches_the_first_place_beyond():
    check = "strict,release=0.6"
    assert ran(by_register, arrays(PLACES), check).shape == (BATCH, PLACES, WIDTH)
    with pytest.raises(OutOfBoundsError, match=rf"index {PLACES} is outside \[0, {PLACES}\)"):
        ran(by_register, arrays(PLACES + 1), check)


@pytest.mark.parametrize(("kernel", "position"), [(by_register, PLACES + 1), (update, PLACES)])
def test_a_dry_run_tells_where_contents_are_known(kernel, position):
    with nki.World(ranks=1, host="inprocess", check="strict,release=0.6") as world:
        world.dry_run(kernel, *arrays(position - 1))
        with pytest.raises(OutOfBoundsError, match="not among these"):
            world.dry_run(kernel, *arrays(position))


@nki.jit
def wide(cache, new, at):
    tile = nl.load(new)
    there = cache.ap(
        [[WIDTH // 2, 1], [1, WIDTH // 2]],
        offset=PLACES * WIDTH // 2,
        scalar_offset=nl.load(at),
        indirect_dim=1,
        dtype=nl.int32,
    )
    nisa.dma_copy(dst=there, src=tile.view(nl.int32))
    return cache


def test_elements_of_another_size_and_a_saved_kernel(tmp_path):
    fits, beyond = (arrays(at, dtype=np.int16) for at in (PLACES - 1, PLACES))
    ran(wide, fits)
    with nki.World(ranks=1, host="inprocess", check="strict") as world:
        world.compile(wide, *fits).save(tmp_path / "wide.nki-dist")
    loaded = Compiled.load(tmp_path / "wide.nki-dist")
    for kernel in (wide, loaded):
        with pytest.raises(OutOfBoundsError, match="not among these"):
            ran(kernel, beyond)
