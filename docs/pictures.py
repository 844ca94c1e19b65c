"""The pictures of reports in README and docs, taken again: `python docs/pictures.py`.

Needs chromium, chromedriver (`.ci/browser`), selenium and Pillow. Those of reports carry the
simulated time that they show, as text of the PNG; `tests/test_docs.py` compares that with the
present one, as it does the outputs of pages.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import tempfile
import time
import zlib
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples/spmd"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from attention_block import attention_block, inputs

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests import pages
from tests.pages import ROOT
from tests.report import long_record, opened

WIDE, NARROW = 1240, 640  # pixels of the page; narrow ones can be read on a telephone
KEYWORD = b"nki_dist simulated us"
# The instruction in the middle of core 0's Vector, as a click would choose it.
CHOOSE = """
  const {data, timeline} = window.report;
  const row = data.rows.find((row) => row.core === 0 && row.engine === "vector");
  const {left, top} = timeline.canvas.getBoundingClientRect();
  const event = Math.floor((row.first + row.last) / 2);
  const {y} = timeline.places.find((place) => data.rows[place.row] === row);
  const at = {clientX: left + timeline.x(data.start[event]) + 1, clientY: top + y + 8};
  for (const kind of ["pointerdown", "pointerup"]) {
    timeline.canvas.dispatchEvent(new PointerEvent(kind, {...at, bubbles: true}));
  }
"""
HEADLINE = "return document.querySelector('.tile dd').firstChild.textContent"
TIMELINE = """
  const {left, width, top} = document.querySelector("#time").getBoundingClientRect();
  const height = document.querySelector("#hint").getBoundingClientRect().top - top;
  return {x: left, y: top, width, height, scale: 1};
"""

# The last step, of several ranks, and where there is room for little the table of who meets whom.
LAST = """
  report.go(report.steps - 1);
  if (innerWidth < 500) document.getElementById("meetings").scrollIntoView({block: "end"});
