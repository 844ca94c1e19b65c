"""PyTorch's device strings: `device="xla"` and `.to("xla:0")` mean the CPU.

PyTorch knows the name of the device, but only torch_xla computes on it. A torch function mode at
the bottom of the stack replaces it in every call, which is how `torch.set_default_device` works; so
torch is neither patched nor imported: the mode is entered when the program imports it.

Not covered: threads other than the one that imports torch, since modes are per thread, and
`map_location` of `torch.load`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def xla_is_cpu() -> None:
    """Make the device "xla" the CPU in this thread: now, or when torch is imported."""
    if any(isinstance(finder, _TorchFinder) for finder in sys.meta_path):
        return
    if "torch" in sys.modules:
        _enter()
    else:
        sys.meta_path.insert(0, _TorchFinder())


class _TorchFinder(MetaPathFinder):
    """Finds torch where it is, once, and has the mode entered after it was imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and found.loader is not None:
            execute = found.loader.exec_module

            def execute_and_enter(module: ModuleType) -> None:
                sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _TorchFinder)]
                execute(module)
                _enter()

            found.loader.exec_module = execute_and_enter  # type: ignore[method-assign]
        return found


def _enter() -> None:
    """Enter the mode in this thread, unless it is entered."""
    overrides = importlib.import_module("torch.overrides")
    entered = overrides._get_current_function_mode_stack()
    if not any(getattr(mode, "nki_dist_xla", False) for mode in entered):
        _mode(overrides)().__enter__()


def _mode(overrides: Any) -> Any:
    torch = sys.modules["torch"]
    cpu, device = torch.device("cpu"), torch.device

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return cpu if value == "xla" or value.startswith("xla:") else value
        return cpu if isinstance(value, device) and value.type == "xla" else value

    class XlaIsCpu(overrides.TorchFunctionMode):  # type: ignore[misc]
        """Calls torch functions with the CPU in the place of the device "xla"."""

        nki_dist_xla = True

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func is device:
                return func(*args, **kwargs)
            return func(
                *(replaced(value) for value in args),
                **{name: replaced(value) for name, value in kwargs.items()},
            )

    return XlaIsCpu


__all__ = ["xla_is_cpu"]
