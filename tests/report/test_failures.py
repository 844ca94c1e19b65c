"""Errors as pages: who waits for whom, what both cores touch, what is outside."""

import pickle
import re
from html import unescape

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors

X = np.random.default_rng(0).standard_normal((60, 24)).astype(np.float32)


def page_of(error, tmp_path):
    path = tmp_path / "error.html"
    error.write_report(path)
    text = path.read_text()
    assert not re.search(r"<script|(?:src|href)=['\"](?!data:)", text), "it fetches nothing"
    assert str(error) in unescape(text)
    return text


def rectangles(page):
    """Kinds of the rectangles of a picture, with x, y, width and height."""
    found = re.findall(
        r"<rect class=(\w+) (?:x=([\d.-]+) y=([\d.-]+) )?width=([\d.]+) height=([\d.]+) />", page
    )
    return [(kind, *(float(n or 0) for n in numbers)) for kind, *numbers in found]


def test_a_deadlock_says_who_waits_for_whom(tmp_path):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            nisa.core_barrier(out, (0, 1))
        nl.store(out, nl.load(x))
        return out

    with pytest.raises(errors.DeadlockError) as caught:
        nki.simulate(kernel[2])(X)
    error = caught.value
    nodes = error.picture["nodes"]
    assert [(n["name"], n["fault"]) for n in nodes] == [("core 1", True), ("core 0", False)]
    assert "has finished" in nodes[0]["what"] and "waits in nisa.core_barrier" in nodes[1]["what"]
    assert error.picture["edges"] == [(1, 0)]
    page = page_of(error, tmp_path)
    assert page.count("class=arc") == 1 and re.search("class='fault target'><b>core 1</b>", page)
    assert "nisa.core_barrier(out, (0, 1))" in page  # the kernel's line
    again = pickle.loads(pickle.dumps(error))
    assert again.picture == error.picture


def test_a_mismatch_says_what_the_sides_say(tmp_path):
    @nki.jit
    def kernel(x, times, group):
        local = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(local, nl.load(x))
        count, n = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf), nisa.register_alloc()
        nisa.dma_copy(dst=count, src=times)
        nisa.register_load(n, count)
        args = {"srcs": [local], "dsts": [out], "replica_group": group}
        nl.fori_loop(0, n, lambda _: ncc.all_reduce(**args, op=nl.add))
        ncc.all_reduce(**args, op=nl.maximum)
        return out

    times = nki.per_rank([np.array([[n]], np.int32) for n in (1, 1, 0, 1)])
    with (
        nki.World(ranks=4, host="inprocess") as world,
        pytest.raises(errors.CollectiveMismatchError) as caught,
    ):
        world.run(kernel, X, times, group=ncc.ReplicaGroup([[0, 1, 2, 3]]))
    page = page_of(caught.value, tmp_path)
    differing = re.findall(r"<tr class=apart><th>(\w+)</th><td>(\w+)</td><td>(\w+)</td>", page)
    assert differing == [("reduce", "add", "maximum")]
    assert page.count("class=arc") == 2 and "ranks 0, 1, 3 core 0" in page


def test_a_race_shows_what_both_touch(tmp_path):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile, me = nl.load(x), nl.program_id(0)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0 + me)
        nl.store(out[me * 20 : me * 20 + 40, 4:], tile[me * 20 : me * 20 + 40, 4:])
        return out

    with pytest.raises(errors.RaceError) as caught:
        nki.simulate(kernel[2])(X)
    picture = caught.value.picture
    grid = np.array([[int(n) for n in row] for row in picture["grid"]])
    want = np.zeros((60, 24), int)
    want[:20, 4:], want[20:40, 4:], want[40:, 4:] = 1, 4, 2
    np.testing.assert_array_equal(grid, want)
    assert picture["cell"] == [1, 1]
    kinds = [kind for kind, *_ in rectangles(page_of(caught.value, tmp_path))]
    assert kinds.count("c1") == kinds.count("c4") == kinds.count("c2") == 20


