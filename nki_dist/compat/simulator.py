"""`nki.cpu_simulate(kernel)[lnc](...)`, `nki.simulator.simulate_kernel`: AWS's simulator by name.

NKI_NC_VERSION (gen2, gen3, gen4) says which generation to simulate, and is read at every call,
since harnesses set it from test to test.
"""

from __future__ import annotations

import os
from typing import Any

from nki_dist import arch
from nki_dist.errors import LaunchError
from nki_dist.launcher.kernel import Kernel, simulate


class SimulatedKernel:
    """A kernel that runs in this process, for the generation that NKI_NC_VERSION names.

    Attributes:
        kernel: the kernel; its own `platform_target` is stronger than the environment.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> SimulatedKernel:
        return SimulatedKernel(self.kernel[grid])

    __iter__ = None  # it takes every index, so Python would iterate for ever

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kernel = self.kernel
        version = os.environ.get(arch.NC_VARIABLE)
        if version and not kernel.platform:
            kernel = Kernel(kernel, host="inprocess", platform_target=version)
        return kernel(*args, **kwargs)


def cpu_simulate(kernel: Any) -> SimulatedKernel:
    """A kernel, or a plain function, to run in this process."""
    return SimulatedKernel(simulate(kernel))


def simulate_kernel(
    kernel: Any, args: Any = (), kwargs: dict[str, Any] | None = None, lnc: int = 1
) -> Any:
    """Run a kernel in this process; `nki.simulator.simulate_kernel`, as vLLM calls it.

    Args:
        kernel: a kernel, or a plain function.
        args: its positional arguments, as one sequence.
        kwargs: its arguments by name.
        lnc: physical cores, 1 or 2.

    Returns:
        what the kernel returns; arrays that it writes to are updated.

    Raises:
        LaunchError: `args` is an array, so the kernel's arguments weren't given as a sequence.
        NkiError: the kernel is wrong.
    """
    if not isinstance(args, (tuple, list)):
        raise LaunchError(
            f"simulate_kernel(kernel, args, kwargs, lnc): args is a {type(args).__name__}; "
            "allowed: a tuple or list of the kernel's arguments",
            code="argument-kind",
        )
    return cpu_simulate(kernel)[lnc](*args, **(kwargs or {}))


__all__ = ["SimulatedKernel", "cpu_simulate", "simulate_kernel"]
