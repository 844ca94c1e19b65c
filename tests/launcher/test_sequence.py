"""Sessions: launches in a row on one line of simulated time, beside sums of their own profiles."""

import json
import math

import numpy as np
import pytest

import nki_dist as nki
from nki_dist.errors import LaunchError
from nki_dist.launcher.sequence import Sequence
from nki_dist.timing import sequence_trace
from tests.launcher.in_a_row import Launched, launched, projected, raised, rows
from tests.timing.traces import read_trace


@pytest.fixture(scope="module")
def world():
    with nki.World(ranks=2, lnc=1, host="inprocess", release="0.6") as made:
        yield made


@pytest.fixture(scope="module")
def kernels(world):
    return launched(world)


def session(world, launches, **options):
    with Sequence(world, **options) as made:
        for launch in launches:
            launch.into(made)
    return made


def test_launches_follow_each_other_without_a_gap(world, kernels):
    product, total, other = kernels
    order = [product, total, product, other, total]
    made = session(world, order)
    assert [launch.name for launch in made.launches] == [one.name for one in order]
    assert [launch.device_us for launch in made.launches] == [o.profile.device_us for o in order]
    end = 0.0
    for launch in made.launches:
        assert launch.start_us == end
        end = launch.start_us + launch.device_us
    assert made.device_us == end
    assert end == pytest.approx(math.fsum(o.profile.device_us for o in order), rel=1e-12)
    assert made.launches[0].profile.to_dict() == product.profile.to_dict()
    assert made.launches[2].profile is made.launches[0].profile


def test_the_gap_is_what_is_published_or_what_was_asked_for(world, kernels):
    order = [*kernels, kernels[0]]
    low, high = (math.fsum(getattr(o.profile, end) for o in order) for end in ("low_us", "high_us"))
    published, given = session(world, order), session(world, order, gap_us=7.5)
    assert published.low_us == pytest.approx(low)
    assert published.high_us == pytest.approx(high + 3 * 20)
    assert published.low_us < published.device_us < published.high_us
    assert given.device_us == pytest.approx(published.device_us + 3 * 7.5)
    assert given.low_us == pytest.approx(low + 3 * 7.5)
    assert given.high_us == pytest.approx(high + 3 * 7.5)
    first, second = given.launches[:2]
    assert second.start_us - first.start_us - first.device_us == pytest.approx(7.5)


def test_the_gap_is_a_figure_of_the_platform(kernels):
    with nki.World(ranks=2, lnc=1, host="inprocess") as other:
        other.arch = other.arch.with_values(launch_gap_ns=3000, launch_gap_most_ns=1000)
        made = session(other, [kernels[0]] * 2)
        took = kernels[0].profile.device_us
        assert made.device_us == pytest.approx(2 * took + 3)
        assert made.high_us == pytest.approx(2 * kernels[0].profile.high_us + 3)


@pytest.mark.parametrize("gap", [-1, float("nan"), float("inf"), "3", True])
def test_other_gaps_are_refused(world, gap):
    with pytest.raises(LaunchError, match="; must be microseconds, 0 or more") as caught:
        Sequence(world, gap_us=gap)
    assert caught.value.code == "world-option"


def test_schedules_are_those_of_profiles(world, kernels):
    run = world.run(
        projected, rows(3, 128, 64), rows(4, 128, 512), profile=True, schedule="program"
    )
    made = session(world, [kernels[2]], schedule="program")
    assert made.launches[0].profile.to_dict() == run.profile.to_dict()
    with pytest.raises(LaunchError, match="schedule='other'"):
        Sequence(world, schedule="other")


def test_rounds_of_loops_tell_launches_of_a_kernel_apart(world):
    x, few, many = rows(5, 50, 70), np.array([[2]], np.int32), np.array([[9]], np.int32)
    counts = [nki.per_rank([few, many]), nki.per_rank([many, few]), nki.per_rank([few, many])]
    order = [Launched(world, "raised", raised, x, count) for count in counts]
    assert len({id(launch.compiled) for launch in order}) == 1
    made = Sequence(world)
    for launch in order:  # reports come in any order
        made.add(launch.name, launch.compiled, launch.reports[::-1])
    found = [launch.profile for launch in made.launches]
    assert [p.to_dict() for p in found] == [launch.profile.to_dict() for launch in order]
    assert found[0] is found[2] is not found[1]


def test_ranks_that_ran_other_programs_are_told_apart(world, kernels):
    product, _, other = kernels
    made = Sequence(world)
    product.into(made)
    product.into(made, other.compiled.programs * 2)
    took = [launch.device_us for launch in made.launches]
    assert took == [product.profile.device_us, other.profile.device_us]


def test_many_launches_are_numbers(world, kernels):
    product, total, _ = kernels
    made = Sequence(world)
    for _ in range(50_000):
        product.into(made)
        total.into(made)
    assert len(made.launches) == 100_000
    assert len({id(launch.profile) for launch in made.launches}) == 2
    each = product.profile.device_us + total.profile.device_us
    assert made.device_us == pytest.approx(50_000 * each, rel=1e-9)
    total.into(made)  # what was asked before doesn't stay
    assert made.launches[-1].name == "summed" and len(made.launches) == 100_001


