"""`torch_xla` and `torch_neuronx` as programs use them beside kernels: the device is the CPU.

Kernels take CPU tensors, so a program that moves its tensors to `xm.xla_device()` runs unchanged;
`device="xla"` and `.to("xla")` mean the CPU, too (`XlaIsCpu`). Not modelled: lazy execution.
PyTorch computes at once, so there is nothing to synchronise, and nothing to count.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from nki_dist.launcher.kernel import jit as nki_jit  # noqa: F401 -- of torch_neuronx


def device(n: int | None = None) -> Any:
    """The CPU, as a torch device."""
    return importlib.import_module("torch").device("cpu")


def xla_device(n: int | None = None, devkind: str | None = None) -> Any:
    """The CPU, as a torch device."""
    return device(n)


def devices() -> list[Any]:
    """The one device."""
    return [device()]


def device_count() -> int:
    """One."""
    return 1


def sync(wait: bool = False) -> None:
    """Nothing is pending."""


def wait_device_ops(devices: Any = None) -> None:
    """Nothing is pending."""


mark_step = sync


# ---- torch_xla.debug.metrics: counters of a device that isn't there -----------------------------


def metrics_report() -> str:
    """An empty report."""
    return ""


def compile(f: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The function itself."""
    return (lambda function: function) if f is None else f
