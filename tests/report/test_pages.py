"""Reports without a browser: what the file holds, and what notebooks show."""

import html
import re
from dataclasses import replace

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.report import figures, memory
from nki_dist.report.columns import MERGED, columns
from nki_dist.report.source import listings
from nki_dist.timing.critical import critical_path
from tests.report.opened import data_of
from tests.timing.build import events


@nki.jit
def halves(x):
    """Each core scales its rows; they meet in between. "<b>&" is in the source."""
    me, rows = nl.program_id(0), x.shape[0] // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(3):
        tile = nl.load(x[me * rows : me * rows + rows], dtype=nl.float32)
        theirs = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf, name=f"theirs{n}")
        nisa.activation(dst=tile, op=nl.exp, data=tile)  # LINE exp
        nisa.sendrecv(src=tile, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=theirs, op=nl.add)
        nl.store(out[me * rows : me * rows + rows], tile)
    return out


X = np.linspace(0, 1, 130 * 70, dtype=np.float32).reshape(130, 70)


@pytest.fixture(scope="module")
def run():
    return nki.profile(halves[2], host="inprocess")(X)


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    run.profile.write_report(path)
    return path.read_text()


def test_the_page_has_source_and_figures(page, run):
    assert "# LINE exp" in page and "def halves(x):" in page
    assert "&lt;b&gt;&amp;" in page and '"<b>&"' not in page
    assert f"{run.profile.total_us:,.3f}" in page and "activation" in page
    for name in run.profile.assumed_parameters:
        assert name in page
    assert set(re.findall(r"<!--(\w+)-->", page)) == set()


