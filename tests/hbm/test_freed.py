"""Memory that was freed goes back to the system."""

import sys
from pathlib import Path

import numpy as np
import pytest

from nki_dist.hbm.freed import give_back

PIECE, COUNT = 60 << 10, 512  # small enough for the heap; 30 MiB in all


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_holes_between_arrays_that_live_on_are_given_back():
    arrays = [np.ones(PIECE, np.uint8) for _ in range(COUNT)]
    kept = arrays[COUNT // 8 :: COUNT // 8]  # the rest lies between these
    kept.append(arrays[-1])
    give_back()
    before = resident()
    arrays.clear()
    assert give_back()
    assert before - resident() > PIECE * COUNT // 2
    assert all(array.all() for array in kept)