def test_a_race_in_a_large_tensor_with_loads(tmp_path):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 1000), dtype=x.dtype, buffer=nl.shared_hbm)
        mine = nl.ndarray((128, 1000), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        if nl.program_id(0) == 0:
            nl.store(mine, tile)
        else:
            nisa.dma_copy(dst=tile, src=mine[:, 0:1000])
            nl.store(out, tile)
        return out

    x = np.random.default_rng(1).standard_normal((128, 1000)).astype(np.float32)
    with pytest.raises(errors.RaceError) as caught:
        nki.simulate(kernel[2])(x)
    picture = caught.value.picture
    assert picture["cell"] == [2, 11] and len(picture["grid"]) == 64
    assert {side["what"].rpartition(", a ")[2] for side in picture["sides"]} == {"load", "store"}
    page_of(caught.value, tmp_path)


def outside(kernel, *args):
    with pytest.raises(errors.OutOfBoundsError) as caught:
        nki.simulate(nki.jit(kernel))(*args)
    return caught.value


def test_rows_that_are_outside_are_drawn_beyond_the_tensor(tmp_path):
    def kernel(x):
        return nl.load(x[nl.ds(30, 50)])

    error = outside(kernel, X)
    assert error.picture["asked"] == [[30, 80]] and error.picture["shape"] == [60, 24]
    page = page_of(error, tmp_path)
    assert "20 rows outside" in page
    (whole,), (inside,), (out,) = (
        [r for r in rectangles(page) if r[0] == kind] for kind in ("whole", "inside", "out")
    )
    scale = whole[4] / 60
    assert inside[2] - whole[2] == pytest.approx(30 * scale, abs=0.2)
    assert inside[4] == pytest.approx(30 * scale, abs=0.2)
    assert out[2] == pytest.approx(whole[2] + whole[4], abs=0.2)
    assert out[4] == pytest.approx(20 * scale, abs=0.2)


@pytest.mark.parametrize(
    ("asked", "picture", "said"),
    [
        (lambda x: x[:, nl.ds(5, 94)], ([[5, 99]], 1), "75 columns outside"),
        (lambda x: x[70], ([[70, 71]], 0), "1 row outside"),
        (lambda x: x.select(1, -3), ([[-3, -2]], 1), "1 column outside"),
        (lambda x: x.slice(0, 50, 90), ([[50, 90]], 0), "30 rows outside"),
        (lambda x: x.ap([[24, 60], [1, 30]]), ([[0, 5784]], 0), "24 elements outside"),
    ],
)
def test_every_way_to_leave_a_tensor(tmp_path, asked, picture, said):
    error = outside(lambda x: nl.load(asked(x)), X)
    assert (error.picture["asked"], error.picture["dim"]) == picture
    assert said in page_of(error, tmp_path)


def test_offsets_that_are_outside(tmp_path):
    def kernel(x, rows):
        out = nl.ndarray((8, 24), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x.ap([[24, 8], [1, 24]], vector_offset=nl.load(rows)))
        return out

    rows = np.array([[0], [5], [70], [3], [99], [1], [2], [-4]], np.int32)
    error = outside(kernel, X, rows)
    assert error.picture["asked"][:3] == [[70, 71], [99, 100], [-4, -3]]
    assert len(error.picture["asked"]) == 8
    assert "3 rows outside" in page_of(error, tmp_path)

    def moved(x, start):
        out = nl.ndarray((8, 24), dtype=x.dtype, buffer=nl.shared_hbm)
        n = nl.load(start)
        nisa.dma_copy(dst=out, src=x.ap([[24, 8], [1, 24]], scalar_offset=n, indirect_dim=0))
        return out

    error = outside(moved, X, np.array([[55]], np.int32))
    assert error.picture["asked"] == [[55, 63]] and error.picture["dim"] == 0
    assert "3 rows outside" in page_of(error, tmp_path)


@pytest.mark.parametrize(
    ("shape", "said"), [((30, 2, 24), (1, [1, 2])), ((2, 5, 6, 24), (2, [1, 1, 6]))]
)
def test_a_view_in_another_shape_is_drawn_as_it_is_indexed(tmp_path, shape, said):
    def kernel(x, at):
        out = nl.ndarray((1, 24), dtype=x.dtype, buffer=nl.shared_hbm)
        view, n = x.reshape(shape), nisa.register_alloc(0)
        nisa.register_load(n, nl.load(at))
        nisa.dma_copy(dst=out, src=view[0, n] if len(shape) == 3 else view[0, 0, n])
        return out

    error = outside(kernel, X, np.array([[7]], np.int32))
    assert (error.picture["dim"], error.picture["shape"]) == said
    assert error.picture["asked"] == [[7, 8]]
    assert "outside" in page_of(error, tmp_path)


def test_errors_without_a_picture_have_a_page_too(tmp_path):
    evil = "<script>alert(1)</script>"
    error = errors.NkiError(
        evil, code="race", hint=evil, numbers={evil: evil}, location=f"{evil}:3"
    )
    page = page_of(error, tmp_path)
    assert page.count("&lt;script&gt;") >= 4 and "<svg" not in page
