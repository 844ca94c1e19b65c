"""A report in a browser: what is shown, clicked and zoomed, and how fast.

Figures are limits of the page with 100,000 events, on a machine with two processors.
"""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.report.opened import CHROMIUM, DRIVER, browser, complaints, mouse, opened, requests

pytest.importorskip("selenium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM.exists() and DRIVER.exists()), reason="needs chromium and chromium-driver"
    ),
]


@nki.jit
def products(x, y, rounds):
    """exp(x.T @ y) + x, `rounds` times."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    keep = nl.load(y)
    for n in range(rounds):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, name=f"tile{n}")
        nisa.dma_copy(dst=tile, src=x)
        total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        for _ in range(4):
            nisa.nc_matmul(dst=total, stationary=keep, moving=tile)
        work = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=work, op=nl.exp, data=total)
        nisa.tensor_tensor(dst=work, data1=work, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out, src=work)
    return out


def report(path, rounds):
    specs = nki.TensorSpec((128, 512), np.float32), nki.TensorSpec((128, 128), np.float32)
    profile = nki.estimate(products)(*specs, rounds)
    profile.write_report(path)
    return profile


def point(driver, event):
    """Where the middle of an event is drawn, in the window."""
    return driver.execute_script(
        """
        const t = report.timeline, d = report.data, e = arguments[0];
        const box = t.canvas.getBoundingClientRect();
        const place = t.places.find((p) => p.row === t.rowOf(e));
        return [box.left + t.x(d.start[e] + d.took[e] / 2), box.top + place.y + 8];
        """,
        event,
    )


def first(driver, opcode):
    """The first event of an instruction."""
    return driver.execute_script(
        "const d = report.data; return Array.from(d.kind).findIndex((k) => d.kinds[k][0] === "
        "arguments[0]);",
        opcode,
    )


def click(driver, at):
    for kind in ("mousePressed", "mouseReleased"):
        mouse(driver, kind, at, button="left", clickCount=1)


def drawn(driver, do):
    """Do something, wait until it is on the screen; ms from the first event to that."""
    driver.execute_script(
        "window.began = 0; for (const k of ['wheel', 'click', 'keydown', 'pointermove'])"
        "addEventListener(k, (e) => { began ||= e.timeStamp; }, {capture: true, once: true});"
        "window.before = report.drawn;"
    )
    do()
    return driver.execute_async_script(
        """
        const done = arguments[0];
        const look = () => requestAnimationFrame(report.drawn > before
          ? () => done(performance.now() - began) : look);
        look();
        """
    )


def view(driver):
    return driver.execute_script("return [report.view.from, report.view.to]")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    return path, report(path, 20)


@pytest.fixture(scope="module")
def window(page):
    with browser() as driver:
        opened(driver, page[0])
        yield driver


def test_nothing_is_fetched_and_nothing_complained(page):
    with browser() as driver:
        opened(driver, page[0])
        own, *asked = requests(driver, page[0])
        assert own == page[0].as_uri()
        assert [a for a in asked if not a.startswith(("data:", "blob:"))] == []
        assert complaints(driver) == []


def test_the_mouse_over_an_event_says_what_it_is(window):
    event = first(window, "nc_matmul")
    mouse(window, "mouseMoved", point(window, event))
    tip = window.find_element("id", "tip").text
    assert "nc_matmul" in tip and "test_browser.py:" in tip and "tensor" in tip


def test_a_click_on_an_event_gives_details_and_marks_its_line(window):
    event = first(window, "activation")
    click(window, point(window, event))
    detail = window.find_element("id", "detail").text
    assert "activation" in detail and "work 128×512 float32 sbuf" in detail
    assert "the result of nc_matmul" in detail
    (row,) = window.find_elements("css selector", ".code .chosen")
    assert "nisa.activation(dst=work" in row.text
    window.find_element("css selector", "#detail button").click()
    assert "nc_matmul" in window.find_element("id", "detail").text


def test_zooming_keeps_the_time_under_the_mouse(window):
    window.find_element("id", "fit").click()
    event = first(window, "tensor_tensor")
    at = point(window, event)
    old = view(window)
    wheel = {"deltaX": 0, "deltaY": -300, "modifiers": 2}
    drawn(window, lambda: mouse(window, "mouseWheel", at, **wheel))
    new = view(window)
    assert new[1] - new[0] == pytest.approx((old[1] - old[0]) / np.e, rel=1e-3)
    assert point(window, event)[0] == pytest.approx(at[0], abs=1.5)
    drawn(window, lambda: window.find_element("id", "fit").click())
    assert view(window) == old


def test_the_wheel_alone_scrolls_the_page(window):
    old = view(window)
    at = point(window, first(window, "nc_matmul"))
    mouse(window, "mouseWheel", at, deltaX=0, deltaY=200)
    assert view(window) == old
    window.execute_script("scrollTo(0, 0)")


def test_dragging_moves_the_view(window):
    window.find_element("id", "zoom-in").click()
    old, at = view(window), point(window, first(window, "nc_matmul"))
    at = [700, at[1]]
    mouse(window, "mousePressed", at, button="left", clickCount=1)
    mouse(window, "mouseMoved", [at[0] - 100, at[1]], button="left", buttons=1)
    mouse(window, "mouseReleased", [at[0] - 100, at[1]], button="left", clickCount=1)
    new = view(window)
    assert new[0] > old[0] and new[1] - new[0] == pytest.approx(old[1] - old[0])
    window.find_element("id", "fit").click()


def test_a_line_of_the_source_shows_its_events(window):
    row = next(
        r for r in window.find_elements("css selector", ".code .used") if "nc_matmul" in r.text
    )
    drawn(window, row.click)
    script = "const t = report.timeline; return [t.strong(arguments[0]), t.strong(arguments[1])];"
    pair = first(window, "nc_matmul"), first(window, "activation")
    assert window.execute_script(script, *pair) == [True, False]
    drawn(window, row.click)
    assert window.execute_script(script, *pair) == [True, True]


def test_the_memory_names_its_tensors(window):
    at = window.execute_script(
        """
        const m = report.memory, part = m.parts[0];
        const box = part.memory.boxes.find((b) => b[4] === "tile3");
        m.canvas.scrollIntoView();
        const place = m.canvas.getBoundingClientRect(), byte = box[2] + box[3] / 2;
        const y = place.top + part.top + part.high - byte * part.scale;
        return [place.left + m.x((box[0] + box[1]) / 2), y];
        """
    )
    mouse(window, "mouseMoved", at)
    assert window.find_element("id", "tip").text.startswith("tile3\n128×512 float32\n2 KiB")
    window.execute_script("scrollTo(0, 0)")


def test_charts_are_drawn(window):
    assert len(window.find_elements("css selector", "#busy .scatterlayer .trace")) == 4
    assert "scalar" in window.find_element("id", "busy").text
    assert "float32 20 TFLOPS" in window.find_element("id", "roofline").text


def test_pixels_are_those_of_the_theme(page):
    """A pixel within the longest product has Tensor's color, in both themes."""
    pixel = """
        const t = report.timeline, c = t.canvas, d = report.data, ratio = c.width / c.clientWidth;
        const k = Array.from(d.kind).findIndex((k) => d.kinds[k][0] === "nc_matmul");
        const place = t.places.find((p) => p.row === t.rowOf(k));
        report.view.from = d.start[k]; report.view.to = d.start[k] + d.took[k]; t.draw();
        return Array.from(c.getContext("2d").getImageData(
          Math.round((t.width - 60) * ratio), Math.round((place.y + 5) * ratio), 1, 1).data);
        """
    seen = []
    for dark in (False, True):
        with browser(dark) as driver:
            opened(driver, page[0])
            seen.append(driver.execute_script(pixel)[:3])
    assert seen == [[0x2A, 0x78, 0xD6], [0x39, 0x87, 0xE5]]


def test_a_report_of_100_000_events_is_small_and_fast(tmp_path):
    path = tmp_path / "large.html"
    profile = report(path, 12_500)
    assert profile.instructions >= 100_000
    assert path.stat().st_size <= 15e6
    # Others may use the machine, too, so the best of three tries counts.
    tries = [measured(path) for _ in range(3)]
    took, longest = (min(t[n] for t in tries) for n in range(2))
    print(f"{took:.0f} ms to open, {longest:.0f} ms to zoom, {path.stat().st_size:,} bytes")
    assert took <= 3000 and longest <= 200, tries


def measured(path):
    """ms that it takes to open a page, and of the longest of several zooms."""
    with browser() as driver:
        took = opened(driver, path)
        assert driver.execute_script("return report.data.start.length") >= 100_000
        at = point(driver, 50_000)
        wheel = {"deltaX": 0, "deltaY": -150, "modifiers": 2}
        times = [drawn(driver, lambda: mouse(driver, "mouseWheel", at, **wheel)) for _ in range(8)]
        times.append(drawn(driver, lambda: driver.find_element("id", "fit").click()))
        times.append(drawn(driver, lambda: driver.find_element("id", "critical").click()))
        return took, max(times)
