"""Slips that newcomers make: one small program each, and what the message must tell them."""

import importlib
import inspect
import warnings

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.errors import NkiValidationError, OutOfBoundsError
from tests.newcomers import X, copied, here, output, refused

# ---- indices outside a tensor -------------------------------------------------------------------

PAST_THE_END = {
    "one row too far": (lambda x, t, p: x[64:65], r"slice 64:65 on dimension 0 of size 64 of x "),
    "rows too far": (lambda x, t, p: x[70:80, 3], r"slice 70:80 on dimension 0 of size 64 of x "),
    "before the first": (lambda x, t, p: x[-70:-65], r"slice -70:-65 on dimension 0 of size 64"),
    "open end": (lambda x, t, p: x[:, 33:], r"slice 33: on dimension 1 of size 32 of x "),
    "with a step": (lambda x, t, p: x[64:80:4], r"slice 64:80:4 on dimension 0 of size 64 of x "),
    "column of a tile": (lambda x, t, p: t[:, 32:36], r"slice 32:36 on dimension 1 .* of tile \(6"),
    "index of a tile": (lambda x, t, p: t[0, -33], r"index -33 on dimension 1 of size 32 of tile"),
    "psum": (lambda x, t, p: p[:, 8:9], r"slice 8:9 on dimension 1 of size 8 of psum \(16x8 "),
    "window": (lambda x, t, p: x[nl.ds(60, 8)], r"nl.ds\(60, 8\) on dimension 0 of size 64 of x "),
    "select": (lambda x, t, p: x.select(1, 32), r"select\(1, 32\) on dimension 1 of size 32 of x "),
    "slice method": (lambda x, t, p: t.slice(1, 30, 33), r"slice\(1, 30, 33, 1\) on .* of tile"),
    "a reshaped view": (
        lambda x, t, p: x.reshape((8, 8, 32))[2, 8],
        r"index 8 on dimension 1 of size 8 of a view of shape \(8, 8, 32\) of x \(64x32 .* 0 to 7",
    ),
    "a part": (
        lambda x, t, p: x[0:16][16:17],
        r"slice 16:17 on dimension 0 of size 16 of a view of shape \(16, 32\) of x \(64x32 .* 15",
    ),
    "wider than all": (
        lambda x, t, p: x[nl.ds(nisa.register_alloc(), 65)],
        r"nl.ds\(r\d+, 65\) on dimension 0 of size 64 of x ",
    ),
}


@pytest.mark.parametrize("case", PAST_THE_END)
def test_an_index_past_the_end_names_tensor_dimension_and_size(case):
    take, message = PAST_THE_END[case]

    def kernel(x):
        tile = nl.load(x)
        psum = nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.psum)
        take(x, tile, psum)
        return x

    refused(kernel, OutOfBoundsError, message, X)


def test_slices_are_cut_and_may_be_empty_on_purpose():
    def kernel(x):
        assert x[48:96].shape == (16, 32) and x[-70:-60].shape == (4, 32)
        assert x[64:64].shape == x[64:].shape == x[9:5].shape == x[140 : min(256, 64)].shape
        assert x[nl.ds(64, 0)].shape == (0, 32)
        out = output(x)
        for start in range(0, 64, 48):
            nl.store(out[start : start + 48], nl.load(x[start : start + 48]))
        return out

    assert np.array_equal(nki.simulate(kernel)(X), X)


def test_an_empty_slice_is_named_where_it_is_used():
    refused(lambda x: nl.load(x[9:5]), NkiValidationError, r"src is empty: .* \(0, 32\) of x \(", X)


def test_division_gives_floats():
    half = "32.0 of type float as bound on dimension 0 of x .*; // divides ints to an int"
    refused(lambda x: nl.load(x[0 : x.shape[0] / 2]), NkiValidationError, half, X)
    refused(lambda x: nl.load(x[nl.ds(x.shape[0] / 2, 4)]), NkiValidationError, half, X)
    refused(lambda x: x[x.shape[0] / 2], NkiValidationError, "index 32.0 .*; // divides", X)
    shape = r"shape \(32.0, 4\); .* `//` an int"
    refused(lambda x: nl.ndarray((64 / 2, 4), nl.float32), NkiValidationError, shape, X)


