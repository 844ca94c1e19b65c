"""Launches that are looked at in place of made: what is found."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.compiler.compiled import Compiled
from nki_dist.launcher.checking import Checker, UnknownResult
from nki_dist.launcher.session import session
from nki_dist.testing import Case, Limits, check_kernel
from tests.looked_at import X, codes_of, doubled, looking, many, one, picks


@pytest.fixture
def checker() -> Iterator[Checker]:
    with looking() as made:
        yield made


def test_all_refused_instructions_are_found_and_the_result_is_known(checker):
    @nki.jit
    def three(x):
        out = nl.ndarray((5, 7), dtype=nl.bfloat16, buffer=nl.shared_hbm)
        psum = nl.ndarray((5, 7), dtype=nl.float32, buffer=nl.psum)
        for _ in range(4):
            nisa.dma_copy(dst=psum, src=x)
        tile = nl.load(x)
        first = nisa.tensor_copy(dst=tile, src=tile, engine=nisa.engine.tensor)
        second = nisa.tensor_copy(dst=tile, src=tile)
        second.depends_on(first)
        first.depends_on(second)
        return out

    y = three[2](X[:5, :7].copy())
    assert (y.shape, y.dtype) == ((5, 7), ml_dtypes.bfloat16)
    assert codes_of(checker) == {"three": ["memory-kind", "engine-choice"]}
    lines = [int(d.location.rpartition(":")[2]) for d in checker.kernels()[0].diagnostics]
    first = three.fn.__code__.co_firstlineno
    assert [n - first for n in lines] == [5, 7]


def test_a_result_without_shape_is_passed_on_and_skipped(checker):
    y = many(X)
    assert isinstance(y, UnknownResult)
    z = doubled([y][0])
    assert isinstance(z, UnknownResult)
    assert codes_of(checker) == {"many": ["partition-limit"], "doubled": []}
    assert "unknown shape" in checker.kernels()[1].unchecked[0][1]
    for use in (
        lambda: y.shape,
        lambda: y + 1,
        lambda: np.asarray(y),
        lambda: list(y),
        lambda: y[0],
    ):
        with pytest.raises(errors.LaunchError, match="result of kernel many") as raised:
            use()
        assert raised.value.code == "result-unknown"


def test_what_a_policy_lifts_does_not_hide_what_comes_after(checker):
    @nki.jit
    def both(x, start):
        tile = nl.ndarray((8, 32), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        out = nl.ndarray((8, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        more = nl.ndarray((8, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        n = nl.load(start)
        nisa.dma_copy(dst=more, src=x.ap([[32, 8], [1, 32]], scalar_offset=n, indirect_dim=0))
        return out, more

    assert [y.shape for y in both(X, one(1000))] == [(8, 32)] * 2
    assert codes_of(checker) == {"both": ["unwritten-output", "data-index-range"]}


def test_a_deadlock_and_the_kernels_own_exception(checker):
    @nki.jit
    def lonely(x):
        tile = nl.load(x)
        if nl.program_id(0) == 0:
            nisa.sendrecv(src=tile, dst=tile, send_to_rank=1, recv_from_rank=1, pipe_id=0)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    @nki.jit
    def asserts(x):
        if x.shape[0] != 3:
            raise ValueError("three rows, please")
        return x

    assert lonely[2](X).shape == X.shape
    asserts(X)
    assert codes_of(checker) == {"lonely": ["deadlock"], "asserts": ["kernel-raised"]}
    found = checker.kernels()[1].diagnostics[0]
    assert found.message == "ValueError: three rows, please"
    assert found.location == f"{__file__}:{asserts.fn.__code__.co_firstlineno + 3}"


@nki.jit
def for_ever(x, one):
    count, n = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf), nisa.register_alloc()
    nisa.dma_copy(dst=count, src=one)
    nisa.register_load(n, count)

    def body(k):
        nisa.register_load(k, count)
        return k

    nl.while_loop(n, body)
    return x


def test_a_loop_without_end_ends_the_look(checker, monkeypatch):
    monkeypatch.setattr("nki_dist.launcher.checking.PATIENCE", 0.2)
    for_ever(X, one(1))
    assert codes_of(checker) == {"for_ever": []}
    assert "what comes after" in checker.kernels()[0].unchecked[0][1]
    with nki.World(timeout=0.2) as world:
        world.run(for_ever, X, one(1))
    assert codes_of(checker) == {"for_ever": ["timeout"]}


def test_arguments_and_grids(checker):
    doubled(X, X)
    doubled[3](X)
    doubled(X.astype(np.complex64))
    assert codes_of(checker) == {"doubled": ["call-signature", "lnc-range", "dtype-unknown"]}
    assert "NCC_EVRF004" in checker.kernels()[0].diagnostics[2].to_dict()["aws"]


def test_an_argument_that_cannot_be_written(checker):
    @nki.jit
    def writes(x):
        nl.store(x, nl.load(x))

    fixed = X.copy()
    fixed.flags.writeable = False
    writes(fixed)
    assert codes_of(checker) == {"writes": ["input-read-only"]}


def test_warnings_are_reported_and_leave_a_kernel_ok(checker):
    @nki.jit
    def part(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[0:32], nl.load(x[0:32]))
        return out

    part(X)
    part(X + 1)
    (found,) = checker.kernels()
    assert found.ok and [d.code for d in found.diagnostics] == ["unwritten-rows"]
    assert found.diagnostics[0].to_dict()["severity"] == "warning"
    assert found.diagnostics[0].numbers == {"unwritten": 1024, "elements": 2048}


@nki.jit
def summed(x):
    own = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    nisa.dma_copy(dst=own, src=x)
    ncc.all_reduce(srcs=[own], dsts=[other], replica_group=[[0, 1], [2, 3]], op=nl.add)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=other)
    return out


def test_worlds_start_no_core(checker):
    with nki.World(ranks=4, host="ray") as world:
        run = world.run(summed, nki.per_rank([X + n for n in range(4)]), profile=True)
        assert [y.shape for y in run.outputs] == [X.shape] * 4
        assert run.profile.total_us > 0
        assert world._host is None
    assert codes_of(checker) == {"summed": []}
    with nki.World(ranks=3) as world:
        assert [y.shape for y in world.run(summed, X)] == [X.shape] * 3
    assert codes_of(checker) == {"summed": ["rank-range"]}


def test_profiles_and_simulations(checker):
    assert nki.profile(doubled)(X).profile.total_us > 0
    assert nki.simulate(doubled)(X).shape == X.shape
    assert isinstance(nki.benchmark(many)(X).profile, UnknownResult)
    assert codes_of(checker) == {"doubled": [], "many": ["partition-limit"]}


def test_compiling_by_hand_is_reported_and_raises(checker):
    with pytest.raises(errors.NkiValidationError):
        many.compile(X)
    assert doubled.compile(X).kernel == "doubled"
    assert codes_of(checker) == {"many": ["partition-limit"], "doubled": []}
    assert [k.launches for k in checker.kernels()] == [0, 0]


def test_beta1(checker):
    from nki_dist.compat.beta1 import language as old
    from nki_dist.compat.beta1 import launch

    @launch.jit
    def square(x):
        out = old.ndarray(x.shape, dtype=x.dtype, buffer=old.shared_hbm)
        tile = old.load(x)
        old.store(out, tile * tile)
        return out

    @launch.baremetal
    def outside(x):
        return old.load(x[0:65, old.arange(40)[None, :]])

    assert square(X).shape == X.shape
    assert launch.simulate_kernel(square, X).shape == X.shape
    outside(X)
    (fine, wrong) = checker.kernels()
    assert (fine.name, fine.ok, fine.launches) == ("square", True, 2)
    assert (fine.file, fine.line) == (__file__, square.fn.__wrapped__.__code__.co_firstlineno + 1)
    assert (wrong.name, wrong.ok) == ("outside", False)


def test_surveys_know_beta1(checker):
    from nki_dist.compat.beta1 import isa as old_isa
    from nki_dist.compat.beta1 import language as old
    from nki_dist.compat.beta1 import launch

    @launch.jit
    def bogus(x):
        out = old.ndarray(x.shape, dtype=x.dtype, buffer=old.shared_hbm)
        tile = old.load(x)
        kept = old.ndarray((old.par_dim(64), 32), dtype=np.float32, buffer="sbuf")  # as Beta 1 may
        kept[...] = old.add(tile, 1.0)
        old_isa.activation(np.exp, tile, scale="bogus")
        old.store(out, kept)
        return out

    assert bogus(X).shape == X.shape
    assert codes_of(checker) == {"bogus": ["operand-kind"]}


# ---- programs from files ------------------------------------------------------------------------


def loaded(tmp_path, kernel, *args, lnc=1):
    with nki.World(1, lnc, "trn2", "inprocess") as w:
        w.compile(kernel, *args).save(tmp_path / "k.nkip")
    return Compiled.load(tmp_path / "k.nkip")


def test_programs_from_files_are_looked_at(tmp_path):
    fine, wrong = loaded(tmp_path, doubled, X), loaded(tmp_path, picks, X, one(3))
    session().checker = checker = Checker()
    try:
        with nki.World(1, 1, "trn2", "inprocess") as w:
            (out,) = w.run(fine, X)
            w.run(wrong, X, one(3))
            assert checker.kernels()[1].ok
            w.run(wrong, X, one(60))
            (unknown,) = w.run(fine, X[:3])
            run = w.run(fine, X, profile=True)
    finally:
        session().checker = None
    assert (out.shape, out.dtype, out.any()) == (X.shape, X.dtype, False)
    assert isinstance(unknown, UnknownResult)
    assert run.profile.total_us > 0
    assert codes_of(checker) == {"doubled": ["loaded-kernel"], "picks": ["data-index-range"]}
    assert [k.launches for k in checker.kernels()] == [3, 2]


def both_store(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


@pytest.mark.parametrize(("races", "doubts"), [("off", 0), ("error", 1)])
def test_races_of_files_are_doubted_as_the_world_says(tmp_path, races, doubts):
    program = loaded(tmp_path, both_store, X, lnc=2)
    session().checker = checker = Checker()
    try:
        with nki.World(1, 2, "trn2", "inprocess", check=f"races={races}") as w:
            w.run(program, X)
    finally:
        session().checker = None
    (found,) = checker.kernels()
    assert len([why for _, why in found.unchecked if "race" in why]) == doubts


# ---- check_kernel -------------------------------------------------------------------------------


def test_check_kernel_judges_no_values_that_were_not_computed(checker):
    case = Case({"x": (13, 7)})
    report = check_kernel(doubled, lambda x: 2 * x, case, data=("normal",))
    assert report.ok and len(report.results) == 2
    assert all("compares values" in r.unchecked for r in report.results)
    assert str(report).startswith("doubled on trn2: 2 of 2 unchecked")
    assert report.results[0].time_us > 0
    (kernel,) = checker.kernels()
    assert kernel.ok and [why for _, why in kernel.unchecked] == [report.results[0].unchecked]

    less = Limits(time_us=0.001, sbuf_bytes=1)
    over = check_kernel(doubled, lambda x: 2 * x, case, limits=less, raises=False)
    assert {f.code for f in over.failures} == {"too-slow", "too-much-memory"}
    wrong = check_kernel(many, lambda x: x, Case({"x": (64, 32)}), raises=False)
    assert {f.code for f in wrong.failures} == {"partition-limit"}

    session().checker = None
    judged = check_kernel(doubled, lambda x: 3 * x, case, raises=False)
    assert {f.code for f in judged.failures} == {"wrong-value"}
    assert not any(r.unchecked for r in judged.results)


def test_launches_are_made_again_without_a_checker(checker):
    doubled(X)
    session().checker = None
    np.testing.assert_array_equal(nki.simulate(doubled)(X), 2 * X)


def test_a_file_that_is_no_python_any_more(checker, tmp_path):
    file = tmp_path / "kernel.py"
    text = "def copied(x):\n    '''Copies.'''\n    return x\n"
    file.write_text(
        text.replace("'''\n", "''' '''\n")
    )  # as compiled by an importer that repairs it
    names = {}
    exec(compile(text, str(file), "exec"), names)
    nki.simulate(nki.jit(names["copied"]))(X[:5, :7].copy())
    assert [(k.name, k.line) for k in checker.kernels()] == [("copied", 1)]


def test_kernels_have_the_name_of_aws_for_their_function():
    @nki.jit
    def kernel(x):
        return x

    assert kernel.func is kernel.fn
