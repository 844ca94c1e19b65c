"""Profiles and traces: sums that must agree, text, files, and the reader of traces."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch, dtypes
from nki_dist.timing import make_profile, profile_launch
from nki_dist.timing.critical import critical_path
from nki_dist.timing.timeline import Timeline
from tests.timing.build import compiled, replay
from tests.timing.test_messages import exchange
from tests.timing.test_replay import load_activate_store


def matmul(a, b):
    """a.T @ b for a (256, 128) and b (256, 384)."""
    out = nl.ndarray((128, 384), nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 384), nl.float32, buffer=nl.psum)
    for k in range(0, 256, 128):
        left = nl.ndarray((128, 128), a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((128, 384), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[k : k + 128, :])
        nisa.dma_copy(dst=right, src=b[k : k + 128, :])
        nisa.nc_matmul(dst=total, stationary=left, moving=right)
    result = nl.ndarray((128, 384), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


def matmul_profile(dtype=dtypes.bfloat16):
    programs, machine = compiled(matmul, [(256, 128), (256, 384)], dtype=dtype)
    return profile_launch(programs, [[]], machine, "matmul")


def exchange_profile():
    programs, machine = compiled(exchange, [(2, 2)], cores=2)
    return profile_launch(programs, [[], []], machine, "exchange")


def test_counts_of_a_matmul():
    p = matmul_profile()
    assert p.instructions == 8
    assert p.hbm_read == 256 * (128 + 384) * 2 and p.hbm_written == 128 * 384 * 4
    assert p.flops == 2 * 256 * 128 * 384
    assert p.tflops == pytest.approx(p.flops / p.total_us / 1e6)
    assert p.mfu == pytest.approx(p.tflops / 78.6432)
    assert p.mbu == pytest.approx((p.hbm_read + p.hbm_written) / p.total_us / 716.8e3)
    use = {e.engine: e for e in p.engines}
    assert use["tensor"].busy_us == pytest.approx(2 * 2 * (384 + 15) / 2400)  # at half speed
    assert use["vector"].instructions == 1 and use["dma"].instructions == 5
    assert use["scalar"].busy_us == 0
    assert all(0 <= e.utilisation <= 1 for e in p.engines)


def test_float32_is_measured_against_its_own_peak():
    p = matmul_profile(dtypes.float32)
    assert p.mfu == pytest.approx(p.tflops / (78.6432 / 4))


@pytest.mark.parametrize("make", [matmul_profile, exchange_profile])
def test_the_critical_path_is_the_total(make):
    p = make()
    pieces = critical_path(p.timeline)
    assert pieces[0].start == 0 and pieces[-1].end == p.timeline.total_ns
    assert all(a.end == b.start for a, b in pairwise(pieces))
    assert sum(p.critical.values()) == pytest.approx(p.total_us)
    assert sum(x.critical_us for x in p.lines) == pytest.approx(p.total_us)


def test_the_critical_path_of_a_late_core():
    p = exchange_profile()
    assert p.critical["vector"] == pytest.approx(8192 / 960 + 64 / 960, rel=0.1)
    assert p.critical["messages"] > 1.3


def test_what_a_load_an_activation_and_a_store_are_bounded_by():
    """By hand, see test_replay: 4 rows of 8 KiB each way, 4096 elements at 1.2 GHz."""
    programs, machine = compiled(load_activate_store, [(4, 4096)], dtype=dtypes.bfloat16)
    p = profile_launch(programs, [[]], machine, "k")
    assert p.critical == pytest.approx(
        {
            "dma data": 2 * 4 * 8.192 / machine.dma_engine_gbps,
            "scalar": 0.068 / 1.2 + 4.096 / 1.2,
            "dma latency": 2 * 1.0,
            "activation tables": 1.29,
            "semaphores": 0.3
            + machine.semaphore_ns / 1000,  # from the load to Scalar, from Scalar to the store
            "result latency": 0.29 - 0.068 / 1.2,
        }
    )
    spent = list(p.critical.values())
    assert spent == sorted(spent, reverse=True)


def test_every_engine_of_every_core_is_listed():
    p = exchange_profile()
    names = ["tensor", "vector", "scalar", "gpsimd", "sync", "dma"]
    assert [(e.core, e.engine) for e in p.engines] == [(n, e) for n in range(2) for e in names]
    count = [sum(e.instructions for e in p.engines if e.core == n) for n in range(2)]
    assert count == [len(c.graph) for c in p.timeline.cores]
    core = p.timeline.cores[1]
    use = {e.engine: e for e in p.engines if e.core == 1}
    # The barrier is busy for its own 64 cycles, not while it waits.
    assert use["gpsimd"].busy_us == pytest.approx(0.064 / 1.2)
    vector = [at for at, i in enumerate(core.graph.executed) if i.engine == "vector"]
    busy = sum(core.end[at] - core.start[at] for at in vector)
    assert use["vector"].busy_us == pytest.approx(busy / 1000)
    assert use["vector"].utilisation == pytest.approx(busy / 1000 / p.total_us)
    assert use["dma"].busy_us == pytest.approx(sum(core.dma_busy) / 16 / 1000)


def test_loading_a_table_keeps_scalar_busy():
    programs, machine = compiled(load_activate_store, [(4, 4096)], dtype=dtypes.bfloat16)
    p = profile_launch(programs, [[]], machine, "k")
    (scalar,) = [e for e in p.engines if e.engine == "scalar"]
    assert scalar.busy_us == pytest.approx(1.29 + (0.068 + 4.096) / 1.2)


def test_lines_sum_over_cores_and_keep_the_longest():
    p = exchange_profile()
    by_opcode = {x.opcode: x for x in p.lines if x.opcode in ("sendrecv", "core_barrier")}
    for opcode, line in by_opcode.items():
        took = [
            c.end[at] - c.start[at]
            for c in p.timeline.cores
            for at, i in enumerate(c.graph.executed)
            if i.opcode == opcode
        ]
        assert line.count == len(took) == 2
        assert line.total_us == pytest.approx(sum(took) / 1000)
        assert line.longest_us == pytest.approx(max(took) / 1000)
    keys = [(-x.critical_us, -x.total_us, x.location, x.opcode) for x in p.lines]
    assert keys == sorted(keys)


def test_lines_off_the_critical_path_follow_by_their_time():
    def kernel(x):
        wide = nl.ndarray((128, 1200), nl.float32, buffer=nl.sbuf)
        nisa.memset(wide, 0, engine=nisa.engine.gpsimd)  # it takes longest
        nisa.memset(nl.ndarray((128, 100), nl.float32, buffer=nl.sbuf), 0)
        nisa.memset(nl.ndarray((128, 300), nl.float32, buffer=nl.sbuf), 0)
        nisa.memset(nl.ndarray((128, 200), nl.float32, buffer=nl.sbuf), 0)

    programs, machine = compiled(kernel, [(2, 2)])
    lines = profile_launch(programs, [[]], machine, "k").lines
    assert [round(x.total_us * 960) for x in lines if x.engine == "vector"] == [368, 268, 168]
    assert [x.critical_us > 0 for x in lines] == [True, False, False, False]


def test_lines_point_into_the_kernel():
    p = matmul_profile()
    by_opcode = {x.opcode: x for x in p.lines if x.opcode != "dma_copy"}
    assert by_opcode["nc_matmul"].count == 2
    assert by_opcode["nc_matmul"].location.startswith(__file__)
    line = int(by_opcode["nc_matmul"].location.rpartition(":")[2])
    assert "nc_matmul" in Path(__file__).read_text("utf-8").splitlines()[line - 1]
    assert sum(x.count for x in p.lines) == p.instructions


def test_guesses_are_named():
    p = exchange_profile()
    assert p.assumed_costs == {"core_barrier": 2, "sendrecv": 2}
    assert "core_barrier_ns" in p.assumed_parameters
    assert "sendrecv" in str(p) and "core_barrier_ns" in str(p)
    plain = matmul_profile()
    assert plain.assumed_costs == {}
    used = {"dma_element_ns", "dma_engine_gbps", "matmul_init_cycles", "semaphore_ns"}
    assumed = used & arch.get("trn2").assumptions().keys()
    assert "matmul_init_cycles" in assumed and set(plain.assumed_parameters) == assumed


def test_guesses_about_an_engine_are_named_if_it_is_used():
    def kernel(x):
        tile = nl.ndarray((128, 100), nl.float32, buffer=nl.sbuf)
        nisa.memset(tile, 0)
        if uses_scalar:
            nisa.activation(tile, nl.exp, tile)

    scalar = {"activate_latency_ns", "act_table_load_ns"}
    for uses_scalar in (False, True):
        programs, machine = compiled(kernel, [(2, 2)], platform="trn3")
        assumed = profile_launch(programs, [[]], machine, "k").assumed_parameters
        assert scalar & set(assumed) == (scalar if uses_scalar else set())


def test_text_names_engines_and_lines():
    text = str(matmul_profile())
    for part in ("matmul on trn2, 1 core", "tensor", "what bounded it", "nc_matmul (tensor) at"):
        assert part in text
    assert "scalar" not in text.split("no published")[0]
    assert max(map(len, text.split("no published")[0].splitlines())) < 200


def test_a_profile_is_saved_as_plain_data(tmp_path):
    p = exchange_profile()
    p.save(tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text()) == p.to_dict()
    assert "timeline" not in p.to_dict() and "timeline" not in repr(p)


def test_a_launch_of_nothing():
    programs, machine = compiled(lambda x: None, [(2, 2)])
    p = profile_launch(programs, [[]], machine, "nothing")
    assert (p.total_us, p.instructions, p.critical, p.tflops) == (0, 0, {}, 0)
    assert {e.utilisation for e in p.engines} == {0}
    assert Timeline(machine, [], [], 0).total_ns == 0
    assert "0.000 us" in str(p)


def test_profile_of_a_kernel_that_ran():
    a, b = (np.ones((256, n), np.float32) for n in (128, 384))
    run = nki.profile(nki.jit(matmul), host="inprocess")(a, b)
    assert np.array_equal(run.outputs, np.full((128, 384), 256, np.float32))
    programs, machine = compiled(matmul, [(256, 128), (256, 384)])
    assert run.profile == make_profile(
        replay(programs, [[]], machine, schedule="compiled"), run.profile.kernel
    )
