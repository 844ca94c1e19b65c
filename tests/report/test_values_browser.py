"""The page of a record in a browser: what it shows is what the launch held, and keys and clicks."""

from __future__ import annotations

import json
import re

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import OutOfBoundsError
from tests.insight.lines import lines_of
from tests.report.opened import (
    CHROMIUM,
    DRIVER,
    browser,
    complaints,
    meetings,
    mouse,
    opened,
    requests,
    written,
)

pytest.importorskip("selenium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM.exists() and DRIVER.exists()), reason="needs chromium and chromium-driver"
    ),
]
LINES = lines_of(__file__)


@nki.jit
def mixed(x, rows, times):
    """Views, narrow types, integers, chosen rows, rounds known at run time, and the other core."""
    me = nl.program_id(0)
    out = nl.ndarray((2, 24, 30), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x[me * 24 : me * 24 + 24])
    narrow = nl.ndarray((24, 30), dtype=nl.bfloat16, buffer=nl.sbuf, name="narrow")
    # LINE strided
    nisa.tensor_copy(dst=narrow[:, 0:30:3], src=tile[:, 0:10])
    nisa.activation(dst=narrow[:, 1:30:3], op=nl.exp, data=tile[:, 10:20])
    nisa.memset(dst=narrow[:, 2:30:3], value=-np.inf)
    numbers = nl.ndarray((24, 30), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=numbers, pattern=[[1, 30]], offset=-7, channel_multiplier=30)
    chosen = nl.ndarray((6, 30), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=chosen, src=x.ap([[30, 6], [1, 30]], vector_offset=nl.load(rows)))
    theirs = nl.ndarray((24, 30), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.sendrecv(src=narrow, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    n, count = nisa.register_alloc(), nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=count, src=times)
    nisa.register_load(n, count)
    waste = nl.ndarray((24, 30), dtype=nl.float32, buffer=nl.sbuf)

    def body(_):
        half = nl.ndarray((24, 30), dtype=nl.float32, buffer=nl.sbuf)
        # LINE half
        nisa.tensor_scalar(dst=half[:, 5:], data=tile[:, 5:], op0=nl.multiply, operand0=0.5)
        nisa.tensor_copy(dst=half[:, 0:5], src=tile[:, 0:5])
        nisa.tensor_copy(dst=tile, src=half)
        part = nl.ndarray((24, 30), dtype=nl.float32, buffer=nl.sbuf, name="part")
        # LINE unread
        nisa.tensor_copy(dst=part[:, 0:9], src=tile[:, 0:9])
        nisa.tensor_copy(dst=waste, src=part)  # of which nobody has written all

    nl.fori_loop(0, n, body)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=theirs, op=nl.maximum)
    nisa.tensor_copy(dst=tile[0:6], src=chosen)
    nl.store(out[me], tile)
    return out


X = np.random.default_rng(0).standard_normal((48, 30)).astype(np.float32)
X[3, 4] = np.nan
ROWS = np.array([[40], [2], [7], [0], [41], [19]], np.int32)

# What operands of all steps hold, before and after, as the page has put them together.
HELD = """
  const {data, contents} = report;
  const holds = (o, step, after) => {
    const tensor = data.tensor[o], found = contents.at(tensor, step, after), held = [];
    const {itemsize} = data.tensors[tensor];
    places(data.accesses[data.access[o]], (place, n) => {
      const e = Math.floor(place / itemsize), row = Math.floor(e / found.columns);
      const cell = row * found.width + e % found.columns;
      held[n] = found.by[cell] === UNWRITTEN ? "unwritten" : number(found.values[cell]);
    });
    return held;
  };
  return JSON.stringify(Array.from({length: report.steps}, (_, step) =>
    report.operands(step).map((o) => [holds(o, step, false), holds(o, step, true)])));
"""
# The first step of a line on a core, or of an instruction on any.
FIRST = """
  const d = report.data, [line, core] = arguments;
  return Array.from(d.line).findIndex((l, s) => (d.files[l][0] === line && d.core[s] === core)
    || d.ops[d.op[s]] === line);
"""


