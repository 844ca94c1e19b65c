"""`python -m bench.real_kernels.launches FILE`: kernels that no program of their checkout launches
without a device, or a package that isn't public. They are launched with arrays of the size that
they ask for, as small as they take them.

Scripts of triton-viz hand kernels to its own interpreter; `triton_viz.trace` is ours here, which
launches them. Files without a row in KERNELS are executed as scripts.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import nki_dist as nki
from bench.real_kernels import tracing
from nki_dist import compat

BF16 = ml_dtypes.bfloat16


def _zeros(*shapes: tuple[int, ...], dtype: Any = BF16) -> list[np.ndarray]:
    return [np.zeros(shape, dtype) for shape in shapes]


SQUARE = (2048, 2048)  # the kernels assert it

# end of the file's path -> (kernel, its arguments)
KERNELS: dict[str, tuple[str, Callable[[], list[Any]]]] = {
    "lhs_rhs/kernel_handtuned_89.26mfu.py": (
        "matmul_lhs_rhs_nkigym",
        lambda: _zeros(SQUARE, SQUARE),
    ),
    "lhsT_rhs/kernel_hand_90.92mfu.py": ("matmul_lhsT_rhs_nkigym", lambda: _zeros(SQUARE, SQUARE)),
    "rmsnorm_matmul/kernel_hand_online.py": ("", lambda: _zeros(SQUARE, SQUARE)),
    "gpt_oss/kernels/nki/rmsnorm.py": (
        "nki_rmsnorm_kernel",
        lambda: [*_zeros((130, 256), (256,)), 1e-5],
    ),
    "playground/simple_nki_kernel.py": (
        "nki_tensor_add",
        lambda: _zeros((128, 512), (128, 512), dtype=np.float32),
    ),
    "qwen3/kernels/sampling.py": (
        "nki_rmsnorm_kernel",
        lambda: [*_zeros((130, 256), (256,)), 1e-5],
    ),
}


MISSING = 30  # packages that a file may import and that aren't here


class _Anything(types.ModuleType):
    """A package that isn't installed; whatever is asked of it is there and does nothing."""

    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __getitem__(self, item: Any) -> Any:
        return self


class _Viz:
    """What `triton_viz.trace(...)(kernel)` gives."""

    def __init__(self, kernel: Any) -> None:
        beta1 = "neuronxcc" in Path(kernel.__code__.co_filename).read_text()
        self._kernel = importlib.import_module("neuronxcc.nki" if beta1 else "nki").jit(kernel)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        grid = grid[0] if isinstance(grid, tuple) and len(grid) == 1 else grid
        kernel = self._kernel[grid]
        return lambda *args, pre_trace=None, **kwargs: kernel(*args, **kwargs)


def _prepare() -> None:
    compat.install()
    compat.install_devices()
    tracing.install()
    viz = _Anything("triton_viz")
    vars(viz)["trace"] = lambda *args, **kwargs: _Viz
    sys.modules["triton_viz"] = viz
    for name in ("core", "core.trace", "core.data", "clients", "utils", "utils.traceback_utils"):
        sys.modules[f"triton_viz.{name}"] = viz


def _launch(path: Path, kernel: str, arguments: list[Any]) -> None:
    package, parents = "", path.parent
    if (parents / "__init__.py").exists() or "kernels" in parents.parts:  # relative imports
        sys.path.insert(0, str(parents.parent))
        package = parents.name
        sys.modules.setdefault(package, types.ModuleType(package)).__path__ = [str(parents)]
    name = f"{package}.{path.stem.replace('.', '_')}" if package else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    for _ in range(MISSING):
        try:
            spec.loader.exec_module(module)
            break
        except ModuleNotFoundError as error:
            assert error.name is not None
            sys.modules[error.name] = _Anything(error.name)
    found = [v for v in vars(module).values() if isinstance(v, type(nki.jit(_zeros)))]
    (getattr(module, kernel) if kernel else found[-1])(*arguments)


def main() -> None:
    path = Path(sys.argv[1]).resolve()
    sys.argv = [str(path)]
    _prepare()
    for end, (kernel, arguments) in KERNELS.items():
        if str(path).endswith(end):
            _launch(path, kernel, arguments())
            return
    sys.path.insert(0, str(path.parent))
    runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main()
