"""`nki.framework.compiled`: kernels that evaluators call without a framework.

AWS's `CompileKernel` compiles a kernel for the arrays it is called with, runs it and leaves files
in a folder. Here the kernel runs on the simulator, in this process. In the place of the compiled
kernel, `kernel.neff`, it leaves a measurement that `neuron-profile` of `nki-dist run` can show.
"""

from __future__ import annotations

import os
from typing import Any

from nki_dist.compat.compiler import only_for_hardware
from nki_dist.compat.measured import write_measurement
from nki_dist.launcher.kernel import Kernel, profile, simulate


class CompileKernel:
    """A kernel to call with NumPy arrays.

    Args:
        func: a kernel, or a plain function.
        artifacts_dir: a folder for `kernel.neff`; None for no files.
        lnc: physical cores, 1 or 2; None for what `func` or the environment says.
        options: of AWS's compiler; ignored.
    """

    def __init__(
        self, func: Any, artifacts_dir: Any = None, lnc: int | None = None, **options: Any
    ) -> None:
        self.artifacts_dir = artifacts_dir
        self.kernel: Kernel = simulate(func)
        if lnc is not None:
            self.kernel = self.kernel[lnc]

    def __getitem__(self, grid: Any) -> CompileKernel:
        made = CompileKernel(self.kernel, self.artifacts_dir)
        made.kernel = self.kernel[grid]
        return made

    __iter__ = None  # it takes every index, so Python would iterate for ever

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel.

        Raises:
            NkiError, or what the kernel raises: it is wrong.
        """
        if self.artifacts_dir is None:
            return self.kernel(*args, **kwargs)
        run = profile(self.kernel)(*args, **kwargs)
        os.makedirs(self.artifacts_dir, exist_ok=True)
        write_measurement(os.path.join(self.artifacts_dir, "kernel.neff"), run.profile)
        return run.outputs


def compile_kernel_to_nir(*args: Any, **kwargs: Any) -> Any:
    """Always raises LaunchError."""
    only_for_hardware("compile_kernel_to_nir")


__all__ = ["CompileKernel", "compile_kernel_to_nir"]
