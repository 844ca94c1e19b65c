"""What nki-library's test harness needs beside a simulator, put in its place in memory.

As published, the harness imports two modules that aren't in its repository, reads an attribute that
simulation never sets, and has no way to simulate several ranks. It computes what is expected after
the run, from inputs that the kernel may have written to. One kernel file isn't valid Python:
the end of a docstring is there twice. One test imports a package by an older name, one uses a name
that it doesn't import, one looks inputs up without the suffix of those that are outputs, too. The
checkout isn't written to.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

import nki_dist as nki
from nki_dist import arch
from nki_dist.compat.compiler import only_for_hardware

LIBRARY = "nkilib_src.nkilib"
BROKEN = f"{LIBRARY}.core.mlp.mlp"
RENAMED = (f"{LIBRARY}.experimental.subkernels", f"{LIBRARY}.experimental.collectives")
HARNESS = "test.utils"
IN_PLACE = ".must_alias_input"  # suffix of the names of inputs that are outputs, too


def install() -> None:
    """Before the harness's conftest is imported."""
    sys.meta_path[:0] = [RepairedSource(), Renamed()]
    locks = f"{HARNESS}.scripts.remote_lock_scripts"
    _module(f"{HARNESS}.perf_analysis_private", analyze_trace=_on_a_device)
    _module(f"{HARNESS}.scripts", __path__=[])
    _module(locks, LockStatus=Enum("LockStatus", "NONE"), LockResult=type("LockResult", (), {}))


def before_collection() -> None:
    """After the harness has been imported, before its tests are."""
    module = sys.modules.get(f"{HARNESS}.common_dataclasses")
    if module is not None:
        vars(builtins)["Platforms"] = module.Platforms


def prepare_orchestrator() -> None:
    """After the harness has been imported: simulation of ranks, and the attribute it reads."""
    module = sys.modules.get(f"{HARNESS}.simulation_setup")
    if module is not None:
        module.simulate_kernel = _on_copies(module.simulate_kernel)
    module = sys.modules.get(f"{HARNESS}.test_orchestrator")
    if module is not None:
        orchestrator = module.Orchestrator
        orchestrator._compiled_kernel = None
        orchestrator.execute = _with_ranks(orchestrator.execute)
    module = sys.modules.get(f"{HARNESS}.unit_test_framework")
    if module is not None:
        framework = module.UnitTestFramework
        framework.__init__ = _with_found_inputs(framework.__init__)


