"""Decorators of Beta 1 and how its kernels run: `jit`, `baremetal`, `benchmark`, `profile`.

A Beta 1 kernel is an ordinary kernel whose function is wrapped: tensors become `Tile`s on the way
in and access patterns on the way out. Its latencies are simulated, so percentiles are all equal.

Follows: `nki` of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

import functools
import os
from typing import Any, Final

from nki_dist.compat.beta1 import lower
from nki_dist.compat.beta1.finish import finish
from nki_dist.compat.beta1.state import active, fresh_state
from nki_dist.compat.beta1.tile import BlockTile, Tile
from nki_dist.compat.beta1.typing import TensorType
from nki_dist.compat.measured import write_measurement
from nki_dist.errors import CompileError
from nki_dist.isa.tracing import rules_of_beta1
from nki_dist.language import creation
from nki_dist.language.grid import Nc, SpmdDim
from nki_dist.language.tensor import NkiTensor
from nki_dist.launcher.benchmarking import BenchmarkResult
from nki_dist.launcher.binding import not_a_kernel
from nki_dist.launcher.kernel import Kernel, profiled
from nki_dist.program.pytree import tree_map


def wrapped(function: Any) -> Any:
    """The function of a Beta 1 kernel as the tracer calls it.

    A kernel is taken as it is: this front end has wrapped it, or it's in today's language.
    """
    if isinstance(function, Kernel):
        return function.fn
    if hasattr(function, "__beta1__"):
        return function
    if not callable(function):
        raise not_a_kernel(function)

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        if active():  # a kernel called by a kernel
            return function(*args, **kwargs)
        args, kwargs = tree_map(_enter, (args, kwargs))
        with rules_of_beta1(), fresh_state(lower) as state:
            result = tree_map(_leave, function(*args, **kwargs))
            finish(state)
            return result

    traced.__beta1__ = True  # type: ignore[attr-defined]
    return traced


def _enter(leaf: Any) -> Any:
    return Tile(leaf) if isinstance(leaf, NkiTensor) else leaf


def _leave(leaf: Any) -> Any:
    if isinstance(leaf, Tile):
        return _in_hbm(leaf) if leaf.on_chip else leaf.resolve()
    if isinstance(leaf, BlockTile):
        raise CompileError(
            f"the kernel returned a tensor with block dimensions {leaf.tiles.shape} in "
            f"{leaf.buffer.value}; store it to a tensor in shared_hbm and return that",
            code="return-value",
            numbers={"blocks": leaf.tiles.shape},
        )
    return leaf


def _in_hbm(tile: Tile) -> NkiTensor:
    """Documented examples return tiles; their contents come out in a tensor of their own."""
    output = creation.ndarray(tile.shape, tile.dtype, "shared_hbm")
    lower.store(Tile(output), tile)
    return output


class Beta1Kernel(Kernel):
    """A kernel whose grid counts program instances: `kernel[4]` is four of them on one core.

    What a benchmark measured last is its `benchmark_result`, which its copies with grids share.
    `kernel[0]` of a `baremetal` kernel has no grid: nki-samples has one that is launched like that.
    """

    def _launch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = vars(self).get("benchmark_result")
        saving = any(self.options.get(name) for name in _SAVING)
        if self._instead is not None or (result is None and not saving):
            return super()._launch(args, kwargs)
        args = tuple(a.sample() if isinstance(a, TensorType) else a for a in args)
        run = self.but(_instead=profiled)._launch(args, kwargs)
        if result is not None:
            result.profile = run.profile
        _save(self.options, run.profile)
        return run.outputs

    @property
    def profile(self) -> Any:
        """The simulator's profile of a benchmark's last call, None before."""
        return self.benchmark_result.profile

    def __getitem__(self, grid: Any) -> Kernel:
        if self.options.get("mode") == "baremetal" and isinstance(grid, int) and grid == 0:
            return self.but(grid=None)
        parts = grid if isinstance(grid, (tuple, list)) else (grid,)
        if len(parts) == 1 and not isinstance(parts[0], (Nc, SpmdDim)):
            parts = (SpmdDim((parts[0],)),)
        return self.but(grid=tuple(parts))


_SAVING: Final = ("save_neff_name", "save_trace_name")


def _save(options: dict[str, Any], profile: Any) -> None:
    """Write the files that a decorator's options name, below `working_directory` if it has one."""
    for name in _SAVING:
        if options.get(name):
            write_measurement(
                os.path.join(options.get("working_directory") or "", options[name]), profile
            )


def _kernel(function: Any, options: dict[str, Any], **made: Any) -> Kernel:
    grid = getattr(function, "grid", None)
    if isinstance(function, Kernel):
        options = {**function.options, **options}
    kernel = Beta1Kernel(wrapped(function), grid, **made, **options)
    return kernel.but(tuner=getattr(function, "tuner", None))


def jit(func: Any = None, mode: str = "auto", **options: Any) -> Any:
    """Make a kernel; every `mode` runs on the simulator."""
    if func is None:
        return lambda function: jit(function, mode, **options)
    return _kernel(func, {"mode": mode, **options})


def trace(func: Any = None, **options: Any) -> Any:
    """Make a kernel, to be run with simulate_kernel."""
    return jit(func, "trace", **options)


def baremetal(kernel: Any = None, **options: Any) -> Any:
    """Make a kernel that runs at once.

    `save_neff_name` and `save_trace_name` name files to write; what is in them is the simulator's
    measurement (`compat.measured`), which `neuron-profile` shows in programs of `nki-dist run`.
    """
    return jit(kernel, "baremetal", **options)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel in this process; arrays it writes are updated, results returned."""
    options = getattr(kernel, "options", {})
    return _kernel(kernel, dict(options), host="inprocess")(*args, **kwargs)


def benchmark(kernel: Any = None, **options: Any) -> Any:
    """Make a kernel that is measured in simulated time; iteration counts have no effect.

    `save_neff_name` and `save_trace_name` are as of `baremetal`.
    """
    if kernel is None:
        return lambda function: benchmark(function, **options)
    made = _kernel(kernel, {"mode": "benchmark", **options})
    return made.but(benchmark_result=BenchmarkResult())


def profile(func: Any = None, **options: Any) -> Any:
    """As benchmark: `.profile` of the decorated kernel holds the simulator's profile."""
    return benchmark(func, **options)
