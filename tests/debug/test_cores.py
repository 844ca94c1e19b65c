"""Several cores and ranks under debug: turns, deadlocks, races, mismatches, prints, profiles."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors

X = np.random.default_rng(4).standard_normal((6, 11)).astype(np.float32)


def exchanged(x):
    """Each core adds its half of the rows to the other's."""
    me, rows = nl.program_id(0), x.shape[0] // 2
    out = nl.ndarray((rows, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    mine, theirs = (
        nl.load(x[me * rows : me * rows + rows]),
        nl.ndarray((rows, 11), x.dtype, nl.sbuf),
    )
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    looked.append((me, theirs.numpy(), threading.current_thread().name))
    nisa.tensor_tensor(dst=mine, data1=mine, data2=theirs, op=nl.add)
    if me == 0:
        nl.store(out, mine)
    nisa.core_barrier(data=out, cores=[0, 1])
    looked.append((me, out.numpy(), ""))
    return out


looked: list[tuple[int, np.ndarray, str]] = []


def test_two_cores_see_what_the_other_sent_and_stored():
    looked.clear()
    before = threading.active_count()
    out = nki.debug(nki.jit(exchanged)[2])(X)
    np.testing.assert_array_equal(out, X[:3] + X[3:])
    seen = {me: (values, thread) for me, values, thread in looked if thread}
    np.testing.assert_array_equal(seen[0][0], X[3:])
    np.testing.assert_array_equal(seen[1][0], X[:3])
    assert {me: thread for me, (_, thread) in seen.items()} == {
        0: "exchanged on core 0",
        1: "exchanged on core 1",
    }
    stored = [values for _, values, thread in looked if not thread]
    assert len(stored) == 2
    for values in stored:
        np.testing.assert_array_equal(values, out)
    assert threading.active_count() == before


def summed(x, group):
    local = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rank = ncc.rank_id()
    nisa.dma_copy(dst=local, src=x)
    ranks.append(int(rank) if "=" in repr(rank) else None)
    ncc.all_reduce(srcs=[local], dsts=[out], replica_group=group, op=nl.add)
    return out


ranks: list[int | None] = []


@pytest.mark.parametrize("lnc", [1, 2])
def test_ranks_meet_in_collectives(lnc):
    parts = [np.full((4, 3), 10.0**rank, np.float32) for rank in range(3)]
    outs = {}
    for host in ("inprocess", "debug"):
        ranks.clear()
        with nki.World(ranks=3, lnc=lnc, host=host) as world:
            outs[host] = world.run(summed, nki.per_rank(parts), ncc.ReplicaGroup([[0, 1, 2]]))
    assert sorted(ranks) == sorted([0, 1, 2] * lnc)
    for here, stepped in zip(outs["inprocess"], outs["debug"]):
        assert here.tobytes() == stepped.tobytes()
        np.testing.assert_array_equal(stepped, sum(parts))


def same_error(kernel, kind, *arrays, lnc=2, count=1, instruction=True):
    """Both hosts raise it, with one message; the debugged one may know more of the instruction."""
    caught = []
    for host in ("inprocess", "debug"):
        with nki.World(ranks=count, lnc=lnc, host=host) as world, pytest.raises(kind) as raised:
            world.run(kernel, *arrays)
        caught.append(raised.value)
    here, stepped = (error.to_dict() for error in caught)
    if not instruction:
        assert here.pop("instruction") is None and stepped.pop("instruction")
    assert here == stepped
    return caught[1]


def test_deadlock():
    def one_sided(x):
        mine, theirs = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        if nl.program_id(0) == 0:
            nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1, recv_from_rank=1, pipe_id=0)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, mine)
        return out

    before = threading.active_count()
    error = same_error(one_sided, errors.DeadlockError, X)
    assert "core 0 waits in nisa.sendrecv" in str(error)
    assert "core 1 has finished" in str(error)
    assert threading.active_count() == before


