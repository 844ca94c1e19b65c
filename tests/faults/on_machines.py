"""A program for test_machines_residence: tensors of four instances on several machines.

`python -m tests.faults.on_machines ADDRESS` prints lines of JSON; after "running" it waits for one
of its machines to die, and for a line with the time (time.monotonic()) at which it did.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
from nki_dist import errors
from tests.launcher import kernels as K
from tests.launcher import resident_kernels as R
from tests.launcher.in_a_row import summed
from tests.launcher.resident_kernels import A

RANKS = 256
INSTANCES = ncc.ReplicaGroup([list(range(n, n + 64)) for n in range(0, RANKS, 64)])
ACROSS = ncc.ReplicaGroup([list(range(n, RANKS, 64)) for n in range(64)])
ALL = ncc.ReplicaGroup([list(range(RANKS))])


def own(rank: int) -> np.ndarray:
    return A + np.float32(rank)


class Tensors:
    """Those of a world."""

    def __init__(self, world: nki.World) -> None:
        self.world = world
        self.kept = world.put(nki.per_rank(own), name="kept", restore=True)
        self.again = world.put(nki.per_rank(own), name="again", restore=lambda: nki.per_rank(own))
        self.plain = world.put(A, name="plain")

    def digest(self) -> str:
        """Of what launches in a row make of them: of each rank, within instances, and between."""
        x = self.world.run(R.added, self.kept, self.again)
        y = self.world.run(summed, x, INSTANCES)
        z = self.world.run(summed, y, ACROSS)
        into = self.world.put(A, name="into")
        self.world.run(R.add_into, x, into)
        found = hashlib.sha256()
        for tensor in (x, y, z, into):
            for value in tensor.numpy():
                found.update(value.tobytes())
        return found.hexdigest()


def say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def right(tensor: Any) -> bool:
    return all(np.array_equal(value, own(rank)) for rank, value in enumerate(tensor.numpy()))


def main(address: str) -> None:
    warnings.simplefilter("ignore")
    with nki.World.trn2_ultraserver(host="inprocess") as world:
        wanted = Tensors(world).digest()
    with nki.World.trn2_ultraserver(address=address) as world:
        tensors = Tensors(world)
        same = tensors.digest() == wanted
        world.run(K.count_then_meet, np.array([[3]], np.int32), ALL)
        nodes = {node for _, node in world.host.processes}
        say(same=same, nodes=len(nodes), again=tensors.digest() == wanted)
        say(running=True)
        try:
            world.run(K.count_then_meet, np.array([[2**30]], np.int32), ALL)
            error = "none"
        except errors.NkiError as caught:
            error = type(caught).__name__
        at = time.monotonic()
        killed = float(sys.stdin.readline())
        say(error=error, seconds=at - killed)
        digest = tensors.digest()
        kept, again = right(tensors.kept), right(tensors.again)
        nodes = {node for _, node in world.host.processes}
        try:
            tensors.plain.numpy()
            plain = "there"
        except errors.CoreLostError as caught:
            plain = "lost" if "tensor plain" in str(caught) else str(caught)
        tensors.plain.write_from_numpy(nki.per_rank(own))
        say(
            same=digest == wanted,
            nodes=len(nodes),
            put_again=[kept, again],
            plain=plain,
            anew=right(tensors.plain),
        )


if __name__ == "__main__":
    main(sys.argv[1])