# ---- both cores ---------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=("inprocess", "ray"))
def world(request):
    with nki.World(lnc=2, host=request.param) as made:
        yield made


@nki.jit
def both_store(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(nl.program_id(0)))
    out = output(x)
    nl.store(out[0:48], tile[0:48])  # stored
    nl.store(out[48:64], nl.load(x[48:64]))
    return out


def test_two_stores_are_to_be_split_and_not_to_be_ordered(world):
    with pytest.raises(errors.RaceError) as caught:
        world.run(both_store, X)
    error = caught.value
    assert error.location == here("stored", both_store)
    assert "of out (64x32 float32 in shared_hbm)" in error.message
    assert "both cores run that line, and 1536 of 2048 elements get different" in error.message
    assert "hint: give each core a range of its own, with an offset that depends" in str(error)
    assert str(error).index("hint: ") < str(error).index("policy: check='races=warn'")
    assert "core_barrier" not in str(error)


@nki.jit
def lines_apart(x):
    out, tile = output(x), nl.load(x)
    if nl.program_id(0) == 0:
        nl.store(out, tile)
    else:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nl.store(out[0:2], tile[0:2])
    return out


@nki.jit
def reads_too_soon(x):
    me, between, out = nl.program_id(0), output(x), output(x)
    nl.store(between[me * 32 : me * 32 + 32], nl.load(x[me * 32 : me * 32 + 32]))
    nl.store(out[me * 32 : me * 32 + 32], nl.load(between[32 - me * 32 : 64 - me * 32]))
    return out


def test_only_a_load_is_told_to_wait():
    two = refused(lines_apart, errors.RaceError, "64 of 2048 elements", X, grid=2)
    assert "both cores run that line" not in two.message and "core_barrier" not in str(two)
    load = refused(reads_too_soon, errors.RaceError, "a load by core .* of between", X, grid=2)
    assert "hint: put nisa.core_barrier(between, (0, 1)) between the store and" in str(load)


# ---- results ------------------------------------------------------------------------------------


