"""What README says that launches cost: its kernel, in fresh processes, in process and on Ray.

    python -m bench.starts [--turns 5]

The table has medians over the processes, by the clock, so the machine should be idle. A later
launch is the median of 50 in its process. The end is from the program's last line until its process
is gone.
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median

from bench.harness import apart, show
from tests.pages import ROOT, blocks, runnable

MEASURED = """
import json, time
began = time.perf_counter()
{kernel}
imported = time.perf_counter() - began
x = np.random.default_rng(0).standard_normal((256, 1024), np.float32)
seconds = []
for _ in range(51):
    began = time.perf_counter()
    rms_norm[2](x)
    seconds.append(time.perf_counter() - began)
print(json.dumps([imported, seconds[0], sorted(seconds[1:])[25], time.time()]), flush=True)
"""


def kernel() -> str:
    """README's first block up to where its kernel is launched."""
    return next(filter(runnable, blocks(ROOT / "README.md"))).text.split("\n\n\nrng = ")[0]


def once(host: str) -> list[float]:
    """Seconds of importing, of the first launch, of later ones, and of the end."""
    environment = os.environ | {"NKI_DIST_HOST": host, "NKI_DIST_CLUSTER": "off"}
    *seconds, last = apart("-c", MEASURED.format(kernel=kernel()), env=environment)
    return [*seconds, time.time() - last]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=5, help="processes on each host")
    turns = parser.parse_args().turns
    heads = ("", "import", "first launch", "each after it", "end")
    hosts = (("in this process", "inprocess"), ("on actors", "ray"))
    show(heads, (row(name, host, turns) for name, host in hosts))


def row(name: str, host: str, turns: int) -> tuple[str, ...]:
    taken = zip(*(once(host) for _ in range(turns)), strict=True)
    imported, first, later, end = map(median, taken)
    return name, f"{imported:.2f} s", f"{first:.2f} s", f"{1e3 * later:.1f} ms", f"{end:.2f} s"


if __name__ == "__main__":
    main()
