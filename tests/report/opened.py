"""Reading what a page holds, as its script does, and opening it in a browser."""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import time
from base64 import b64decode
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
_OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --window-size=1360,1000"
)


def data_of(page: str) -> dict[str, Any]:
    """The head of a page's data, with its columns as arrays."""
    raw = gzip.decompress(b64decode(re.search(r'id="packed">([^<]*)<', page)[1]))
    length = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + length])
    for name, (place, kind, count) in head["columns"].items():
        head[name] = np.frombuffer(raw, kind, count, 8 + length + place)
    return head


def written(record: Any, path: Path, **more: Any) -> Path:
    """Where a record's page is."""
    record.write_report(path, **more)
    return path


@contextmanager
def browser(dark=False):
    """A headless Chromium that keeps a log of what it fetches and complains about."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    with tempfile.TemporaryDirectory() as folder:
        for option in (*_OPTIONS.split(), f"--user-data-dir={folder}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        try:
            theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
            yield driver
        finally:
            driver.quit()


def opened(driver, path: Path) -> float:
    """Open a page and wait until all of it is drawn; the milliseconds that took, by its clock."""
    driver.get(path.as_uri())
    until = time.monotonic() + 60
    waits = "return document.scripts.length > 0 && document.body.dataset.ready !== 'all'"
    while driver.execute_script(waits):
        assert time.monotonic() < until, complaints(driver)
        time.sleep(0.02)
    return driver.execute_script("return performance.now()")


def complaints(driver) -> list[str]:
    return [entry["message"] for entry in driver.get_log("browser")]


def requests(driver, path: Path) -> list[str]:
    """Addresses that a page asked for since the browser began, its own first."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [p["request"]["url"] for p in sent if p["documentURL"] == path.as_uri()]


def meetings(driver):
    """Who gives whom how much at the step that is shown, as rows of texts."""
    rows = driver.find_elements("css selector", "#meetings tr")
    return [[c.text for c in row.find_elements("css selector", "th, td")] for row in rows]


def mouse(driver, kind, at, **more):
    """An event of the mouse at a place of the window."""
    driver.execute_cdp_cmd(
        "Input.dispatchMouseEvent", {"type": kind, "x": at[0], "y": at[1], **more}
    )