def test_kernels_share_the_time(world, kernels):
    product, total, other = kernels
    made = session(world, [product, total, other, other, total], gap_us=4.0)
    by_name = {k.name: k for k in made.by_kernel()}
    assert [k.name for k in made.by_kernel()] == ["projected", "summed"]
    mine, every = by_name["projected"], made.total()
    parts = [(1, product.profile), (2, other.profile)]
    took = sum(n * p.device_us for n, p in parts)
    flops = 2 * 2 * (96 * 40 * 300 + 2 * 128 * 64 * 512)  # two ranks
    assert (mine.launches, mine.flops) == (3, flops)
    assert mine.device_us == pytest.approx(took)
    assert mine.share == pytest.approx(took / made.device_us)
    assert mine.mfu == pytest.approx(sum(n * p.mfu * p.total_us for n, p in parts) / took)
    assert mine.mbu == pytest.approx(sum(n * p.mbu * p.total_us for n, p in parts) / took)
    assert mine.collectives == 0
    cc = total.profile.critical["cc"]
    assert by_name["summed"].collectives == pytest.approx(cc / total.profile.device_us) and cc > 0
    assert (every.launches, every.share, every.device_us) == (5, 1, made.device_us)
    assert every.collectives == pytest.approx(2 * cc / made.device_us)
    assert every.hbm_bytes == sum(
        n * (p.hbm_read + p.hbm_written) for n, p in [*parts, (2, total.profile)]
    )
    assert sum(k.share for k in by_name.values()) == pytest.approx(1 - 16 / made.device_us)
    table = str(made).splitlines()
    assert f"{made.device_us:,.3f} us simulated" in table[0] and "5 launches" in repr(made)
    assert table[2].split()[0] == "3" and table[2].endswith(" projected")


def test_advice_counts_how_often_a_launch_is_made(world, kernels):
    _, total, other = kernels
    made = session(world, [other] * 6 + [total])
    found = {f.rule: f for f in made.advice()}
    (single,) = [f for f in other.profile.advice() if f.rule == "float32 products"]
    of_six = found["float32 products"]
    assert of_six.saves_us == pytest.approx(6 * single.saves_us)
    assert of_six.share == pytest.approx(of_six.saves_us / made.device_us)
    assert of_six.text.startswith("projected, 6 of the launches: ") and single.text in of_six.text
    starts = found["many launches"]
    assert starts.saves_us == pytest.approx(6 * 12) and "7 launches" in starts.text
    assert starts.saves_us == pytest.approx(6 * other.profile.overhead_us)
    assert all(f.share >= 0.01 for f in found.values())
    for others in (30, 2000):  # a kernel of which all, or a part, is 1 % of the line
        rare = session(world, [other] + [total] * others)
        assert [f.rule for f in rare.advice()] == ["many launches"]
    assert session(world, [total]).advice() == total.profile.advice() == []


def test_leaving_waits_for_launches_but_not_after_an_error(world):
    class Waiting:
        topology, waited = world.topology, 0

        def wait(self):
            self.waited += 1

    waiting = Waiting()
    with Sequence(waiting) as made:
        assert made.open
    assert waiting.waited == 1 and not made.open
    with pytest.raises(KeyError), Sequence(waiting) as made:
        raise KeyError
    assert waiting.waited == 1 and not made.open


def test_a_session_may_be_empty(world, tmp_path):
    made = session(world, [])
    assert (made.device_us, made.low_us, made.high_us) == (0, 0, 0)
    assert made.launches == made.by_kernel() == made.advice() == []
    made.write_report(tmp_path / "s.html")
    made.write_trace(tmp_path / "s.json")
    assert "0 launches" in (tmp_path / "s.html").read_text()
    assert read_trace(tmp_path / "s.json").events["X"] == []


def test_a_trace_has_all_launches_and_the_engines_of_the_first_of_each(world, kernels, tmp_path):
    product, total, _ = kernels
    made = session(world, [product, total, product, total, total], gap_us=2.0)
    made.write_trace(tmp_path / "s.json")
    trace = read_trace(tmp_path / "s.json")
    slices = [e for e in trace.events["X"] if e["pid"] == 0]
    assert [(e["name"], e["ts"], e["dur"]) for e in slices] == [tuple(x[:3]) for x in made.launches]
    names = {e["pid"]: e["args"]["name"] for e in trace.events["M"] if "tid" not in e}
    ranks = [f"{kernel}: rank {n} core 0" for kernel in ("projected", "summed") for n in (0, 1)]
    assert list(names.values()) == ["launches", *ranks]
    for launch, pids, one in zip(made.launches, ((1, 2), (3, 4)), (product, total)):
        inside = [e for e in trace.events["X"] if e["pid"] in pids]
        assert len(inside) == one.profile.instructions
        begin = launch.start_us + 7  # the start of a kernel on the device
        assert min(e["ts"] for e in inside) >= begin
        assert max(e["args"]["ns"][-1] for e in inside) / 1000 == pytest.approx(
            begin + one.profile.total_us
        )
    assert len(trace.events["s"]) == len(total.profile.timeline.deliveries) > 0
    assert "left_out" not in json.loads((tmp_path / "s.json").read_text())["otherData"]


def test_what_a_trace_leaves_out_is_said(world, kernels, tmp_path, monkeypatch):
    product, total, _ = kernels
    monkeypatch.setattr(sequence_trace, "MOST_LAUNCHES", 3)
    monkeypatch.setattr(sequence_trace, "MOST_EVENTS", product.profile.instructions // 2 + 2)
    made = session(world, [product, total, product, total])
    made.write_trace(tmp_path / "s.json")
    trace = read_trace(tmp_path / "s.json")
    assert {e["pid"] for e in trace.events["X"]} == {0, 1, 2}
    assert len([e for e in trace.events["X"] if e["pid"] == 0]) == 3
    said = json.loads((tmp_path / "s.json").read_text())["otherData"]["left_out"]
    assert said == [
        "1 cores of projected",
        "1 cores of summed",
        "launches after the first 3 of 4",
    ]
