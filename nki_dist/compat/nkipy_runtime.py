"""`nkipy.runtime`: NKI kernels that take their tensors by name, and leave them in HBM.

A `DeviceKernel` is compiled for shapes and called with DeviceTensors: `inputs=` by parameter,
`outputs=` by place in what the kernel returns ("output0"), or by parameter if the kernel writes it;
such an input is called "cache.must_alias_input". Times are simulated.

Not here: kernels in NumPy, which `nkipy.core` traces and AWS's compiler makes NEFFs of. Nor do
processes of torch.distributed make a world: collectives are for `nki.World(ranks=...)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

import numpy as np

from nki_dist.compat.compiler import CompiledKernel, only_for_hardware
from nki_dist.compat.measured import write_measurement
from nki_dist.compat.spike import BenchmarkResult, Spike, SpikeModel, TensorMetadata
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.locations import users_line
from nki_dist.errors import LaunchError, TensorSizeError
from nki_dist.launcher.binding import BoundArguments, bind_arguments, is_array, take_array
from nki_dist.launcher.device_tensor import DeviceTensor
from nki_dist.launcher.kernel import Kernel, jit, profile
from nki_dist.launcher.tracebacks import leaves_package
from nki_dist.program import Access, TensorSignature
from nki_dist.program.pytree import flatten, tree_map

ALIAS: Final = ".must_alias_input"  # which AWS's compiler appends to inputs that kernels write

MODE: Final = "leave it out: simulated time is the device's, and a host's would be the simulator's"


class DeviceKernel(SpikeModel):
    """An NKI kernel for arguments of certain shapes; `compile_and_load` makes it.

    Attributes:
        name: the kernel's, or the one given.
        model_ref: the compiled programs.
        neff_path: where a NEFF would be; there is none.
        input_tensors_info, output_tensors_info: size, dtype and shape of tensors, by name.
    """

    def __init__(self, kernel: Kernel, bound: BoundArguments, model: Compiled, path: Path) -> None:
        self.name, self.neff_path, self.model_ref = path.stem, path, model
        self._kernel, self._bound = kernel, bound
        inputs = bound.signatures
        written = {s.index: s.name for s in inputs if s.index in model.written_inputs}
        self._inputs = [s.name + ALIAS * (s.index in written) for s in inputs]
        self.input_tensors_info = {n: _info(s) for n, s in zip(self._inputs, inputs)}
        leaves = _leaves(model.outputs, Access)
        self._returned = [
            (a.storage.role == "input" and written.get(a.storage.index)) or f"output{n}"
            for n, a in enumerate(leaves)
        ]
        self._written = written
        self.output_tensors_info = {n: _info(a) for n, a in zip(self._returned, leaves)}
        self.output_tensors_info |= {n: _info(inputs[i]) for i, n in written.items()}

    @classmethod
    @leaves_package
    def compile_and_load(
        cls,
        kernel: Any,
        *args: Any,
        name: str | None = None,
        build_dir: str | PathLike[str] = ".",
        target: Any = None,
        cc_enabled: bool | None = None,
        world_size: int | None = None,
        rank_id: int | None = None,
        is_spmd: bool = True,
        use_cached_if_exists: bool = True,
        additional_compiler_args: str | None = None,
        **kwargs: Any,
    ) -> DeviceKernel:
        """Compile a kernel.

        Args:
            kernel: an `nki.jit` kernel, with its grid if it has one, or a function that calls some.
            args, kwargs: of the kernel; of arrays and DeviceTensors only shape and dtype count.
            name: by default the kernel's.
            build_dir: a folder for traces.
            target: platform, if not that of the kernel or the environment.
            cc_enabled, world_size: of collectives over processes, which are refused.
            rank_id, is_spmd, use_cached_if_exists, additional_compiler_args: ignored.

        Raises:
            LaunchError: it is no kernel, or is to have collectives over processes.
            NkiError: the kernel is wrong.
        """
        if cc_enabled or (world_size or 1) > 1:
            raise LaunchError(
                "a DeviceKernel has no collectives over processes here; write "
                "nki.World(ranks=...).run(kernel, ...) for ranks of one program",
                location=users_line(),
                code="not-simulated",
            )
        options = {} if target is None else {"platform_target": getattr(target, "value", target)}
        jitted: Kernel = jit(kernel, **options)
        args, kwargs = tuple(map(_shapes, args)), {k: _shapes(v) for k, v in kwargs.items()}
        model = jitted.compile(*args, **kwargs)
        bound = bind_arguments(jitted.fn, args, kwargs)
        return cls(jitted, bound, model, Path(build_dir, f"{name or model.kernel}.neff"))

    @leaves_package
    def __call__(
        self,
        inputs: Mapping[str, DeviceTensor],
        outputs: Mapping[str, DeviceTensor] | None = None,
        save_trace: bool = False,
        ntff_name: str | PathLike[str] | None = None,
    ) -> dict[str, DeviceTensor] | None:
        """Run the kernel.

        Args:
            inputs: all of `input_tensors_info`.
            outputs: those of `output_tensors_info` that are wanted; they are written anew.
            save_trace: leave a measurement for `neuron-profile` of `nki-dist run`.
            ntff_name: its path; by default `neff_path` with another suffix.

        Returns:
            All outputs by name, if none are given.

        Raises:
            TensorSizeError: a name is unknown or missing, or something isn't a DeviceTensor of the
                shape and dtype that the kernel was compiled for.
            NkiError: the launch failed.
        """
        results, measured = self._launch(inputs, outputs, save_trace)
        if save_trace:
            path = Path(ntff_name or self.neff_path.with_suffix(".ntff"))
            path.parent.mkdir(parents=True, exist_ok=True)
            write_measurement(path, measured)
        return results if outputs is None else None

    @leaves_package
    def benchmark(
        self,
        inputs: Mapping[str, DeviceTensor],
        outputs: Mapping[str, DeviceTensor] | None = None,
        warmup_iter: int = 5,
        benchmark_iter: int = 5,
        mode: str = "device",
    ) -> BenchmarkResult:
        """The kernel's simulated time, which doesn't vary: it runs once.

        Args:
            inputs, outputs: as of a call.
            warmup_iter, benchmark_iter: how often a device would run it.
            mode: "device".

        Raises:
            LaunchError: another mode.
            TensorSizeError, NkiError: as of a call.
        """
        if mode != "device":
            message = f"mode={mode!r} of DeviceKernel.benchmark; allowed: 'device'"
            raise LaunchError(message, location=users_line(), code="benchmark-option", hint=MODE)
        ms = self._launch(inputs, outputs, True)[1].device_us / 1e3
        return BenchmarkResult(ms, ms, ms, 0.0, benchmark_iter, warmup_iter, [ms] * benchmark_iter)

    def _launch(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None, measured: bool
    ) -> tuple[dict[str, DeviceTensor], Any]:
        """All outputs by name, and the profile if it is asked for."""
        outputs = outputs or {}
        self._check("input", inputs, self.input_tensors_info, self._inputs)
        self._check("output", outputs, self.output_tensors_info, outputs)
        bound, tensors = self._bound, [inputs[name] for name in self._inputs]
        args, kwargs = tree_map(
            lambda leaf: tensors[leaf.index] if isinstance(leaf, TensorSignature) else leaf,
            (bound.args, bound.kwargs),
        )
        got = (profile(self._kernel) if measured else self._kernel)(*args, **kwargs)
        results = {name: tensors[n] for n, name in self._written.items()}
        returned = _leaves(got.outputs if measured else got, DeviceTensor)
        results.update(zip(self._returned, returned, strict=True))
        for name, into in outputs.items():
            if into is not results[name]:
                into.write_from_numpy(results[name].numpy())
        return results, got.profile if measured else None

    def _check(self, kind: str, given: Mapping[str, Any], info: Any, needed: Any) -> None:
        for name in dict.fromkeys((*given, *needed)):
            got = _info(given[name]) if name in given else "missing"
            if got != (compiled := info.get(name, "not there")):
                raise TensorSizeError(
                    f"{kind} {name} of {self.name} is {got}; compiled, it is {compiled}",
                    location=users_line(),
                    hint=f"its {kind}s are DeviceTensors called {', '.join(info) or 'nothing'}",
                )


def _shapes(value: Any) -> Any:
    """An argument without its contents; equal arrays become different ones."""

    def hollow(leaf: Any) -> Any:
        if not is_array(leaf):
            return leaf
        _, shape, dtype = take_array("DeviceKernel.compile_and_load", "", leaf)
        return np.empty(shape, dtype.dtype)

    return tree_map(hollow, value, is_array)


def _leaves(tree: Any, kind: type) -> list[Any]:
    found, _ = flatten(tree, lambda value: isinstance(value, kind))
    return [leaf for _, leaf in found if isinstance(leaf, kind)]


def _info(tensor: Any) -> TensorMetadata | str:
    if not isinstance(tensor, (DeviceTensor, TensorSignature, Access)):
        return f"a {type(tensor).__name__}"
    dtype = np.dtype(getattr(tensor.dtype, "dtype", tensor.dtype))
    size = int(np.prod(tensor.shape)) * dtype.itemsize
    return TensorMetadata(size, dtype.name, list(tensor.shape))


def is_neuron_compatible() -> bool:
    """Whether there are cores, as there always are here."""
    return Spike.get_visible_neuron_core_count() > 0


class BaremetalExecutor(CompiledKernel):
    """Runs NEFFs; can't be made."""


def baremetal_jit(*args: Any, **kwargs: Any) -> NoReturn:
    """Always raises LaunchError, as does `baremetal_run_traced_kernel`."""
    only_for_hardware("nkipy's baremetal_jit")


baremetal_run_traced_kernel = baremetal_jit


class RuntimeOnly(MetaPathFinder):
    """Says why there is no other part of nkipy."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname.startswith("nkipy."):
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: nkipy isn't installed, and nki_dist stands for its "
                "nkipy.runtime only. Its nkipy.core traces NumPy for AWS's compiler: write kernels "
                "with nki.jit, or install nkipy"
            )