"""
KEPT = 2 + 4095 * 3 + 2  # a step of a round whose pictures are kept


def demo() -> nki.Profile:
    """The profile of the kernel that `make demo` runs, without running it."""
    return nki.estimate(attention_block[2])(*inputs(np.random.default_rng(0)))


@nki.jit
def scores(q, k):
    """softmax(q.T @ k), causal; each core has half of the rows, and core 1 masks a column less."""
    me, half = nl.program_id(0), q.shape[1] // 2
    out = nl.ndarray((q.shape[1], k.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((half, k.shape[1]), dtype=nl.float32, buffer=nl.psum)
    mine = slice(me * half, me * half + half)
    nisa.nc_matmul(dst=acc, stationary=nl.load(q[:, mine]), moving=nl.load(k))
    tile = nl.ndarray(acc.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=tile, data=acc, op0=nl.multiply, operand0=0.125)
    mask = {"pattern": [[-1, k.shape[1]]], "channel_multiplier": 1, "cmp_op": nl.greater_equal}
    if me == 0:
        nisa.affine_select(dst=tile, on_true_tile=tile, on_false_value=-1e9, **mask, offset=0)
    else:
        nisa.affine_select(
            dst=tile, on_true_tile=tile, on_false_value=-1e9, **mask, offset=half + 1
        )
    top = nl.ndarray((half, 1), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((half, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=top, data=tile, op=nl.maximum, axis=1, negate=True)
    nisa.activation_reduce(
        dst=tile, op=nl.exp, data=tile, bias=top, reduce_op=nl.add, reduce_res=total
    )
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
    nl.store(out[mine], tile)
    return out


@nki.jit
def summed(x, group):
    """What each rank has is added up."""
    part = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(part, tile)
    ncc.all_reduce(srcs=[part], dsts=[total], replica_group=group, op=nl.add)
    return total


def all_reduced() -> Any:
    """A record of four ranks."""
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((64, 48)).astype(np.float32) * (r + 1) for r in range(4)]
    with nki.World(ranks=4, host="inprocess") as world:
        return world.record(summed, nki.per_rank(parts), group=ncc.ReplicaGroup([[0, 1, 2, 3]]))


def half_wrong(page: Path) -> None:
    """The page of a kernel whose second core has a mistake in its mask."""
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((64, 96)).astype(np.float32) for _ in range(2))
    logits = np.where(np.tril(np.ones((96, 96), bool)), q.T @ k / 8, -np.inf)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    nki.record(scores[2])(q, k).write_report(page, expected=weights / weights.sum(1, keepdims=True))


def shown(picture: Path) -> float:
    """The simulated microseconds that a picture shows."""
    (found,) = re.findall(KEYWORD + rb"\0([\d.]+)", picture.read_bytes())
    return float(found)


def show(driver, page: Path, width: int, height: int, scale: int = 1) -> None:
    """A page in a window of that size."""
    size = {"width": width, "height": height, "mobile": False, "deviceScaleFactor": scale}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    opened.opened(driver, page)


def screenshot(driver, **clip: object) -> bytes:
    """A PNG of no more than 256 colours, which is a third as large as one of all."""
    from PIL import Image

    png = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", **clip})["data"]
    image, made = Image.open(BytesIO(b64decode(png))).convert("RGB"), BytesIO()
    few = image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(made, "PNG", optimize=True)
    return made.getvalue()


def take(report: Path, picture: Path, width: int = NARROW) -> None:
    """A report's timeline if the page is narrow; else its upper part, an instruction clicked."""
    with opened.browser() as driver:
        show(driver, report, width, 920, 2 if width == NARROW else 1)
        clip = {}
        if width == NARROW:
            clip = {"clip": driver.execute_script(TIMELINE)}
        else:
            driver.execute_script(CHOOSE)
        png = screenshot(driver, **clip)
        total = driver.execute_script(HEADLINE).replace(",", "")
    picture.write_bytes(labelled(png, total))


def labelled(png: bytes, time: str) -> bytes:
    """The picture with a chunk of text behind its header."""
    header = 8 + 25  # the signature, and IHDR with its length and checksum
    text = b"tEXt" + KEYWORD + b"\0" + time.encode()
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    return png[:header] + chunk + png[header:]


def shoot(page: Path, name: str, height: int, script: str = "") -> None:
    """The upper part of a page, or what a script brings into view, wide and narrow."""
    for narrow, width in (("", 1400), ("_narrow", 400)):
        with opened.browser() as driver:
            show(driver, page, width, height)
            driver.execute_script(script)
            time.sleep(0.5)  # charts follow when the step has come to rest
            (ROOT / "docs" / f"{name}{narrow}.png").write_bytes(screenshot(driver))


def main() -> None:
    docs = ROOT / "docs"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        demo().write_report(folder / "demo.html")
        take(folder / "demo.html", docs / "timeline.png")
        take(folder / "demo.html", docs / "report.png", WIDE)
        os.chdir(folder)
        pages.run(docs / "profiles.md", folder)
        for kind in ("slow", "fast"):
            take(folder / f"{kind}.html", docs / f"fault_{kind}.png")
        half_wrong(folder / "record.html")
        shoot(folder / "record.html", "record", 1250)
        all_reduced().write_report(folder / "ranks.html")
        shoot(folder / "ranks.html", "record_ranks", 1120, LAST)
        long_record.record().write_report(folder / "many.html")
        shoot(folder / "many.html", "record_many", 1500, f"report.go({KEPT})")
        scene = folder / "debugging"
        scene.mkdir()
        os.chdir(scene)
        pages.run(docs / "debugging.md", Path())  # so that messages have no folders of this machine
        for kind in ("stuck", "racing"):
            shoot(scene / f"{kind}.html", f"error_{kind}", 900)


if __name__ == "__main__":
    main()
