"""`nki.estimate` and `World.estimate`: what a profiled run gives, without running."""

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compat import beta1
from nki_dist.errors import DeadlockError, LaunchError, OutOfMemoryError
from nki_dist.runtime.hosts import InProcessHost

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
]

F32 = np.float32


@pytest.fixture
def no_launches(monkeypatch):
    """Estimates must neither start cores nor carry instructions out."""

    def refuse(*_, **__):
        raise AssertionError("an estimate launched something")

    monkeypatch.setattr(InProcessHost, "launch", refuse)
    monkeypatch.setattr(nki.World, "_started", refuse)


@nki.jit
def tripled(x, columns=64):
    """3 x; each core takes every other tile of rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(nl.program_id(0) * 128, x.shape[0], 128 * nl.num_programs(0)):
        for column in range(0, x.shape[1], columns):
            tile = nl.load(x[row : row + 128, column : column + columns])
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
            nl.store(out[row : row + 128, column : column + columns], tile)
    return out


@nki.jit
def summed(x, rounds):
    """x times as often as rounds[0, 0] says: its time depends on contents."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    count = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=count, src=rounds)
    total = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.memset(total, 0)
    tile = nl.load(x)
    last = nisa.register_alloc()
    nisa.register_load(last, count)
    for _ in nl.dynamic_range(0, last):
        nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


def added_over_ranks(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    given = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
    made = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
    nisa.dma_copy(dst=given, src=x)
    ncc.all_reduce(
        srcs=[given], dsts=[made], replica_group=ncc.ReplicaGroup([[0, 1, 2]]), op=nl.add
    )
    nisa.dma_copy(dst=out, src=made)
    return out


X = np.random.default_rng(3).standard_normal((256, 192)).astype(F32)


@pytest.mark.parametrize("grid", [None, 2])
@pytest.mark.parametrize("dtype", [nl.float32, ml_dtypes.bfloat16, "float32"])
def test_it_is_the_profile_of_a_run(grid, dtype):
    kernel = tripled if grid is None else tripled[grid]
    x = X.astype(ml_dtypes.bfloat16 if dtype is ml_dtypes.bfloat16 else F32)
    run = nki.profile(kernel, host="inprocess")(x)
    assert nki.estimate(kernel)(nki.TensorSpec(x.shape, dtype)).to_dict() == run.profile.to_dict()
    assert nki.estimate(kernel)(x).to_dict() == run.profile.to_dict()


def test_nothing_is_launched(no_launches):
    assert nki.estimate(tripled[2])(nki.TensorSpec((512, 192), nl.float32)).total_us > 0


def test_the_grid_may_come_after():
    spec = nki.TensorSpec((256, 192), nl.float32)
    assert nki.estimate(tripled)[2](spec).cores == nki.estimate(tripled[2])(spec).cores == 2


def test_compile_time_arguments_count():
    spec = nki.TensorSpec((128, 192), nl.float32)
    few, many = (nki.estimate(tripled)(spec, columns=n) for n in (96, 32))
    assert (few.instructions, many.instructions) == (6, 18)
    assert few.device_us < many.device_us


def test_the_platform_is_the_kernels_or_the_environments(monkeypatch):
    spec = nki.TensorSpec((128, 192), nl.float32)
    assert nki.estimate(nki.jit(tripled, platform_target="trn1"))(spec).platform == "trn1"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    assert nki.estimate(tripled)(spec).platform == "trn3"


def test_loops_go_round_as_the_array_says(no_launches):
    spec = nki.TensorSpec((128, 7), nl.float32)
    made = [nki.estimate(summed)(spec, np.full((1, 1), n, np.int32)) for n in (3, 8)]
    adds = [[e.instructions for e in p.engines if e.engine == "vector"] for p in made]
    assert adds[1][0] - adds[0][0] == 5


def test_loops_that_depend_on_a_spec_are_refused():
    specs = nki.TensorSpec((128, 7), nl.float32), nki.TensorSpec((1, 1), nl.int32)
    with pytest.raises(LaunchError, match=r"contents of argument rounds.*give an array there") as e:
        nki.estimate(summed)(*specs)
    assert e.value.code == "spec-contents" and e.value.location.startswith(__file__)


def test_worlds(no_launches):
    spec = nki.TensorSpec((128, 64), nl.float32)
    world = nki.World(ranks=3, host="inprocess")
    p = world.estimate(added_over_ranks, spec)
    assert p.cores == 3 and p.critical["cc"] > 0
    mixed = nki.per_rank([spec, np.ones((128, 64), F32), spec])
    assert world.estimate(added_over_ranks, mixed).to_dict() == p.to_dict()


def test_it_is_the_profile_of_a_world():
    world = nki.World(ranks=3, host="inprocess")
    x = nki.per_rank(lambda rank: X[:128, :64] + rank)
    run = world.run(added_over_ranks, x, profile=True)
    assert world.estimate(added_over_ranks, x).to_dict() == run.profile.to_dict()


def test_cores_that_wait_in_vain_are_told():
    def lonely(x):
        if nl.program_id(0) == 0:
            nisa.core_barrier(x, (0, 1))

    with pytest.raises(DeadlockError):
        nki.estimate(nki.jit(lonely)[2])(nki.TensorSpec((4, 4), nl.float32))


def test_kernels_of_beta_1():
    @beta1.jit
    def doubled(x):
        tile = beta1.language.load(x)
        beta1.language.store(x, tile + tile)

    spec = nki.TensorSpec((128, 33), nl.float32)
    run = nki.profile(doubled, host="inprocess")(X[:128, :33].copy())
    assert nki.estimate(doubled)(spec).to_dict() == run.profile.to_dict()


def test_mistakes_are_those_of_the_kernel():
    def large(x):
        nisa.memset(nl.ndarray((128, 1 << 20), nl.float32, buffer=nl.sbuf), 0)

    with pytest.raises(OutOfMemoryError) as e:
        nki.estimate(large)(nki.TensorSpec((4, 4), nl.float32))
    assert e.value.location.startswith(__file__)
    with pytest.raises(LaunchError, match="unexpected keyword"):
        nki.estimate(tripled)(nki.TensorSpec((128, 4), nl.float32), rows=3)


def test_a_kernel_that_is_estimated_can_be_called_by_another():
    @nki.jit
    def outer(x):
        return nki.estimate(tripled)(x)

    assert nki.estimate(outer)(nki.TensorSpec((128, 64), nl.float32)).instructions == 3


def test_warnings_of_compiling_are_given():
    def copied(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for dst, src in [(out, x)]:
            nisa.dma_copy(dst=dst, src=src)
        return out

    with pytest.warns(nki.errors.CompilerMayRejectWarning, match="several loop variables"):
        nki.estimate(copied)(nki.TensorSpec((4, 4), nl.float32))
