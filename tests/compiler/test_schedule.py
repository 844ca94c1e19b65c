"""`kernel.with_schedule`: what the edges become, and the ones that are refused."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError
from nki_dist.program import Loop, instructions
from tests.compiler.compiling import line_of
from tests.timing.build import events

X = np.linspace(1, 2, 35, dtype=np.float32).reshape(5, 7)


@nki.jit
def two_engines(x):
    """1 / x + 2: the Vector and the GpSimd engine don't need each other at first."""
    tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    a, b = [nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf) for _ in range(2)]
    nisa.reciprocal(dst=a, data=tile, name="reciprocal")
    nisa.memset(dst=b, value=2, engine=nisa.gpsimd_engine, name="twos")
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add, name="sum")
    nl.store(out, a)
    return out


def after(kernel, *arrays):
    """opcode -> opcodes it was told to follow."""
    (program,) = kernel.compile(*arrays).programs
    return edges(program)


def edges(program):
    found = {i.ordinal: i for i in instructions(program.body)}
    return {i.opcode: {found[n].opcode for n in i.after} for i in found.values() if i.after}


@pytest.mark.parametrize("earlier", ["reciprocal", ["reciprocal"], ("reciprocal",)])
def test_an_edge_orders_engines_in_simulated_time_and_leaves_results_alone(earlier):
    kernel = nki.simulate(two_engines)
    scheduled = kernel.with_schedule([("twos", earlier)])
    assert after(scheduled, X) == {"memset": {"reciprocal"}}
    assert after(kernel, X) == {}

    plain, run = (nki.profile(k)(X) for k in (kernel, scheduled))
    (first,), (second,) = (_events(run, name) for name in ("reciprocal", "memset"))
    assert second.start >= first.end
    (first,), (second,) = (_events(plain, name) for name in ("reciprocal", "memset"))
    assert second.start < first.end
    assert run.profile.total_us > plain.profile.total_us
    assert run.outputs.tobytes() == plain.outputs.tobytes()
    np.testing.assert_allclose(run.outputs, 1 / X.astype(np.float64) + 2, rtol=1e-6)


def _events(run, opcode):
    return [e for e in events(run.profile.timeline) if e.instruction.opcode == opcode]


def test_edges_add_up_over_lists_and_calls():
    kernel = two_engines.with_schedule([("twos", "reciprocal")])
    both = kernel.with_schedule([("sum", ["reciprocal", "twos"])])
    wanted = {"memset": {"reciprocal"}, "tensor_tensor": {"reciprocal", "memset"}}
    assert after(both, X) == wanted
    assert after(two_engines, X) == {}  # the kernel itself has none


def test_a_kernel_called_by_another_keeps_its_schedule():
    inner = two_engines.with_schedule([("twos", "reciprocal")])

    @nki.jit
    def outer(x):
        return inner(x), two_engines(x)

    assert after(outer, X) == {"memset": {"reciprocal"}}
    (program,) = outer.compile(X).programs
    assert sum(bool(i.after) for i in instructions(program.body)) == 1


def test_every_program_instance_has_names_of_its_own():
    @nki.jit
    def rows(x):
        me = nl.program_id(1)
        tile = nl.load(x[me : me + 1, :])
        nisa.reciprocal(dst=tile, data=tile, name="first")
        other = nl.zeros((1, 7), x.dtype)
        nisa.reciprocal(dst=other, data=nl.load(x[me : me + 1, :]), name="second")

    scheduled = rows.with_schedule([("second", "first")])
    (program,) = scheduled[nl.nc(1), 5].compile(X).programs
    pairs = [(i.ordinal, *i.after) for i in instructions(program.body) if i.after]
    assert len(pairs) == 5
    # Each instance: load, first, zeros, load, second.
    assert [later - earlier for later, earlier in pairs] == [3] * 5


@nki.jit
def on_core_0(x):
    if nl.program_id(0) == 0:
        nisa.memset(dst=nl.ndarray((4, 4), x.dtype, buffer=nl.sbuf), value=0, name="first")
        nisa.memset(dst=nl.ndarray((4, 4), x.dtype, buffer=nl.sbuf), value=1, name="second")


def test_a_core_may_lack_the_instructions():
    compiled = on_core_0.with_schedule([("second", "first")])[2].compile(X)
    assert [[i.after for i in instructions(p.body)] for p in compiled.programs] == [
        [(), (0,)],
        [],
    ]


def test_collectives_have_names():
    @nki.jit
    def gathers(x, group):
        for name in ("a", "b"):
            src = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            dst = nl.ndarray((10, 7), x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=src, src=x)
            ncc.all_gather([src], [dst], group, 0, name=name)

    world = nki.World(ranks=2, host="inprocess")
    scheduled = gathers.with_schedule([("b", "a")])
    (program,) = world.compile(scheduled, X, ncc.ReplicaGroup([[0, 1]])).programs
    assert edges(program) == {"all_gather": {"all_gather"}}


def test_an_edge_within_a_dynamic_loop():
    @nki.jit
    def loop(x):
        tile = nl.load(x)
        for _ in nl.dynamic_range(3):
            nisa.reciprocal(dst=tile, data=tile, name="first")
            nisa.memset(dst=nl.ndarray((4, 4), x.dtype, buffer=nl.sbuf), value=0, name="second")

    (program,) = loop.with_schedule([("second", "first")]).compile(X).programs
    (body,) = [item.body for item in program.body if isinstance(item, Loop)]
    assert body[1].after == (body[0].ordinal,)


@nki.jit
def from_inside(x):
    tile = nl.load(x)
    for _ in nl.dynamic_range(3):
        nisa.reciprocal(dst=tile, data=tile, name="inside")
    nisa.memset(dst=nl.ndarray((4, 4), x.dtype, buffer=nl.sbuf), value=0, name="outside")


@nki.jit
def same_names(x):
    for value in range(3):
        nisa.memset(dst=nl.ndarray((4, 4), x.dtype, buffer=nl.sbuf), value=value, name="set")
    nisa.memset(dst=nl.ndarray((4, 4), x.dtype, buffer=nl.sbuf), value=9, name="last")


@pytest.mark.parametrize(
    "kernel, edge, message, line",
    [
        (two_engines, ("reciprocal", "twos"), "issue them in the other order", "reciprocal("),
        (two_engines, ("sum", "sum"), "the kernel issues it before", "tensor_tensor("),
        (two_engines, ("sum", "cube"), "names 'cube', but no instruction", None),
        (two_engines, ("cube", "sum"), "names 'cube', but no instruction", None),
        (from_inside, ("outside", "inside"), "inside a dynamic loop", "memset("),
        (same_names, ("last", "set"), "'set', and 3 instructions are called so", "value=value"),
    ],
)
def test_edges_that_make_no_sense_are_refused(kernel, edge, message, line):
    with pytest.raises(NkiValidationError, match=message) as error:
        kernel.with_schedule([edge]).compile(X)
    assert error.value.location == (line and line_of(kernel.fn, line))


def test_a_name_that_no_core_has_is_refused():
    with pytest.raises(NkiValidationError, match="names 'third'"):
        on_core_0.with_schedule([("third", "first")])[2].compile(X)


@pytest.mark.parametrize("wrong", [5, "ab", {"a": "b"}, [("a",)], [("a", 3)], [(1, "a")], ["ab"]])
def test_what_is_no_list_of_pairs_is_refused(wrong):
    with pytest.raises(NkiValidationError, match="it takes a list of pairs"):
        two_engines.with_schedule(wrong)
