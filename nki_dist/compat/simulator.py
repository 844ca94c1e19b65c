"""`nki.cpu_simulate(kernel)[lnc](...)`: how AWS's test harnesses start their simulator.

NKI_NC_VERSION (gen2, gen3, gen4) says which generation to simulate, and is read at every call,
since harnesses set it from test to test.
"""

from __future__ import annotations

import os
from typing import Any

from nki_dist import arch
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


__all__ = ["SimulatedKernel", "cpu_simulate"]
