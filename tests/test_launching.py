"""Unusual launches: each gives the right result or an error that says what is wrong."""

import collections
import functools
import multiprocessing
import os
import signal
import threading

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.core_actor.ray_session import ensure_ray
from nki_dist.launcher.session import session
from tests.hosts import kernels as K

A = np.arange(24, dtype=np.float32).reshape(4, 6)
same = np.testing.assert_array_equal


@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


def scaled(x, factor):
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=float(factor))
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, t)
    return out


@nki.jit
def add_into(x, y):
    """y += x"""
    t, u = nl.load(x), nl.load(y)
    nisa.tensor_tensor(dst=u, data1=t, data2=u, op=nl.add)
    nl.store(y, u)


def here(kernel):
    return nki.simulate(kernel)


# ---- arrays -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [A[:, ::2], A[::-1, ::-1], np.asfortranarray(A), A.T, np.broadcast_to(A[0], (3, 6))],
    ids=["strided", "negative strides", "Fortran", "transposed", "repeated"],
)
def test_layouts(x):
    same(here(copy)(x), x)


@pytest.mark.parametrize(
    "layout", [np.asfortranarray, lambda a: a[::-1], lambda a: a[:, ::-2]], ids=range(3)
)
def test_written_inputs_keep_their_layout(layout):
    base = A.copy()
    y = layout(base)
    want = y + 1
    here(add_into)(np.ones(y.shape, np.float32), y)
    same(y, want)


def test_read_only_input_that_is_written():
    y = A.copy()
    y.flags.writeable = False
    with pytest.raises(errors.LaunchError, match="read-only array of shape"):
        here(add_into)(A, y)


def test_one_array_twice_is_one_tensor():
    y = A.copy()
    here(add_into)(y, y)
    same(y, 2 * A)


def test_overlapping_views_are_read_before_anything_is_written():
    base = np.arange(28, dtype=np.float32)
    x, y = base[:24].reshape(4, 6), base[4:].reshape(4, 6)
    want = x + y
    here(add_into)(x, y)
    same(y, want)


def test_more_than_hbm_holds():
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1 << 17, 1 << 16), (0, 0))
    with pytest.raises(errors.OutOfMemoryError, match=r"25769803776 .* 68719476736"):
        here(copy)(huge)


# ---- kernels ------------------------------------------------------------------------------------


class Model:
    factor = 2

    @nki.jit
    def kernel(self, x):
        return scaled(x, self.factor)


def test_methods_see_their_object():
    model = Model()
    same(here(model.kernel)(A), 2 * A)
    model.factor = 3
    same(here(model.kernel)(A), 3 * A)


def test_closures_partials_lambdas_and_recursion():
    def make(n):
        return nki.jit(lambda x: scaled(x, n))

    same(here(make(2))(A), 2 * A)
    same(here(make(5))(A), 5 * A)
    same(here(nki.jit(functools.partial(scaled, factor=7)))(A), 7 * A)

    @nki.jit
    def again(x, n):
        return scaled(x, 2) if n == 0 else again[1](scaled(x, 2), n - 1)

    same(here(again)(A, 3), 16 * A)


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_generators_and_coroutines(kind):
    def generator(x):
        yield copy(x)

    async def coroutine(x):
        return x

    function = {"generator": generator, "coroutine": coroutine}[kind]
    said = {"generator": r"generator is a generator function \(`yield`\)", "coroutine": "is async"}
    for make in (nki.jit, nki.simulate, nki.profile):
        with pytest.raises(errors.LaunchError, match=said[kind]) as caught:
            make(function)
        assert caught.value.location == f"{__file__}:{function.__code__.co_firstlineno}"


def test_kernels_without_source():
    names = {"nl": nl, "nisa": nisa}
    exec("def k(x):\n  t = nl.load(x)\n  nisa.tensor_copy(dst=t, src=t[0:2])\n", names)
    with pytest.raises(errors.NkiValidationError) as caught:
        here(nki.jit(names["k"]))(A)
    assert caught.value.location == "<string>:3"


def test_a_kernel_is_not_iterable():
    with pytest.raises(TypeError, match="not iterable"):
        list(copy)


@pytest.mark.parametrize("what", ["tensor", "output", "register"])
def test_tensors_of_an_earlier_launch(what):
    kept = []

    @nki.jit
    def kernel(x):
        t, r = nl.load(x), nisa.register_alloc(1)
        out = nl.ndarray((1, 6), dtype=x.dtype, buffer=nl.shared_hbm)
        kept.append({"tensor": t, "output": out, "register": r}[what])
        used = kept[0]
        if what == "tensor":
            nisa.dma_copy(dst=out, src=used[0:1])
            return out
        row = nl.ds(used, 1) if what == "register" else slice(0, 1)
        nisa.dma_copy(dst=out, src=x[row])
        return used if what == "output" else out

    here(kernel)(A)
    with pytest.raises(errors.CompileError, match="belongs to another launch or core") as caught:
        here(kernel)(A)
    assert caught.value.location.startswith(__file__)


Pair = collections.namedtuple("Pair", "left right")


def test_results_keep_their_structure():
    @nki.jit
    def kernel(x):
        made = copy(x)
        return Pair(made, [made, None, {"t": x.permute((1, 0)), "s": x[1:3, ::2]}])

    pair = here(kernel)(A)
    assert type(pair) is Pair
    assert pair.left is pair.right[0]
    assert pair.right[1] is None
    same(pair.right[2]["t"], A.T)
    same(pair.right[2]["s"], A[1:3, ::2])


