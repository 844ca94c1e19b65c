"""A program that forks at random moments while another thread of it launches; see test_forks.py.

    python forking.py HOST FORKS

Prints, as a dict, how many children ended how, and whether the parent's launches were right and
went on. A child launches in the parent's worlds and in a new one, on HOST and in process. One that
takes longer than `SECONDS` prints where it hangs.
"""

from __future__ import annotations

import collections
import faulthandler
import os
import random
import sys
import threading
import time

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import LaunchError

SECONDS = 30
A = np.random.default_rng(0).standard_normal((96, 128)).astype(np.float32)
WANT = A.T.astype(np.float64) @ A


@nki.jit
def gram(x, rounds):
    """x.T @ x, after as many rounds of no effect; each number of rounds is compiled for itself."""
    tile = nl.load(x)
    for _ in range(rounds):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0)
    product = nl.ndarray((x.shape[1], x.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=tile, moving=tile)
    out = nl.ndarray(product.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(product))
    return out


def right(found) -> bool:
    return bool(np.abs(found - WANT).max() < 1e-3)


class Launcher(threading.Thread):
    """Launches, known kernels and new ones, one core and two, until it is told to end."""

    def __init__(self, world) -> None:
        super().__init__()
        self.world, self.over = world, False
        self.launches = self.wrong = 0

    def run(self) -> None:
        while not self.over:
            rounds = self.launches % 40
            kernel = gram[1 + self.launches % 2]
            found = (
                kernel(A, rounds),
                nki.simulate(kernel)(A, rounds),
                self.world.run(gram, A, 3)[1],
            )
            self.wrong += sum(not right(one) for one in found)
            self.launches += 1


def child(world) -> str:
    """What becomes of launches: "right", "wrong", or the code of the error."""
    told = set()
    made = nki.World(ranks=2)
    for launch in (
        lambda: gram(A, 1),
        lambda: gram[2](A, 2),
        lambda: world.run(gram, A, 3)[0],
        lambda: made.run(gram, A, 3)[1],
    ):
        try:
            told.add("right" if right(launch()) else "wrong")
        except LaunchError as error:
            told.add(error.code)
    told.add("right" if right(nki.simulate(gram)(A, 1)) else "wrong")
    with nki.World(ranks=2, host="inprocess") as here:
        told.add("right" if right(here.run(gram, A, 4)[1]) else "wrong")
    return " ".join(sorted(told))


def main() -> None:
    os.environ["NKI_DIST_HOST"], forks = sys.argv[1], int(sys.argv[2])
    random.seed(forks)
    ends = collections.Counter()
    with nki.World(ranks=2) as world:
        thread = Launcher(world)
        if sys.argv[1] == "ray":
            world.run(gram, A, 3)
        thread.start()
        for n in range(forks):
            time.sleep(random.random() / 20)
            read, write = os.pipe()
            if not (pid := os.fork()):
                faulthandler.dump_traceback_later(SECONDS, exit=True)
                os.write(write, child(world).encode())
                if n % 2 and sys.argv[1] != "ray":  # where Ray was started, its own end hangs
                    sys.exit()  # as programs end, which closes the worlds
                os._exit(0)
            os.close(write)
            told = os.read(read, 1000).decode()
            os.close(read)
            _, status = os.waitpid(pid, 0)
            ends[told if not status else f"status {status}"] += 1
        before = thread.launches
        while thread.is_alive() and thread.launches < before + 2:
            time.sleep(0.01)
        thread.over = True
        thread.join()
    print({"ends": dict(ends), "wrong": thread.wrong, "went on": thread.launches >= before + 2})


if __name__ == "__main__":
    main()