@pytest.fixture(scope="module")
def mixed_page(tmp_path_factory):
    record = nki.record(mixed[2])(X, ROWS, np.array([[3]], np.int32))
    return record, written(record, tmp_path_factory.mktemp("values") / "mixed.html")


@pytest.fixture(scope="module")
def window(mixed_page):
    with browser() as driver:
        opened(driver, mixed_page[1])
        yield driver


def shown_number(value) -> str:
    value = float(value)
    if np.isnan(value):
        return "NaN"
    return "inf" if value == np.inf else "-inf" if value == -np.inf else value


def test_every_operand_of_every_step_is_what_the_launch_held(mixed_page, window):
    record, _ = mixed_page
    held, steps = json.loads(window.execute_script(HELD)), record.steps()
    assert len(held) == len(steps) > 30
    compared = unwritten = 0
    for step, operands in zip(steps, held):
        both, names = (step.before(), step.after()), [*step.reads, *step.writes]
        for name, (before, after) in zip(names, operands):
            for n, (got, want) in enumerate(zip((before, after), (b[name] for b in both))):
                if n == 0 and name in step.writes and step.writes[name].tensor == "half":
                    continue  # what a tensor of a round holds at first isn't defined
                for a, b in zip(got, want.astype(np.float64).reshape(-1), strict=True):
                    if a == "unwritten":
                        unwritten += 1
                        written = n == 0 and name in step.writes
                        assert written or np.isnan(b), (step, name, b)
                        continue
                    compared += 1
                    b = shown_number(b)
                    same = a == b if isinstance(b, str) else float(a) == pytest.approx(b, rel=1e-5)
                    assert same, (step, name, n, a, b)
    assert compared > 20_000 and unwritten > 5_000


def test_nothing_is_fetched_and_nothing_complained(mixed_page):
    with browser() as driver:
        opened(driver, mixed_page[1])
        _, *asked = requests(driver, mixed_page[1])
        assert [a for a in asked if not a.startswith(("data:", "blob:"))] == []
        assert complaints(driver) == []


def key(driver, text):
    pressed = "new KeyboardEvent('keydown', {key: arguments[0], bubbles: true})"
    driver.execute_script(f"document.body.dispatchEvent({pressed})", text)
    return driver.execute_script("return report.step")


def test_keys_go_through_steps_lines_and_cores(window):
    last = window.execute_script("return report.steps - 1")
    assert key(window, "l") == last and key(window, "f") == 0
    assert key(window, "ArrowRight") == 1 and key(window, "ArrowLeft") == 0
    half = go_to(window, LINES["half"])
    again = key(window, "]")
    assert again > half and key(window, "[") == half
    now = window.find_element("id", "now").text
    assert f"test_values_browser.py:{LINES['half'].rpartition(':')[2]} nisa.tensor_scalar" in now
    key(window, "c")
    key(window, "c")  # core 1 alone
    cores = set()
    for _ in range(12):
        cores.add(window.execute_script(f"return report.data.core[{key(window, 'ArrowLeft')}]"))
    assert cores == {1}
    key(window, "c")
    assert key(window, "?") is not None
    assert window.execute_script("return document.getElementById('keys').open")
    colours = window.execute_script("return report.kind")
    key(window, "m")
    assert window.execute_script("return report.kind") != colours


def picture(driver, caption):
    figures = driver.find_elements("css selector", "#pictures figure")
    return next(f for f in figures if f.text.startswith(caption)).find_element("tag name", "canvas")


def at_cell(driver, canvas, row, column):
    """Where an element of a picture is in the window."""
    box = driver.execute_script(
        "arguments[0].scrollIntoView({block: 'center'});"
        "const b = arguments[0].getBoundingClientRect(); return [b.left, b.top, b.width, b.height]",
        canvas,
    )
    shape = 24, 30
    return [box[0] + (column + 0.5) * box[2] / shape[1], box[1] + (row + 0.5) * box[3] / shape[0]]


def go_to(driver, line, core=0):
    step = driver.execute_script(FIRST, line, core)
    driver.execute_script("report.go(arguments[0])", step)
    return step


