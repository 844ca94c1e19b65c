"""A program whose launches go on while another user floods its sockets and takes their names.

    python attacked.py

Prints what the stranger prints, then "right".
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import nki_dist as nki
from tests.transport.strangers import names
from tests.transport.test_mailbox import doubled

STRANGERS = str(Path(__file__).with_name("strangers.py"))


def main() -> None:
    x = np.arange(128 * 256, dtype=np.float32).reshape(128, 256)
    with nki.World(lnc=2, cores_per_actor=1) as world:

        def launched(columns: int) -> None:
            wide = np.tile(x, (1, columns))
            assert np.array_equal(world.run(doubled, wide, False)[0], 2 * wide)

        launched(1)
        host = world._host
        parts = [host._actors.calls._mailbox.name, host._messages.token]
        assert all(names([part]) for part in parts)
        folder = getattr(host._actors.calls, "_folder", None)
        stranger = subprocess.Popen(
            [sys.executable, STRANGERS, folder.path if folder else "/tmp", *parts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert stranger.stdout.readline() == "at it\n"
        for columns in (1, 2, 1, 4, 8, 16, 1):  # others are dismissed: stacks grow, kernels change
            launched(columns)
        print(stranger.communicate("")[0].split(), flush=True)
        launched(2)
    with nki.World(lnc=2, cores_per_actor=1) as world:
        launched(1)
    print("right", flush=True)


if __name__ == "__main__":
    main()