def test_a_forgotten_return_warns():
    def forgotten(x):
        out = output(x)  # allocated
        nl.store(out, nl.load(x))

    def in_place(x):
        nl.store(x, nl.load(x))

    def printed(x):
        forgotten(x)
        nl.device_print("x", x[0:1, 0:1])

    with pytest.warns(errors.UnreturnedOutputWarning, match="stores to out .* lost") as seen:
        assert nki.simulate(forgotten)(X) is None
    assert "`return out` gives it to the caller" in str(seen[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nki.simulate(in_place)(X.copy())
        nki.simulate(printed)(X)
        nki.simulate(copied)(X)


# ---- slips in kernels ---------------------------------------------------------------------------


def handle_as_tile(x):
    out, tile = output(x), nl.load(x)
    nl.store(out, nisa.activation(dst=tile, op=nl.exp, data=tile))
    return out


def handle_in_nl(x):
    tile = nl.load(x)
    return nl.exp(nisa.tensor_copy(dst=tile, src=tile))


def shape_of_a_handle(x):
    tile = nl.load(x)
    return nisa.tensor_copy(dst=tile, src=tile).shape


def no_destination(x):
    tile = nl.load(x)
    return nisa.tensor_tensor(data1=tile, data2=tile, op=nl.add)


def swapped(x):
    out, tile = output(x), nl.load(x)
    nl.store(tile, out)
    return out


def array_to_part(x):
    tile = nl.load(x)
    tile[...] = np.ones((64, 32), np.float32)
    return x


def adds_in_place(x):
    tile = nl.load(x)
    tile += 1
    return x


USE_DST = "Instructions write to their dst: use the tensor that was passed as dst"
SLIPS = {
    "a handle is stored": (handle_as_tile, f"what nisa.activation returned, .*{USE_DST}"),
    "a handle is computed with": (handle_in_nl, f"what nisa.tensor_copy returned, .*{USE_DST}"),
    "a handle has no shape": (shape_of_a_handle, r"<instruction tensor_copy> has no .shape: an"),
    "a handle is returned": (
        lambda x: nisa.dma_copy(dst=output(x), src=x),
        f"the kernel returned what nisa.dma_copy returned, .*{USE_DST}",
    ),
    "dst is forgotten": (no_destination, r"'dst'(.|\n)*hint: instructions write to dst and return"),
    "store's arguments are swapped": (swapped, r"dst is tile .* value is out (?s:.*)swapped\?"),
    "a tile += 1": (
        adds_in_place,
        r"arithmetic of tile \(64x32 .*nl\.add\(x, y\)",
    ),
    "a list is assigned": (array_to_part, r"value=a numpy ndarray of shape \(64, 32\); allowed: a"),
    "a tensor as shape": (
        lambda x: nl.ndarray(x, dtype=x.dtype),
        r"shape is the tensor x .*; .* such as its .shape, \(64, 32\)",
    ),
    "a function that isn't called": (
        lambda x: nl.store(output(x), nl.load),
        "src is the function load, which wasn't called",
    ),
    "an array of Python's": (
        lambda x: nl.add(nl.load(x), X),
        r"y is a numpy ndarray of shape \(64, 32\); .* Arrays become tensors when they are arg",
    ),
    "hbm to compute on": (
        lambda x: nl.exp(x),
        r"x is in shared_hbm: x \(64x32 .*; allowed: a tile in SBUF or PSUM \(see nl.load\)",
    ),
    "another number of elements": (
        lambda x: x.reshape((3, 64)),
        r"reshape\(\(3, 64\)\) of x \(64x32 .*: 192 elements, it has 2048",
    ),
}


@pytest.mark.parametrize("case", SLIPS)
def test_slips_in_kernels(case):
    kernel, message = SLIPS[case]
    error = refused(kernel, errors.NkiError, message, X)
    assert error.location.startswith(__file__)


def test_too_many_rows_say_how_many_to_load():
    words = r"src has 129 rows .* of x .*most 128 partitions: load 128 rows at a time"
    error = refused(lambda x: nl.load(x), NkiValidationError, words, np.ones((129, 4), np.float32))
    assert error.instruction == "nl.load"
    words = r"129 partitions in a psum tensor .* tiles of at most 128 rows"
    refused(lambda x: nl.ndarray((129, 4), nl.float32, nl.psum), NkiValidationError, words, X)


# ---- what a module shows ------------------------------------------------------------------------

MODULES = [
    "nki_dist",
    "nki_dist.isa",
    "nki_dist.language",
    "nki_dist.collectives",
    "nki_dist.kernels",
    "nki_dist.dtypes",
    "nki_dist.compat.beta1",
    "nki_dist.compat.beta1.isa",
    "nki_dist.compat.beta1.language",
    "nki_dist.compat.beta1.compiler",
]


@pytest.mark.parametrize("name", MODULES)
def test_dir_shows_the_interface_only(name):
    module = importlib.import_module(name)
    shown = set(dir(module))
    assert shown - {"__version__"} == set(module.__all__)
    assert not shown & {"annotations", "Any", "np", "emit", "spec", "operands", "launcher", "lower"}
    submodules = {n for n in shown if inspect.ismodule(getattr(module, n))}
    assert submodules <= {
        "collectives",
        "errors",
        "isa",
        "language",
        "compiler",
        "psum",
        "sbuf",
        "typing",
    }
    for attribute in shown:
        assert getattr(module, attribute, None) is not None


def test_what_dir_leaves_out_can_still_be_imported():
    assert {"nc_matmul", "activation", "engine"} <= set(dir(nisa))
    assert "alu" not in dir(nisa) and importlib.import_module("nki_dist.isa.alu").ALU
    assert {"load", "ndarray", "float32", "tile_size"} <= set(dir(nl))
    assert nki.compat.install and "compat" not in dir(nki)
