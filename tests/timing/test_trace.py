"""Events of a trace against the timeline they show."""

import json

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.timing import profile_launch
from tests.timing.build import compiled
from tests.timing.test_messages import exchange
from tests.timing.test_replay import load_activate_store
from tests.timing.traces import read_trace


@pytest.fixture
def traced(tmp_path):
    """(profile, events by phase, everything else in the file) of a kernel on some cores."""

    def make(kernel, shapes=((2, 2),), cores=1, **options):
        programs, machine = compiled(kernel, list(shapes), cores=cores, **options)
        profile = profile_launch(programs, [[]] * cores, machine, "k")
        profile.write_trace(tmp_path / "trace.json")
        whole = json.loads((tmp_path / "trace.json").read_text())
        events = whole.pop("traceEvents")
        assert read_trace(tmp_path / "trace.json").events == {
            phase: [e for e in events if e["ph"] == phase] for phase in "MXsf"
        }
        return profile, events, whole

    return make


def test_the_file_says_what_it_is(traced):
    _, _, head = traced(exchange, cores=2)
    assert head == {
        "displayTimeUnit": "ns",
        "otherData": {"format": "nki_dist timeline", "version": 1, "platform": "trn2"},
    }


def test_names_come_first(traced):
    profile, events, _ = traced(exchange, cores=2)
    names = []
    for pid, core in enumerate(profile.timeline.cores):
        process = {"ph": "M", "name": "process_name", "pid": pid}
        names.append({**process, "args": {"name": f"rank 0 core {pid}"}})
        names += [
            {"ph": "M", "name": "thread_name", "pid": pid, "args": {"name": queue}, "tid": tid}
            for tid, queue in enumerate(core.queues)
        ]
    assert events[: len(names)] == names
    assert all(e["ph"] != "M" for e in events[len(names) :])


def test_instructions_are_in_program_order_with_their_times(traced):
    profile, events, _ = traced(exchange, cores=2)
    shown = iter([e for e in events if e["ph"] == "X"])
    for pid, core in enumerate(profile.timeline.cores):
        for at, i in enumerate(core.graph.executed):
            e = next(shown)
            assert (e["name"], e["pid"], e["tid"]) == (i.opcode, pid, core.queue[at])
            assert e["ts"] == pytest.approx(core.start[at] / 1000)
            assert e["dur"] == pytest.approx((core.end[at] - core.start[at]) / 1000)
            args = e["args"]
            assert args["ns"] == [core.start[at], core.end[at], core.done[at]]
            assert (args["position"], args["ordinal"]) == (at, i.ordinal)
            assert args["waited_for"] == core.reason[at]
            assert args["assumed_cost"] == (i.opcode in ("sendrecv", "core_barrier"))
    assert next(shown, None) is None


def test_tensors_are_named_with_shape_and_type(traced):
    def kernel(x):
        tile = nl.ndarray((8, 3, 5), nl.bfloat16, buffer=nl.sbuf, name="mine")
        nisa.memset(dst=tile, value=0)
        nisa.tensor_copy(dst=nl.ndarray((8, 15), nl.float32, buffer=nl.sbuf), src=tile)

    _, events, _ = traced(kernel)
    copy = next(e for e in events if e["name"] == "tensor_copy")
    assert copy["args"]["tensors"]["src"] == "mine 8x3x5 bfloat16"
    assert copy["args"]["tensors"]["dst"].endswith(" 8x15 float32")


def test_tables_are_loaded_before_the_instruction_that_needs_them(traced):
    profile, events, _ = traced(load_activate_store, [(4, 64)])
    (core,) = profile.timeline.cores
    work = [e for e in events if e["ph"] == "X"]
    (n,) = [n for n, e in enumerate(work) if e["name"] == "ACT_TABLE_LOAD"]
    load, needs = work[n], work[n + 1]
    assert needs["name"] == "activation"
    assert (load["pid"], load["tid"]) == (needs["pid"], needs["tid"])
    start, end = load["args"]["ns"]
    assert load["args"]["function"] == "exp"
    assert end == core.start[1] == pytest.approx(start + 1290)
    assert (load["ts"], load["dur"]) == (pytest.approx(start / 1000), pytest.approx(1.29))


def test_arrows_join_the_boxes_of_both_instructions(traced):
    profile, events, _ = traced(exchange, cores=2)
    arrows = [e for e in events if e["ph"] in "sf"]
    assert [e["ph"] for e in arrows] == ["s", "f"] * len(profile.timeline.deliveries)
    for n, d in enumerate(profile.timeline.deliveries):
        tail, head = arrows[2 * n : 2 * n + 2]
        assert tail["id"] == head["id"] == n
        assert head.pop("bp") == "e" and "bp" not in tail
        for e, (pid, at), time in ((tail, d.source, d.sent), (head, d.target, d.arrived)):
            core = profile.timeline.cores[pid]
            assert (e["pid"], e["tid"]) == (pid, core.queue[at])
            assert (e["name"], e["cat"]) == (d.channel, "message")
            inside = min(max(time, core.start[at]), core.end[at])
            assert e["ts"] == pytest.approx(inside / 1000)
