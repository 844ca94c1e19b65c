"""Slips that newcomers make: one small program each, and what the message must tell them."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
import traceback
import warnings

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.errors import LaunchError, NkiValidationError, NoSuchAttribute, OutOfBoundsError

X = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)


def output(x, shape=None):
    return nl.ndarray(shape or x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def here(mark, function):
    """`file:line` of the line of a function that says `# mark`."""
    code = getattr(function, "fn", function).__code__
    with open(code.co_filename) as file:
        lines = file.read().splitlines()
    last = max(line for *_, line in code.co_lines() if line)
    for n in range(code.co_firstlineno, last + 1):
        if f"# {mark}" in lines[n - 1]:
            return f"{code.co_filename}:{n}"
    raise AssertionError(f"no line is marked {mark}")


def refused(kernel, error, message, *args, grid=None):
    with pytest.raises(error, match=message) as caught:
        nki.simulate(nki.jit(kernel)[grid])(*args)
    return caught.value


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
    assert "an offset that depends on nl.program_id(0)" in error.message
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
    assert "put a nisa.core_barrier on that tensor between them" in load.message


# ---- arguments ----------------------------------------------------------------------------------


@nki.jit
def copied(x):
    out = output(x)
    nl.store(out, nl.load(x))
    return out


FOREIGN = {
    "float64": (
        X.astype(np.float64),
        r"float64, which .*; pass x\.astype\(np\.float32\)\.",
    ),
    "int64": (np.ones((4, 4), np.int64), r"pass x\.astype\(np\.int32\) \(values must fit in 32"),
    "uint64": (np.ones((4, 4), np.uint64), r"pass x\.astype\(np\.uint32\) \(values must fit"),
    "number": (np.array(3), r"pass x\.astype\(np\.int32\) .*, or int\(x\) for a number"),
    "long double": (X.astype(np.longdouble), r"pass x\.astype\(np\.float32\)\."),
    "complex": (X.astype(np.complex64), r"pass x\.real and x\.imag as two arguments"),
    "big endian": (X.astype(">f4"), r"pass x\.astype\(x\.dtype\.newbyteorder\('='\)\)"),
    "objects": (X.astype(object), r"pass np\.array\(x, dtype=np\.float32\): .* Python objects"),
    "text": (np.array(["a"]), r"pass numbers: x holds text"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), r"x\.astype\(np\.int64\)\.astype\(np\.int32\)"),
    "fields": (np.zeros(3, [("a", "f4")]), r"an argument of its own: x\['a'\]"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_foreign_dtype_says_what_to_pass_at_the_callers_line(case):
    array, message = FOREIGN[case]
    with pytest.raises(NkiValidationError, match="argument x of copied has dtype") as caught:
        nki.simulate(copied)(array)  # call
    assert re.search(message, str(caught.value))
    assert caught.value.location == here(
        "call", test_a_foreign_dtype_says_what_to_pass_at_the_callers_line
    )
    assert "bfloat16" in str(caught.value)


def test_what_to_pass_is_taken():
    for array in (X.astype(np.float64), X.astype(">f4")):
        assert np.array_equal(nki.simulate(copied)(array.astype(np.float32)), X)
    swapped = X.astype(">f4")
    assert nki.simulate(copied)(swapped.astype(swapped.dtype.newbyteorder("="))).tobytes()


def test_foreign_dtypes_of_torch_have_torchs_names():
    torch = pytest.importorskip("torch")
    for dtype, words in ((torch.float64, r"x\.float\(\)\."), (torch.int64, r"x\.int\(\) \(values")):
        with pytest.raises(NkiValidationError, match=words):
            nki.simulate(copied)(torch.ones(4, 4, dtype=dtype))


SRC = r"src is a list of 2 tensors.*nki\.per_rank"


def test_a_list_for_ranks_points_to_per_rank():
    with nki.World(ranks=2, host="inprocess") as world:
        for several in ([X, X], (X, X)):
            with pytest.raises(
                NoSuchAttribute, match=r"x is a .* of 2 tensors.*nki\.per_rank"
            ) as e:
                world.run(copied, several)
            assert e.value.location.startswith(__file__)
        with pytest.raises(NkiValidationError, match=SRC):
            world.run(lambda x: nl.load(x), [X, X])
        with pytest.raises(NkiValidationError, match=SRC):
            world.run(lambda x: nisa.dma_copy(dst=output(x[0]), src=x), [X, X])
        for out in world.run(copied, nki.per_rank([X, X])):
            assert np.array_equal(out, X)
        assert len(world.run(lambda x: [copied(one) for one in x], [X, X])[0]) == 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes from 3.11 on")
def test_pythons_own_error_about_a_list_has_a_note():
    error = refused(lambda x: x[0:4, :], TypeError, "list indices must be", [X, X])
    assert any("argument x is a list of 2 tensors" in note for note in error.__notes__)
    unrelated = refused(lambda x: len(3), TypeError, "has no len", [X, X])
    assert not hasattr(unrelated, "__notes__")


def test_arguments_that_are_no_arrays():
    def kernel(x, other=None):
        if other is not None:
            raise AttributeError("of the kernel itself", name="shape", obj=other)
        return x.shape

    asked = "asks its argument x for .shape"
    as_array = r".*known when the kernel is compiled; pass np\.array\(x, dtype=np\.float32\)"
    refused(kernel, NoSuchAttribute, asked + as_array, [1.0, 2.0])
    for value in (None, 3, "words", {"a": X}):
        refused(kernel, NoSuchAttribute, asked + ".*only arrays .* become tensors", value)
    plain = refused(lambda x: x.shapes, AttributeError, "'list' object has no attribute", [X])
    assert type(plain) is AttributeError  # not what tensors have
    own = refused(lambda x: [X].shape, AttributeError, "'list' object has no attribute", X)
    assert type(own) is AttributeError  # not an argument


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
    "store's arguments are swapped": (swapped, r"dst is tile \(64x32 .* value is out .* swapped\?"),
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


# ---- launches -----------------------------------------------------------------------------------


def test_results_and_arguments_in_the_place_of_kernels(world):
    wrong = [
        lambda: world.run(X),
        lambda: nki.simulate(X),
        lambda: nki.profile(X),
        lambda: nki.jit(X),
    ]
    for call in wrong:
        with pytest.raises(LaunchError, match=r"got a numpy ndarray of shape .*; was the kernel"):
            call()
    with pytest.raises(LaunchError, match=r"nki\.simulate\(kernel\)\(x, \.\.\.\)"):
        nki.simulate(copied, X)
    with pytest.raises(LaunchError, match=r"nki\.profile\(kernel\)\(x, \.\.\.\)"):
        nki.profile(copied, X)


def test_a_function_for_ranks_is_called_with_the_rank():
    with nki.World(ranks=2, host="inprocess") as world:
        with pytest.raises(LaunchError, match=r"called with the rank, as in per_rank\(lambda"):
            world.run(copied, nki.per_rank(lambda: X))

        def broken(rank):
            raise TypeError("of the function itself")

        with pytest.raises(TypeError, match="of the function itself"):
            world.run(copied, nki.per_rank(broken))
        assert np.array_equal(world.run(copied, nki.per_rank(lambda rank: X + rank))[1], X + 1)


@nki.jit
def printed(x):
    nl.device_print("x", x[0:1, 0:2])
    return x


def test_a_debug_directory_that_cant_be_made(world, monkeypatch, tmp_path):
    taken = tmp_path / "file"
    taken.write_text("")
    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(taken))
    with pytest.raises(LaunchError, match=r"NEURON_RT_DEBUG_OUTPUT_DIR='.*file': .* can't be writ"):
        world.run(printed, X)
    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(tmp_path / "made"))
    world.run(printed, X)
    assert os.listdir(tmp_path / "made") == ["x"]


# ---- prints before the end ----------------------------------------------------------------------


@nki.jit
def one_waits(x):
    tile, theirs = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nl.device_print("before", tile[0:1, nl.program_id(0) : nl.program_id(0) + 1])
    if nl.program_id(0) == 0:
        nisa.sendrecv(src=tile, dst=theirs, send_to_rank=1, recv_from_rank=1, pipe_id=0)
    return x


@nki.jit
def one_fails(x, row):
    tile, at, out = nl.load(x), nl.load(row), output(x)
    nl.device_print("before", tile[0:1, nl.program_id(0) : nl.program_id(0) + 1])
    nl.store(out[nl.program_id(0) : nl.program_id(0) + 1], tile[0:1])
    if nl.program_id(0) == 1:
        nisa.dma_copy(dst=out.ap([[32, 1], [1, 32]], scalar_offset=at), src=tile[0:1])
    return out


def test_what_cores_print_is_shown_if_the_launch_fails(world, capsys):
    with pytest.raises(errors.DeadlockError):
        world.run(one_waits, X)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[core 0] before [[0.]]",
        "[core 1] before [[1.]]",
    ]
    with pytest.raises(OutOfBoundsError, match="of out "):
        world.run(one_fails, X, np.full((1, 1), 64, np.int32))
    assert "[core 1] before [[1.]]" in capsys.readouterr().out


# ---- tracebacks ---------------------------------------------------------------------------------


def helper(x):
    return nl.load(x[64])  # raised


@nki.jit
def calls_helper(x):
    return helper(x)


@nki.jit
def raises_itself(x):
    def body(i):
        raise KeyError("of the kernel")

    nl.fori_loop(0, 3, body)


def frames(error):
    return [entry.name for entry in traceback.extract_tb(error.__traceback__)]


def test_tracebacks_hold_the_users_frames_only(world):
    me = "test_tracebacks_hold_the_users_frames_only"
    with pytest.raises(OutOfBoundsError) as caught:
        world.run(calls_helper, X)
    assert frames(caught.value) == [me, "calls_helper", "helper"]
    with pytest.raises(KeyError) as raised:
        world.run(raises_itself, X)
    assert frames(raised.value) == [me, "raises_itself", "body"]
    with pytest.raises(errors.DeadlockError) as stuck:
        world.run(one_waits, X)
    assert frames(stuck.value) == [me]
    for call in (
        lambda: nki.simulate(calls_helper)(X),
        lambda: world.dry_run(calls_helper, X),
        lambda: calls_helper.compile(X),
    ):
        with pytest.raises(OutOfBoundsError) as caught:
            call()
        assert frames(caught.value) == [me, "<lambda>", "calls_helper", "helper"]
    for call in (lambda: copied[3](X), lambda: nki.World(ranks=0), lambda: nki.jit(3)):
        with pytest.raises(LaunchError) as wrong:
            call()
        assert frames(wrong.value) == [me, "<lambda>"]


def test_all_frames_on_request(monkeypatch):
    monkeypatch.setenv("NKI_DIST_TRACEBACK", "full")
    error = refused(calls_helper.fn, OutOfBoundsError, "index 64", X)
    assert {"_launch", "compile_kernel", "helper", "_index"} <= set(frames(error))


def test_errors_of_the_package_itself_keep_their_frames(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a bug of ours")

    code = broken.__code__.replace(co_filename=errors.__file__)
    monkeypatch.setattr("nki_dist.language.transfer._check_rows", type(broken)(code, globals()))
    error = refused(copied.fn, ZeroDivisionError, "a bug", X[:5])  # compiled anew
    assert frames(error)[-3:] == ["copied", "load", "broken"]


def test_causes_stay_what_they_were():
    def chained(x):
        try:
            x[99]
        except OutOfBoundsError as error:
            raise RuntimeError("mine") from error

    try:
        raise LookupError("of the caller")
    except LookupError as before:
        error = refused(chained, RuntimeError, "mine", X)
        assert type(error.__cause__) is OutOfBoundsError
        assert error.__cause__.__context__ is before
        assert frames(before) == ["test_causes_stay_what_they_were"]
    assert frames(error.__cause__) == ["chained"]


OUTSIDE = """
import numpy as np
import nki_dist as nki
import nki_dist.language as nl

def test_outside_a_kernel():
    nl.load(np.ones((4, 4), np.float32))

def test_in_a_kernel():
    nki.simulate(lambda x: nl.load(x[4]))(np.ones((4, 4), np.float32))
"""


def test_pytest_shows_no_frames_of_the_package(tmp_path):
    (tmp_path / "test_it.py").write_text(OUTSIDE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True).stdout
    assert "nki.language and nki.isa functions work only inside a kernel" in shown
    assert "index 4 on dimension 0 of size 4 of x" in shown
    places = re.findall(r"^(\S+):\d+: ", shown, re.MULTILINE)
    assert len(places) >= 2 and all(place.endswith("test_it.py") for place in places), shown


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
