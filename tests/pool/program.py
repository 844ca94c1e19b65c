"""A program for test_cluster: `python -m tests.pool.program WHAT` prints JSON."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings

import numpy as np
import ray

import nki_dist as nki
from nki_dist.errors import ClusterWarning
from tests.launcher import kernels as K


def main(what: str) -> None:
    xs = np.random.default_rng(3).standard_normal((6, 40), np.float32)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        with nki.World(ranks=2) as world:
            (out, other) = world.run(K.add_weights, xs, xs)
            found = {
                "digest": hashlib.sha256(out.tobytes() + other.tobytes()).hexdigest(),
                "address": ray.get_runtime_context().gcs_address,
                "pids": [pid for pid, _ in world.host.processes],
                "warnings": [str(w.message) for w in given if w.category is ClusterWarning],
            }
            print(json.dumps(found), flush=True)
            if what == "dies":
                os.kill(os.getpid(), 9)
            if what == "stays":
                sys.stdin.readline()
            if what == "retries":
                sys.stdin.readline()
                try:
                    world.run(K.add_weights, xs, xs)
                except nki.errors.CoreLostError as error:
                    print(json.dumps({"lost": str(error)}), flush=True)
                again = world.run(K.add_weights, xs, xs)
                same = again[0].tobytes() == out.tobytes()
                print(json.dumps({"same": same}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