def test_hovering_gives_the_element_and_a_click_goes_to_who_wrote_it(mixed_page, window):
    record, _ = mixed_page
    step = go_to(window, LINES["half"], core=1)
    canvas = picture(window, "data before")
    mouse(window, "mouseMoved", at_cell(window, canvas, 20, 11))
    tip = window.find_element("id", "tip").text
    held = record.steps()[step].before()["data"][20, 11 - 5]
    name, value = tip.splitlines()[0].split(" = ")
    assert name == "tile[20, 11]" and float(value) == pytest.approx(held, rel=1e-5)
    for kind in ("mousePressed", "mouseReleased"):
        mouse(window, kind, at_cell(window, canvas, 20, 11), button="left", clickCount=1)
    loaded = window.find_element("id", "now").text
    assert "nisa.dma_copy" in loaded and "core 1" in loaded
    canvas = picture(window, "dst before")
    mouse(window, "mouseMoved", at_cell(window, canvas, 3, 3))
    assert "nobody had written it" in window.find_element("id", "tip").text


def test_elements_become_numbers_and_keys_move_among_them(window):
    go_to(window, LINES["strided"])
    canvas = picture(window, "dst after")
    canvas.send_keys("+" * 12)
    seen = []
    for _ in range(2):
        canvas.send_keys("\ue014")  # right
        tip = window.find_element("id", "tip").text
        seen.append([int(n) for n in re.match(r"narrow\[(\d+), (\d+)\]", tip).groups()])
    assert seen[1] == [seen[0][0], seen[0][1] + 1]
    assert "bfloat16" in canvas.find_element("xpath", "..").text


def test_a_line_of_the_source_a_loop_and_a_tensor_lead_to_steps(window):
    row = next(r for r in window.find_elements("css selector", ".code .used") if "iota" in r.text)
    row.click()
    assert "nisa.iota" in window.find_element("id", "now").text
    go_to(window, LINES["half"])
    (loop,) = window.find_elements("css selector", "#list .loop")
    assert "round 1 of 3" in loop.text
    before = window.execute_script("return report.step")
    loop.click()
    assert window.execute_script("return report.step") > before
    assert "round 2 of 3" in window.find_element("css selector", "#list .loop").text
    window.find_element("css selector", "button[data-tensor]").click()


def test_messages_and_the_timeline_lead_to_steps_and_back(window):
    go_to(window, "nisa.sendrecv")
    assert meetings(window) == [["core", "0", "1"], ["0", "·", "1.4"], ["1", "1.4", "·"]]
    window.find_elements("css selector", "#meetings tbody button")[1].send_keys("\ue007")
    assert "core 1" in window.find_element("id", "now").text
    at = window.execute_script(
        """
        const t = report.timeline, {rows} = t.data;
        const row = t.places.find((p) => p.row !== undefined && rows[p.row].engine === "scalar");
        const e = rows[row.row].last - 1;
        t.canvas.scrollIntoView({block: "center"});
        const box = t.canvas.getBoundingClientRect();
        return [box.left + t.x(t.data.start[e] + t.data.took[e] / 2), box.top + row.y + 8];
        """
    )
    for kind in ("mousePressed", "mouseReleased"):
        mouse(window, kind, at, button="left", clickCount=1)
    assert "nisa.activation" in window.find_element("id", "now").text
    chosen = window.execute_script(
        "const t = report.timeline; return t.data.kinds[t.data.kind[t.chosen]][0]"
    )
    assert chosen == "activation"


CHOSEN = """
  const {timeline: t, data, step} = report, {rows, start} = t.data, row = rows[t.rowOf(t.chosen)];
  return [row.core, row.engine, start[t.chosen], data.core[step], data.ops[data.op[step]],
    document.activeElement.id, element("now").getBoundingClientRect().top];
"""


