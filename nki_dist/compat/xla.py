"""`torch_xla` and `torch_neuronx` as tutorials use them: the device is this machine's CPU.

Kernels take CPU tensors, so a program that moves its tensors to `xm.xla_device()` runs unchanged.
Not modelled: lazy execution. PyTorch computes at once, so there is nothing to synchronise.
"""

from __future__ import annotations

import importlib
from typing import Any

from nki_dist.launcher.kernel import jit as nki_jit


def device(n: int | None = None) -> Any:
    """The CPU, as a torch device."""
    return importlib.import_module("torch").device("cpu")


def xla_device(n: int | None = None, devkind: str | None = None) -> Any:
    """The CPU, as a torch device."""
    return device(n)


def sync(wait: bool = False) -> None:
    """Nothing is pending."""


def mark_step(wait: bool = False) -> None:
    """Nothing is pending."""


def wait_device_ops(devices: Any = None) -> None:
    """Nothing is pending."""


__all__ = ["device", "mark_step", "nki_jit", "sync", "wait_device_ops", "xla_device"]