def _module(name: str, **contents: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(contents)
    sys.modules[name] = module


def _on_a_device(*args: Any, **kwargs: Any) -> NoReturn:
    only_for_hardware("analyze_trace, which isn't published,")


class _Inputs(dict):
    """Finds an input by its name without the suffix."""

    def __missing__(self, name: str) -> Any:
        if name + IN_PLACE in self:
            return self[name + IN_PLACE]
        raise KeyError(name)


def _with_found_inputs(init: Any) -> Any:
    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        describe = self.output_tensor_descriptor
        self.output_tensor_descriptor = lambda inputs: describe(_Inputs(inputs))

    return initialised


def _on_copies(simulate: Any) -> Any:
    """`simulate_kernel` that leaves the test's arrays alone, as a device does."""

    def simulated(kernel: Any, inputs: dict[str, Any], *args: Any) -> Any:
        return simulate(kernel, _copied([inputs])[0], *args)

    return simulated


# ---- modules -------------------------------------------------------------------------------------


class RepairedSource(importlib.abc.MetaPathFinder):
    """Finds BROKEN and gives it a loader that drops the second end of the docstring."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != BROKEN:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _WithoutRepetition(name, spec.origin)
        return spec


class _WithoutRepetition(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        text = Path(self.path).read_text()
        parts = text.split('"""')
        if len(parts) == 4 and parts[1].endswith(parts[2][1:]):
            kept, lines = '"""'.join(parts[:2]), "\n" * parts[2].count("\n")
            text = f'{kept}"""{lines}{parts[3]}'
        return compile(text, self.path, "exec", dont_inherit=True)


class Renamed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of the old package are those of the new one."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != RENAMED[0] and not name.startswith(RENAMED[0] + "."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name == RENAMED[0])

    def create_module(self, spec: Any) -> ModuleType | None:
        if spec.name == RENAMED[0]:
            return None
        return importlib.import_module(spec.name.replace(*RENAMED))

    def exec_module(self, module: ModuleType) -> None:
        """The module has been executed under its own name."""


# ---- several ranks -------------------------------------------------------------------------------


def _with_ranks(execute: Any) -> Any:
    """`Orchestrator.execute` that runs a kernel of several ranks in a world.

    Tests that are marked as traced only, whatever the mode, would call AWS's compiler.
    """

    def executed(self: Any, kernel_args: Any, *args: Any, **kwargs: Any) -> Any:
        if self.trace_mode.name in ("TraceOnly", "CompileOnly"):
            return _trace(kernel_args)
        if kernel_args.inference_args.collective_ranks == 1:
            return execute(self, kernel_args, *args, **kwargs)
        return _run_ranks(kernel_args)

    return executed


def _trace(test: Any) -> None:
    """Compile the kernel; such tests check something while it's traced."""
    compiler, failures = test.compiler_input, sys.modules[f"{HARNESS}.exceptions"]
    os.environ[arch.NC_VARIABLE] = compiler.platform_target.get_nc_gen()
    try:
        kernel = nki.jit(test.kernel_func)[compiler.logical_nc_config]
        kernel.compile(**_inputs(test.kernel_input or {}, 0))
    except Exception as error:
        raise failures.CompilationException(f"{type(error).__name__}: {error}") from error


def _run_ranks(test: Any) -> None:
    """Launch, and compare the ranks' outputs with the tolerances of the harness's test."""
    ranks, compiler = test.inference_args.collective_ranks, test.compiler_input
    inputs = _copied([_inputs(test.kernel_input, rank) for rank in range(ranks)])
    kwargs = {name: _argument([rank[name] for rank in inputs]) for name in inputs[0]}
    with nki.World(
        ranks=ranks,
        lnc=compiler.logical_nc_config,
        platform=compiler.platform_target.get_nc_gen(),
        host="inprocess",
    ) as world:
        outputs = world.run(test.kernel_func, **kwargs)
    check = test.validation_args
    # What is expected of no rank in particular is what's expected of the first.
    compared = outputs if hasattr(check.golden_output, "for_rank") else outputs[:1]
    for rank, got in enumerate(compared):
        golden = _golden(check.golden_output, rank)
        arrays = list(got) if isinstance(got, (list, tuple)) else [got]
        if len(arrays) != len(golden):
            raise AssertionError(f"rank {rank}: {len(arrays)} outputs, expected {len(golden)}")
        for array, (name, want) in zip(arrays, golden.items()):
            if hasattr(want, "validator"):  # the test brings a check of its own
                if not want.validator(None).validate(np.asarray(array)):
                    raise AssertionError(f"rank {rank}, {name}: refused by the test's validator")
                continue
            want = np.asarray(want, np.float64)
            bound = check.absolute_accuracy + check.relative_accuracy * np.abs(want).max()
            error = np.abs(np.asarray(array).astype(np.float64).reshape(want.shape) - want).max()
            if not error <= bound:
                raise AssertionError(f"rank {rank}, {name}: off by {error:.3g}, over {bound:.3g}")


def _inputs(given: Any, rank: int) -> dict[str, Any]:
    """The arguments of one rank; the harness marks outputs that are inputs in their names."""
    found = given.for_rank(rank) if hasattr(given, "for_rank") else given
    return {name.removesuffix(IN_PLACE): value for name, value in found.items()}


def _copied(inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ranks' arguments with copies of their arrays; ranks that share an array share its copy."""
    made: dict[int, np.ndarray] = {}

    def copied(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if id(value) not in made:
            made[id(value)] = value.copy()
        return made[id(value)]

    return [{name: copied(value) for name, value in given.items()} for given in inputs]


def _golden(given: Any, rank: int) -> dict[str, Any]:
    if hasattr(given, "for_rank"):
        return given.for_rank(rank)
    # Without a generator, the arrays that describe the outputs are what's expected.
    return (given.golden or given.output_ndarray) if hasattr(given, "golden") else given


def _argument(values: list[Any]) -> Any:
    return nki.per_rank(values) if isinstance(values[0], np.ndarray) else values[0]
