"""The page of a session: what it says, how it says what repeats, and how it looks in a browser."""

import gzip
import html
import json
import re
from base64 import b64decode

import numpy as np
import pytest

import nki_dist as nki
from nki_dist.launcher.sequence import Sequence
from nki_dist.report.sequence import repeats
from tests.launcher.in_a_row import launched
from tests.report.opened import CHROMIUM, DRIVER, browser, complaints, opened, requests


@pytest.fixture(scope="module")
def made():
    """300 steps of two layers, two equal products and a sum each, and one other product."""
    with nki.World(ranks=2, lnc=1, host="inprocess") as world:
        product, total, other = launched(world)
        session = Sequence(world)
        for launch in ([product, product, total] * 2 + [other]) * 300:
            launch.into(session)
        return session


@pytest.fixture(scope="module")
def path(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("session") / "session.html"
    made.write_report(path)
    return path


@pytest.fixture(scope="module")
def page(path):
    return path.read_text()


def rows(page, heading):
    """The first table after a heading, as lists of texts."""
    table = page[page.index(f"<h2>{heading}</h2>") :].partition("</table>")[0]
    found = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")]
    return [[html.unescape(re.sub("<[^>]*>", "", cell)) for cell in row] for row in found if row]


def packed(page):
    return json.loads(gzip.decompress(b64decode(re.search(r'id="packed">([^<]*)<', page)[1])))


def test_the_line_says_what_repeats_once(page, made):
    product, _, total = made.launches[:3]
    found = [row[-1] for row in rows(page, "Launches")]
    assert found == [
        "300 × these 2:",
        "2 × these 2:",
        "2 × projected",
        "1 × summed",
        "1 × projected",
    ]
    start, each, together, _ = rows(page, "Launches")[2]
    assert (start, each) == ("0", f"{product.device_us:,.3f}")
    assert together == f"{2 * product.device_us:,.3f}"
    assert rows(page, "Launches")[3][0] == f"{total.start_us:,.3f}"
    assert rows(page, "Launches")[0][2] == f"{made.device_us:,.0f}"


def test_gaps_lie_between_launches(made, tmp_path):
    with nki.World(ranks=2, lnc=1, host="inprocess") as world:
        product, total, _ = launched(world)
    session = Sequence(world, gap_us=5.0)
    for launch in [product, product, total] * 2:
        launch.into(session)
    session.write_report(tmp_path / "s.html")
    both, twice, once = rows((tmp_path / "s.html").read_text(), "Launches")
    one, other = product.profile.device_us, total.profile.device_us
    assert both[1] == f"{2 * one + other + 10:,.3f}"
    assert twice[1] == f"{one:,.3f}"
    assert once[:2] == [f"{2 * (one + 5):,.3f}", f"{other:,.3f}"]


def test_kernels_are_listed_with_their_shares(page, made):
    found = rows(page, "Kernels")
    assert [row[-1] for row in found] == ["projected", "summed", "all"]
    for row, k in zip(found, [*made.by_kernel(), made.total()]):
        assert row[0] == f"{k.launches:,}"
        assert row[3:7] == [f"{x:.1%}" for x in (k.share, k.mfu, k.mbu, k.collectives)]


def test_each_distinct_launch_is_told_of_in_short(page, made):
    each = page[page.index('<section id="each">') :]
    summaries = re.findall(r"<summary><b>(\w+)</b> <span>(.*?)</span>", each)
    assert len(summaries) == 3
    assert {(name, text.partition(" ")[0]) for name, text in summaries} == {
        ("projected", "1,200"), ("projected", "300"), ("summed", "600")
    }  # fmt: skip
    assert "x 96×40 float32, w 96×300 float32" in each and "x 128×64 float32" in each
    assert each.count("<h3>What bounded it</h3>") == each.count("<h3>Engines</h3>") == 3
    assert "float32 products" in each and "all_reduce" in each


def test_what_is_assumed_is_said(page, made):
    assert "0 to 20 (published: ASYNC" in page
    assumed = sum(launch.profile.assumed_us for launch in made.launches)
    assert f"{assumed:,.1f} µs of the time on the device" in page
    for launch in made.launches[:7]:
        for name in launch.profile.assumed_parameters:
            assert name in page
    assert f"band {made.low_us:,.0f} to {made.high_us:,.0f}" in page
    assert "many launches" in page[page.index("<h2>Advice") :]


def test_the_page_refers_to_nothing_outside(page):
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|@import|url\(""", page)
    assert set(re.findall(r"<!--(\w+)-->", page)) == set()


def test_equal_sessions_give_equal_bytes(made, page, tmp_path):
    made.write_report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == page


def test_kernels_fill_the_time_that_they_take(page, made):
    busy = packed(page)["busy"]
    assert list(busy["share"]) == ["projected", "summed"]
    for k in made.by_kernel():
        assert np.mean(busy["share"][k.name]) == pytest.approx(k.share, abs=1e-4)
    assert np.sum(list(busy["share"].values()), axis=0) == pytest.approx(1.0, abs=1e-3)


def test_long_lines_are_cut(made, tmp_path):
    """Launches without a pattern, of which all kernels are still named."""
    with nki.World(ranks=2, lnc=1, host="inprocess") as world:
        product, total, other = launched(world)
    product.name = "<b>&odd"
    session = Sequence(world)
    for n in np.random.default_rng(1).integers(0, 3, 2000):
        (product, total, other)[n].into(session)
    session.write_report(tmp_path / "s.html")
    page = (tmp_path / "s.html").read_text()
    assert len(rows(page, "Launches")) == 60 and "The rest is left out." in page
    assert {row[-1] for row in rows(page, "Kernels")} == {"<b>&odd", "summed", "projected", "all"}
    assert "<b>&odd" not in page
    assert len(page) < 4e6


def unfolded(items):
    for item in items:
        times, what = item if isinstance(item, tuple) else (1, None)
        for _ in range(times):
            yield from [item] if what is None else unfolded(what)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("", []),
        ("a", [0]),
        ("aab", [(2, (0,)), 1]),
        ("abab", [(2, (0, 1))]),
        ("cababababc", [2, (4, (0, 1)), 2]),
        ("aabaabc", [(2, ((2, (0,)), 1)), 2]),
        ("abcabcabca", [(3, (0, 1, 2)), 0]),
    ],
)
def test_patterns_are_found(order, said):
    numbers = np.array([ord(c) - ord("a") for c in order], np.intp)
    assert repeats(numbers) == said
    assert list(unfolded(said)) == numbers.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_of_any_order(seed):
    rng = np.random.default_rng(seed)
    block = rng.integers(0, 3, rng.integers(1, 30))
    order = np.concatenate([np.tile(block, 5), rng.integers(0, 2, 200), np.tile(block[::-1], 3)])
    found = repeats(order.astype(np.intp), longest=int(rng.integers(1, 40)))
    assert list(unfolded(found)) == order.tolist() and len(found) < len(order)


@pytest.mark.slow
@pytest.mark.skipif(
    not (CHROMIUM.exists() and DRIVER.exists()), reason="needs chromium and chromium-driver"
)
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_draws_it_and_fetches_nothing(path, dark):
    pytest.importorskip("selenium")
    with browser(dark) as driver:
        opened(driver, path)
        strips = driver.execute_script(
            "return [...document.querySelectorAll('#busy .ytick text, #busy [class*=y2tick] text')]"
            ".map((t) => t.textContent)"
        )
        assert strips == ["projected", "summed"]
        fills = driver.execute_script(
            "return [...document.querySelectorAll('#busy .js-fill')].map((e) => e.style.fill)"
        )
        assert len(set(fills)) == 2
        assert complaints(driver) == [] and requests(driver, path) == [path.as_uri()]