def test_mismatch():
    def kernel(x):
        me = nl.program_id(0)
        mine = nl.load(x[: 2 + me])
        theirs = nl.ndarray(mine.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
        return x

    assert "shape" in str(same_error(kernel, errors.CollectiveMismatchError, X))


def test_messages_that_nobody_took():
    def kernel(x):
        me, tile = nl.program_id(0), nl.load(x)
        nisa.sendrecv(src=tile, dst=tile, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
        if me == 0:
            nisa.sendrecv(src=tile, dst=tile, send_to_rank=0, recv_from_rank=0, pipe_id=1)
        return x

    nki.debug(nki.jit(kernel)[2])(X)

    def wrong(x):
        me, tile = nl.program_id(0), nl.load(x)
        nisa.sendrecv(src=tile, dst=tile, send_to_rank=1, recv_from_rank=me, pipe_id=2)
        return x

    same_error(wrong, errors.NkiError, X)


@pytest.mark.parametrize("policy", ["races=error", "races=warn", "races=off"])
def test_races_are_told_by_value(policy):
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0 + nl.program_id(0))
        nl.store(out, tile)
        return out

    if policy == "races=error":
        assert "nothing orders" in str(same_error(kernel, errors.RaceError, X))
    elif policy == "races=warn":
        with pytest.warns(errors.RaceWarning):
            nki.debug(nki.jit(kernel)[2], check=policy)(X)
    else:
        nki.debug(nki.jit(kernel)[2], check=policy)(X)

    def harmless(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    np.testing.assert_array_equal(nki.debug(nki.jit(harmless)[2], check=policy)(X), X)


def test_cores_that_allocate_otherwise_are_refused():
    def kernel(x):
        rows = 6 if nl.program_id(0) == 0 else 5
        nl.ndarray((rows, 11), dtype=x.dtype, buffer=nl.shared_hbm)
        return x

    error = same_error(kernel, errors.NkiValidationError, X, instruction=False)
    assert error.code == "cores-allocate-alike"


def test_groups_that_leave_a_rank_out_are_refused():
    def kernel(x):
        return summed(x, ncc.ReplicaGroup([[0, 1]]))

    error = same_error(kernel, errors.NkiValidationError, X, lnc=1, count=3)
    assert error.code == "replica-group-incomplete"


def test_a_kernel_that_raises_ends_the_others():
    ended = []

    def kernel(x):
        try:
            tile = nl.load(x)
            if nl.program_id(0) == 1:
                raise KeyError("core 1")
            nisa.core_barrier(data=x, cores=[0, 1])
            ended.append(tile)
        except Exception:
            if nl.program_id(0) == 0:  # waiting isn't left by what a kernel may catch
                ended.append("caught")
            raise
        return x

    before = threading.active_count()
    with pytest.raises(KeyError, match="core 1"):
        nki.debug(nki.jit(kernel)[2])(X)
    assert not ended and threading.active_count() == before


def test_a_launch_that_makes_no_end_is_given_up():
    def kernel(x):
        flag = nisa.register_alloc(1)
        while flag:
            nisa.register_move(flag, 1)
        return x

    for lnc in (1, 2):
        world = nki.World(lnc=lnc, host="debug", timeout=0.2)
        with world, pytest.raises(errors.DeadlockError, match=r"timeout of 0\.2 s") as caught:
            world.run(kernel, X)
        assert caught.value.instruction == "nisa.register_move"


def test_device_print_and_written_inputs(capsys):
    def kernel(x):
        tile = nl.load(x[0:1, 0:2])
        nl.device_print("first", tile)
        print("then")
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nl.store(x[0:1, 0:2], tile)

    given = X.copy()
    assert nki.debug(kernel)(given) is None
    np.testing.assert_array_equal(given[0, :2], X[0, :2] + np.float32(1))
    np.testing.assert_array_equal(given[1:], X[1:])
    out = capsys.readouterr().out
    assert out.index("[core 0] first") < out.index("then")


def test_one_array_that_ranks_write_differently_is_refused():
    def kernel(x):
        nisa.register_store(x, ncc.rank_id())

    same_error(kernel, errors.LaunchError, np.zeros((1, 1), np.int32), lnc=1, count=2)


def test_a_profile_is_that_of_what_ran():
    kernel = nki.jit(exchanged_quietly)
    runs = [nki.profile(kernel[2], host=host)(X) for host in ("inprocess", "debug")]
    assert runs[0].outputs.tobytes() == runs[1].outputs.tobytes()
    assert runs[0].profile.total_us == runs[1].profile.total_us


def exchanged_quietly(x):
    me = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mine, theirs = nl.load(x[me * 3 : me * 3 + 3]), nl.ndarray((3, 11), x.dtype, nl.sbuf)
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nl.store(out[me * 3 : me * 3 + 3], theirs)
    return out


def test_programs_from_files_run_on_the_host_too(tmp_path):
    from nki_dist.compiler.compiled import Compiled

    nki.jit(exchanged_quietly)[2].compile(X).save(tmp_path / "kernel.nkip")
    with nki.World(lnc=2, host="debug") as world:
        (out,) = world.run(Compiled.load(tmp_path / "kernel.nkip"), X)
    np.testing.assert_array_equal(out, np.vstack([X[3:], X[:3]]))
