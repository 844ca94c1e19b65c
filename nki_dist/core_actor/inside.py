"""Whether this process is one of Ray's that runs somebody's tasks or actor."""

from __future__ import annotations

import ray


def in_worker() -> bool:
    """Whether it is a worker, and not a driver, that is a program of its own."""
    if not ray.is_initialized():
        return False
    worker = getattr(ray.get_runtime_context(), "worker", None)
    return getattr(worker, "mode", None) == ray.WORKER_MODE