# ---- worlds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ranks": 0}, "ranks=0; must be a positive int"),
        ({"ranks": True}, "ranks=True"),
        ({"ranks": 10**7}, "ranks=10000000; must be .* 65,536 at most"),
        ({"ranks": 10**30, "lnc": 2}, "65,536 at most"),
        ({"lnc": 3}, "lnc=3; trn2 allows 1 to 2"),
        ({"lnc": 2, "platform": "trn1"}, "lnc=2; trn1 allows 1 to 1"),
        ({"platform": "trn9"}, "'trn9', allowed: trn1"),
        ({"host": "moon"}, "host='moon'; allowed"),
        ({"timeout": "x"}, "timeout='x'; must be a positive number"),
        ({"timeout": -1}, "timeout=-1; must be a positive number"),
    ],
)
def test_worlds_that_cannot_be(options, text):
    with pytest.raises(errors.LaunchError, match=text):
        nki.World(**options)


def test_closed_worlds():
    world = nki.World(host="inprocess")
    same(world.run(copy, A)[0], A)
    world.close()
    world.close()
    with pytest.raises(errors.LaunchError, match="closed; make another"):
        world.run(copy, A)


def test_a_grid_that_does_not_fit_the_world():
    with nki.World(lnc=2, host="inprocess") as world:
        same(world.run(K.add_halves[2], A, A)[0], 2 * A)
        with pytest.raises(errors.LaunchError, match="grid of 1 cores in a world of lnc=2"):
            world.run(copy[1], A)
        with pytest.raises(errors.LaunchError, match="a kernel is a function, got 3"):
            world.run(3, A)


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (nki.per_rank([A]), "per_rank has 1 entries, the world 2"),
        (nki.per_rank(3), r"per_rank\(3\); allowed: a list"),
        (nki.per_rank([A, A[:2]]), r"\(4, 6\) float32 on rank 0 and \(2, 6\) float32 on rank 1"),
        ([nki.per_rank([A, A])], r"argument x\[0\] is an nki.per_rank inside"),
    ],
)
def test_per_rank_misused(argument, text):
    with (
        nki.World(2, host="inprocess") as world,
        pytest.raises(errors.LaunchError, match=text),
    ):
        world.run(copy, argument)


def test_ranks_that_write_one_array():
    y = A.copy()
    with nki.World(2, host="inprocess") as world:
        world.run(add_into, A, y)  # both ranks write the same bytes
        same(y, 2 * A)
        with pytest.raises(errors.LaunchError, match="rank 1 wrote other bytes"):
            world.run(add_into, nki.per_rank([A, 2 * A]), y)
        same(y, 2 * A)
        mine = [A.copy(), A.copy()]
        world.run(add_into, nki.per_rank([A, 2 * A]), nki.per_rank(mine))
    same(mine[1], 3 * A)


def test_two_platforms_at_once():
    with (
        nki.World(platform="trn1", host="inprocess") as a,
        nki.World(platform="trn3", host="inprocess") as b,
    ):
        for world in (a, b, a):
            same(world.run(copy, A)[0], A)


# ---- processes, threads, signals ----------------------------------------------------------------


@pytest.mark.parametrize("host", ["inprocess", "ray"])
def test_threads_share_the_implicit_world(host, monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", host)
    failures = []

    def launches(n):
        try:
            for i in range(8):
                same(copy(A + n + i), A + n + i)
                y = A + n
                add_into(A, y)
                same(y, 2 * A + n)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=launches, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.fixture
def interrupts():
    """SIGINT raises KeyboardInterrupt, also where a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_interrupted_launch(interrupts):
    """Ctrl-C while the cores run: they stop, and the next launch is right."""
    limit, few = np.array([[2**30]], np.int32), np.array([[3]], np.int32)
    with nki.World(lnc=2) as world:
        world.run(K.count_forever, few)
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            world.run(K.count_forever, limit)
        same(world.run(K.count_forever, few)[0], [[0]])
        same(world.run(K.add_halves, A, A)[0], 2 * A)


def test_timeout_says_who_runs():
    with nki.World(lnc=2, timeout=0.5) as world:
        with pytest.raises(errors.DeadlockError, match=r"of 0.5 s(.|\n)*, in round .* of the loop"):
            world.run(K.count_forever, np.array([[2**30]], np.int32))
        same(world.run(K.add_halves, A, A)[0], 2 * A)


def _launch_in_child(kernel, answers):
    try:
        answers.put(kernel(A).tolist())
    except errors.LaunchError as error:
        answers.put(str(error))


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_processes():
    copy(A)
    context = multiprocessing.get_context("fork")
    for kernel, want in ((copy, "forked"), (here(copy), A.tolist())):
        answers = context.Queue()
        child = context.Process(target=_launch_in_child, args=(kernel, answers))
        child.start()
        try:
            answer = answers.get(timeout=60)
        finally:
            child.kill()
        assert answer == want if kernel is not copy else want in answer


@pytest.mark.slow
def test_ray_shut_down_between_launches():
    import ray

    same(copy(A), A)
    ray.shutdown()
    same(copy(A + 1), A + 1)


@pytest.fixture(scope="module", autouse=True)
def one_ray_session():
    ensure_ray(None)  # by the main thread: the first launch of another thread would start it there
    yield
    session().close()
