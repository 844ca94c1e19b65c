"""What is known of a kernel goes with it."""

from __future__ import annotations

import gc
import weakref

from nki_dist.launcher.cachekey import Fingerprinter


def made(n: int):
    space: dict[str, object] = {"__name__": "cells"}
    exec(compile(f"def kernel(x):\n    return x + {n}\n", f"<cell {n}>", "exec"), space)
    return space["kernel"]


def test_code_is_not_kept_when_its_function_is_gone() -> None:
    fingerprinter = Fingerprinter(snapshots=4)
    kernels = [made(n) for n in range(50)]
    prints = [fingerprinter.fingerprint(kernel, ()) for kernel in kernels]
    assert len(set(prints)) == 50
    codes = [weakref.ref(kernel.__code__) for kernel in kernels]
    assert [fingerprinter.fingerprint(kernel, ()) for kernel in kernels] == prints
    kernels.clear()
    gc.collect()
    assert sum(code() is not None for code in codes) <= 4  # those that it looked at last
    assert fingerprinter.fingerprint(made(7), ()) == prints[7]