def test_keys_lead_from_a_step_to_its_place_in_the_timeline_and_back(window):
    window.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    go_to(window, LINES["half"], core=1)
    key(window, "t")
    core, engine, start, of, instruction, focus, _ = window.execute_script(CHOSEN)
    assert (core, of, instruction, focus) == (1, 1, "nisa.tensor_scalar", "timeline")
    canvas = window.find_element("id", "timeline")
    seen = [(core, engine)]
    for _ in range(3):  # along the queue, in the order of time
        canvas.send_keys("\ue014")
        core, engine, after, of, *_ = window.execute_script(CHOSEN)
        assert after > start and of == 1
        start = after
        seen.append((core, engine))
    assert len(set(seen)) == 1
    canvas.send_keys("\ue013")  # up
    core, other, *_ = window.execute_script(CHOSEN)
    assert (core, other) != (1, engine)
    window.execute_script("scrollTo(0, document.body.scrollHeight)")
    assert window.execute_script(CHOSEN)[-1] < 0
    canvas.send_keys("\ue007")  # back
    height = window.execute_script("return innerHeight")
    assert -1 < window.execute_script(CHOSEN)[-1] < height


def test_what_is_expected_is_shown_beside_the_result(tmp_path):
    @nki.jit
    def half_wrong(x):
        me, rows = nl.program_id(0), x.shape[0] // 2
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[me * rows : me * rows + rows])
        if me == 1:
            # LINE fault
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.activation(dst=tile, op=nl.square, data=tile)
        nl.store(out[me * rows : me * rows + rows], tile)
        return out

    x = np.abs(X[4:44]) + 0.5
    path = written(nki.record(half_wrong[2])(x), tmp_path / "wrong.html", expected=x**2)
    with browser() as driver:
        opened(driver, path)
        rows = driver.find_elements("css selector", "[data-first-wrong]")
        assert [r.get_attribute("data-first-wrong") for r in rows] == [LINES["fault"]]
        said = driver.find_element("id", "difference").text
        assert "exactly those of rows 20 to 39, all columns differ" in said
        assert len(driver.find_elements("css selector", "#compared canvas")) == 3
        assert "nisa.tensor_scalar" in driver.find_element("id", "now").text
        driver.find_elements("css selector", ".chain li")[0].click()
        assert "nisa.dma_copy" in driver.find_element("id", "now").text


# What is wider than its place, and is no listing, which one moves by itself.
CUT = """
  const parts = [...document.querySelectorAll("#steps, .tools, .pictures, #time-section")];
  return parts.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.id || e.className);
"""


@pytest.mark.parametrize("dark", [False, True])
def test_narrow_screens_have_all_of_it(mixed_page, dark):
    with browser(dark) as driver:
        size = {"width": 400, "height": 900, "mobile": False, "deviceScaleFactor": 1}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        opened(driver, mixed_page[1])
        for zoom in (1, 1.25):
            driver.execute_script(f"document.body.style.zoom = {zoom}; report.draw()")
            script = "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
            wide, room = driver.execute_script(script)
            assert wide <= room
            assert driver.execute_script(CUT) == []
        assert complaints(driver) == []


def test_names_and_values_are_text(tmp_path):
    evil = "</script><img src=x onerror=\"document.title='owned'\">"

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name=evil)
        nisa.dma_copy(dst=tile, src=x)  # "</script><script>document.title='owned'</script>"
        nl.store(out, tile)
        return out

    kernel.__name__ = evil
    x = ml_dtypes.bfloat16(X[:20, :7])
    path = written(nki.record(nki.jit(kernel))(x), tmp_path / "evil.html", expected=x + 1)
    with browser() as driver:
        opened(driver, path)
        for _ in range(2):
            assert driver.title == evil and not driver.find_elements("css selector", "img")
            assert evil in driver.find_element("id", "pictures").text
            assert evil in driver.find_element("id", "difference").text
            assert driver.find_element("css selector", "h1").text == evil
            mouse(driver, "mouseMoved", at_cell(driver, picture(driver, "dst after"), 1, 1))
            key(driver, "ArrowRight")
        with pytest.raises(OutOfBoundsError) as raised:
            nki.simulate(nki.jit(lambda x: nl.ndarray((4, 4), nl.float32, nl.sbuf, name=evil)[9:]))(
                x
            )
        raised.value.write_report(tmp_path / "error.html")
        opened(driver, tmp_path / "error.html")
        assert evil in driver.find_element("css selector", "main").text
        assert driver.title.startswith("OutOf") and not driver.find_elements("css selector", "img")
        assert complaints(driver) == []