def test_the_page_refers_to_nothing_outside(page):
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|@import|url\(""", page)


def test_equal_profiles_give_equal_bytes(run, page, tmp_path):
    again = nki.profile(halves[2], host="inprocess")(X).profile
    again.write_report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == page


def test_events_are_those_of_the_timeline(page, run):
    data = data_of(page)
    timeline = run.profile.timeline
    shown = []
    for core, name, engine, first, last in data["rows"]:
        part = slice(first, last)
        assert (np.diff(data["start"][part]) >= 0).all()
        ends = data["start"][part] + data["took"][part]
        assert (data["start"][part][1:] >= ends[:-1] - 1e-3).all(), name
        for k, start, took in zip(data["kind"][part], data["start"][part], data["took"][part]):
            if data["kinds"][k][0] != "ACT_TABLE_LOAD":
                shown.append((core, data["kinds"][k][0], start, round(float(took), 3)))
                assert data["kinds"][k][1] == engine
    expected = [
        (e.core, e.instruction.opcode, e.start, round(float(np.float32(e.end - e.start)), 3))
        for e in events(timeline)
    ]
    assert sorted(shown) == sorted(expected)
    assert sum(len(c.table_loads) for c in timeline.cores) == 2
    assert len(data["start"]) == len(expected) + 2


def test_what_instructions_read_alike_is_in_the_page_once(page):
    data = data_of(page)
    assert len(data["kinds"]) == len({tuple(kind) for kind in data["kinds"]}) < len(data["start"])
    assert len(data["lines"]) == len({line for line, _ in data["lines"]})


def test_causes_lead_to_what_was_waited_for(page):
    data = data_of(page)
    (exp, *_) = [n for n, k in enumerate(data["kind"]) if data["kinds"][k][0] == "activation"]
    cause = data["cause"][exp]
    assert data["kinds"][data["kind"][cause]][0] == "dma_copy"
    assert data["reasons"][data["reason"][exp]] == "data"
    assert data["start"][cause] < data["start"][exp]


def test_the_critical_path_is_marked(run):
    pieces = critical_path(run.profile.timeline)
    made = columns(run.profile.timeline, pieces)
    assert made.critical.sum() == len({(p.core, p.position) for p in pieces})


def test_short_events_are_merged_where_there_are_too_many(run):
    timeline = run.profile.timeline
    pieces = critical_path(timeline)[-1:]
    whole, few = columns(timeline, pieces), columns(timeline, pieces, most=14)
    assert len(few) < len(whole) and (few.kind == MERGED).any()
    assert few.merged.sum() == len(whole)
    assert few.critical.sum() == 1 and (few.merged[few.critical > 0] == 1).all()
    for row, was in zip(few.rows, whole.rows):
        part, all_of = slice(row.first, row.last), slice(was.first, was.last)
        assert few.merged[part].sum() == was.last - was.first
        ends = (few.start + few.took)[part]
        assert ends.max() == pytest.approx((whole.start + whole.took)[all_of].max())
    known = few.cause >= 0
    assert (few.start[few.cause[known]] <= few.start[known]).all()


def test_tensors_are_boxes_beside_each_other(run):
    timeline = run.profile.timeline
    sbuf, psum = memory.occupations(0, timeline.cores[0], timeline.arch)
    assert (sbuf.region, psum.region, psum.boxes, psum.peak) == ("sbuf", "psum", [], 0)
    titles = [b.storage.title for b in sbuf.boxes]
    assert sorted(titles) == ["theirs0", "theirs1", "theirs2", "tile", "tile", "tile"]
    for n, a in enumerate(sbuf.boxes):
        assert a.size >= 70 * 4 and a.end > a.start
        for b in sbuf.boxes[n + 1 :]:
            apart = a.end <= b.start or b.end <= a.start
            assert apart or a.low + a.size <= b.low or b.low + b.size <= a.low
    moments = [b.start for b in sbuf.boxes]
    alive = [sum(b.size for b in sbuf.boxes if b.start <= t < b.end) for t in moments]
    # 65 rows of a tile are 3 of 4 quadrants of the partitions.
    assert sbuf.peak == max(alive) * 3 / 4 and sbuf.steps[-1][1] == 0


BANKS = 8


def in_psum(rows, place):
    """40 products in turn, each read twice before its bank is another's."""

    @nki.jit
    def products(x):
        left, right = nl.load(x[:, 0:rows]), nl.load(x)
        out = nl.ndarray((40, rows, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        for n in range(40):
            psum = nl.ndarray((rows, 512), dtype=x.dtype, buffer=nl.psum, address=place(n))
            nisa.nc_matmul(dst=psum, stationary=left, moving=right)
            tile = nl.ndarray((rows, 512), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=psum)
            nisa.tensor_tensor(dst=tile, data1=psum, data2=tile, op=nl.add)
            nisa.dma_copy(dst=out[n], src=tile)
        return out

    x = np.ones((128, 512), np.float32)
    timeline = nki.profile(products, host="inprocess")(x).profile.timeline
    return memory.occupations(0, timeline.cores[0], timeline.arch)[1]


@pytest.mark.parametrize("rows", [128, 32])
@pytest.mark.parametrize("place", [lambda n: None, lambda n: (0, n % BANKS * 2048)])
def test_no_more_is_taken_than_there_is(rows, place):
    """Room is another's when the last instruction ends, before its result can be used."""
    psum = in_psum(rows, place)
    assert len(psum.boxes) == 40
    assert psum.capacity * (0.5 if rows == 128 else 0.1) < psum.peak <= psum.capacity


def test_bytes_that_tensors_share_count_once():
    """Two live tensors at one address, and narrow ones beside each other."""

    @nki.jit
    def shared(x):
        out = nl.ndarray((4, 32, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        places = ((0, 0), (0, 0), (64, 0), (96, 8192))
        tiles = [
            nl.ndarray((32, 512), dtype=x.dtype, buffer=nl.sbuf, address=place) for place in places
        ]
        for tile in tiles[2:]:
            nisa.dma_copy(dst=tile, src=x)
        for tile in tiles[:2]:
            nisa.dma_copy(dst=tile, src=x)
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        for tile in tiles[2:]:  # so that all are alive at once
            nisa.tensor_tensor(tile, tile, tiles[1], nl.add)
        for pair in enumerate(tiles[1:]):
            n, tile = pair
            nisa.dma_copy(dst=out[n], src=tile)
        nisa.dma_copy(dst=out[3], src=tiles[1])
        return out

    with nki.World(host="inprocess") as world:
        timeline = world.run(shared, np.ones((32, 512), np.float32), profile=True).profile.timeline
    sbuf = memory.occupations(0, timeline.cores[0], timeline.arch)[0]
    assert len(sbuf.boxes) == 4 and sbuf.peak == 3 * 2048 / 4 and sbuf.steps[-1][1] == 0


def test_boxes_keep_addresses_of_the_kernel():
    @nki.jit
    def placed(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(0, 4096))
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=out, src=tile)
        return out

    timeline = nki.profile(placed, host="inprocess")(X[:20]).profile.timeline
    (box,) = memory.occupations(0, timeline.cores[0], timeline.arch)[0].boxes
    assert (box.low, box.size) == (4096, 280)


def test_busy_shares_add_up_to_what_engines_did(run):
    timeline = run.profile.timeline
    made = columns(timeline, critical_path(timeline))
    shares = figures.busy(made, timeline)["share"]
    for engine in ("vector", "scalar"):
        busy = sum(e.busy_us for e in run.profile.engines if e.engine == engine)
        mean = np.mean(shares[engine]) * run.profile.total_us * 2
        assert mean == pytest.approx(busy, rel=0.01)
    # Transfers overlap, so DMA is compared with the union of their times, sampled.
    when = (np.arange(200_000) + 0.5) / 200_000 * timeline.total_ns
    busy = np.zeros(len(when))
    for number in range(2):
        spans = [e for e in events(timeline) if e.core == number and e.instruction.engine == "dma"]
        busy += np.any([(e.start <= when) & (when < e.end) for e in spans], axis=0) / 2
    assert np.mean(shares["dma"]) == pytest.approx(busy.mean(), rel=0.01)


def test_time_that_is_covered_twice_counts_once():
    spans = np.array([[5.0, 6.0], [0.0, 4.0], [1.0, 2.0], [3.0, 4.5], [8.0, 9.0]])
    covered = figures.covered(spans, np.array([0.0, 1.5, 4.0, 5.5, 7.0, 10.0]))
    assert covered.tolist() == [0.0, 1.5, 4.0, 5.0, 5.5, 6.5]


def test_the_roofline_is_that_of_the_cores_used(run):
    p = run.profile
    roof = figures.roofline(p.to_dict(), p.timeline)
    assert roof["gbps"] == p.timeline.arch.hbm_stack_gbps and roof["stacks"] == 1
    assert roof["roofs"]["bfloat16"] == 2 * p.timeline.arch.peak_tflops["bfloat16"]
    assert not roof["tensor"]  # no matmul: of all engines
    assert roof["intensity"] == pytest.approx(p.all_flops / (p.hbm_read + p.hbm_written))
    assert roof["tflops"] == pytest.approx(p.all_flops / p.total_us / 1e6)


def test_source_that_cannot_be_found_leaves_the_times(run):
    lines = [
        {**line, "location": "/nowhere/kernel.py:7"} for line in run.profile.to_dict()["lines"][:1]
    ]
    (listing,) = listings(lines)
    assert listing.parts == [] and listing.total_us == {7: lines[0]["total_us"]}


def test_a_world_shows_its_ranks_and_collectives(tmp_path):
    @nki.jit
    def summed(x, group):
        local = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=local, src=x)
        ncc.all_reduce(srcs=[local], dsts=[out], replica_group=group, op=nl.add)
        return out

    with nki.World(ranks=3, host="inprocess") as world:
        run = world.run(summed, nki.per_rank([X] * 3), ncc.ReplicaGroup([[0, 1, 2]]), profile=True)
    run.profile.write_report(tmp_path / "world.html")
    page = (tmp_path / "world.html").read_text()
    data = data_of(page)
    assert [r["number"] for r in data["ranks"]["bars"]] == [0, 1, 2]
    assert data["ranks"]["bars"][1]["end_us"] == pytest.approx(run.profile.total_us)
    (found,) = figures.collectives(run.profile.timeline)
    assert found["opcode"] == "all_reduce" and found["count"] == 3
    assert "<h3>Collectives</h3>" in page and "all_reduce</td>" in page


def test_waits_for_another_core_are_told_apart(run):
    """Core 1 has the same to do as core 0, but the one that comes last never waits."""
    timeline = run.profile.timeline
    shown = figures.ranks(timeline)
    assert shown["what"] == "core" and [b["number"] for b in shown["bars"]] == [0, 1]
    for core, bar in zip(timeline.cores, shown["bars"]):
        held = sum(core.end[at] - core.busy_end[at] for at in core.held)
        assert bar["waits_us"] == pytest.approx(held / 1000)
        assert 0 <= bar["waits_us"] < bar["end_us"] <= run.profile.total_us


def test_notebooks_show_little(run):
    shown = run._repr_html_()
    assert "130x70 float32" in shown and "What bounded it" in shown and len(shown) < 50_000
    assert "<script" not in shown and ":root" not in shown
    assert len(repr(run)) < 300 and "130x70 float32" in repr(run) and "halves" in repr(run)
    assert len(repr(run.profile)) < 200
    many = replace(run, outputs=[X.copy() for _ in range(100)])
    assert "and 92 more" in repr(many) and len(repr(many)) < 400
    name = replace(run.profile, kernel="<i>odd")._repr_html_()
    assert "<i>odd" not in name and html.escape("<i>odd") in name
