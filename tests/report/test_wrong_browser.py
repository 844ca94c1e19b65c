"""The page of a record of a result that is off, in a browser."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.insight.lines import lines_of
from tests.report.opened import CHROMIUM, DRIVER, browser, complaints, opened, written

pytest.importorskip("selenium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM.exists() and DRIVER.exists()), reason="needs chromium and chromium-driver"
    ),
]
LINES = lines_of(__file__)


@nki.jit
def clipped(x):
    """Ten times x, by way of int8, which can't hold all of it.

    Its text has as many lines as such kernels have: a docstring, some steps, and arguments that
    stand on lines of their own.

    Args:
        x: (rows, columns) float32.

    Returns:
        (rows, columns) float32, ten times x, rounded.
    """
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    data = nl.load(x)
    # LINE made
    narrow = nl.ndarray(
        (data.shape[0], data.shape[1]), dtype=nl.int8, buffer=nl.sbuf, name="of_int8"
    )
    for factor in (2.0, 5.0):
        nisa.tensor_scalar(
            dst=data,
            data=data,
            op0=nl.multiply,
            operand0=factor,
        )
    for first in range(0, data.shape[1], 10):
        if first >= 0:
            # LINE clipped
            nisa.tensor_copy(
                dst=narrow[:, first : first + 10],
                src=data[:, first : first + 10],
                engine=nisa.engine.vector,
            )
    wide = nl.ndarray(data.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=wide, src=narrow)
    nisa.dma_copy(
        dst=out,
        src=wide,
    )
    return out


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    x = np.rint(np.random.default_rng(3).standard_normal((50, 40)) * 6).astype(np.float32)
    path = tmp_path_factory.mktemp("wrong") / "wrong.html"
    written(nki.record(clipped)(x), path, expected=10 * x.astype(np.float64))
    with browser() as driver:
        opened(driver, path)
        yield driver
        assert complaints(driver) == []


def css(driver, selector):
    return driver.find_elements("css selector", selector)


def test_lines_of_the_source_are_readable_whole(window):
    hidden = """
      const box = document.querySelector(".left .code"), cells = [...box.querySelectorAll("td")];
      return [cells.filter((c) => c.scrollWidth > c.clientWidth).length, cells.length,
        box.scrollWidth - box.clientWidth, box.scrollHeight - box.clientHeight];
    """
    size = {"width": 1400, "height": 950, "mobile": False, "deviceScaleFactor": 1}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    cut, cells, aside, below = window.execute_script(hidden)
    assert (cut, aside, below) == (0, 0, 0) and cells > 90
    window.execute_script("document.querySelector('.left .code table').style.height = '2000px'")
    script = "const c = document.querySelector('.left .code'); return c.clientHeight"
    assert window.execute_script(script) >= 60 * 14  # lines of a kernel
    indents = """
      return [...document.querySelectorAll(".left .src")].map((cell) => {
        const text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT).nextNode();
        if (!text) return [0];
        const range = document.createRange(), at = text.data.search(/\\S/);
        range.setStart(text, Math.max(at, 0));
        range.setEnd(text, text.length);
        return [...range.getClientRects()].map((r) => r.left);
      });
    """
    several = [lefts for lefts in window.execute_script(indents) if len(lefts) > 1]
    assert several and all(min(rest) > first for first, *rest in several)


def test_what_stands_out_is_marked_and_opened(window):
    assert "nisa.tensor_copy" in window.find_element("id", "now").text
    line = LINES["clipped"].rpartition(":")[2]
    assert f"test_wrong_browser.py:{line} " in window.find_element("id", "now").text
    (made,) = [row.text for row in css(window, ".code .suspect") if "of_int8: int8" in row.text]
    assert LINES["made"].rpartition(":")[2] in made
    (verdict,) = css(window, ".verdict")
    assert "in int8" in verdict.text and "stands out" in verdict.text
    told = css(window, ".chain b.mark")
    assert any("became" in one.text for one in told)


def test_off_and_right_are_beside_each_other(window):
    first, *_ = css(window, "#difference table")
    heads = [h.text for h in first.find_elements("css selector", "th")]
    assert len(heads) == 3
    assert heads[1].startswith("off out[") and heads[2].startswith("right out[")
    off = heads[1].removeprefix("off ")
    summary = css(window, ".chain summary")[0].text
    assert summary.startswith(f"Where {off} came from")
    (more, *_) = [s for s in css(window, "#difference > details > summary") if "more" in s.text]
    hidden = more.find_element("xpath", "../table")
    assert not hidden.is_displayed()
    more.click()
    assert hidden.is_displayed()


def test_what_is_alike_on_the_way_is_folded_and_leads_to_steps(window):
    every = css(window, ".chain li[data-step]")
    shown = [li for li in every if li.is_displayed()]
    assert len({li.find_element("tag name", "b").text for li in shown}) == len(shown) < len(every)
    css(window, ".chain li summary")[0].click()
    (more,) = [li for li in every if li.is_displayed() and li not in shown]
    more.click()
    assert "nisa.tensor_scalar" in window.find_element("id", "now").text


def test_pictures_of_what_was_expected_stand_in_line(window):
    script = """
      const all = (name) => [...document.querySelectorAll("#compared " + name)];
      return [all("canvas").map((c) => c.getBoundingClientRect().top),
        all("figcaption").map((c) => c.clientHeight)];
    """
    tops, heights = window.execute_script(script)
    assert len(tops) == 3 and len(set(tops)) == len(set(heights)) == 1 and heights[0] < 30
