"""Programs written for AWS's packages run unmodified: `import nki` gives this package.

So does `import neuronxcc.nki`, with what only older releases had.

`install()` puts aliases into `sys.modules`; nothing is patched, so an alias and the module it
stands for are the same object. Real wheels, when there are any, are left alone unless asked: a
real `nki` or `neuronxcc` makes `install()` refuse, a real helper package is used as it is.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from nki_dist.compat import builtin
from nki_dist.compat.device_strings import xla_is_cpu
from nki_dist.compat.nkipy_runtime import RuntimeOnly
from nki_dist.errors import LaunchError
from nki_dist.release import release_name
from nki_dist.runtime.settings import RELEASE_VARIABLE

_MADE_HERE = "__nki_dist_alias__"  # marks the empty packages above aliases

# name that programs import -> our module
ALIASES = MappingProxyType(
    {
        "nki": "nki_dist",
        "nki.builtin": "nki_dist.compat.builtin",
        "nki.language": "nki_dist.language",
        "nki.isa": "nki_dist.isa",
        "nki.isa.constants": "nki_dist.isa.enums",
        "nki.collectives": "nki_dist.collectives",
        "nki.dtype": "nki_dist.dtypes",
        "nki.language.dtypes": "nki_dist.dtypes",
        "nki.typing": "nki_dist.compat.beta1.typing",
        "nki.tensor": "nki_dist.language.tensor",
        "nki.compiler": "nki_dist.compat.compiler",
        "nki.compiler.frontend": "nki_dist.compat.compiler",
        "nki.compiler.ncc_driver": "nki_dist.compat.compiler",
        "nki.kernels": "nki_dist.kernels",
        "nki.kernels.attention": "nki_dist.kernels.attention",
        "nki.kernels.vision": "nki_dist.kernels.vision",
        "nki.simulator": "nki_dist.compat.simulator",
        "nki.framework": "nki_dist.compat.framework",
        "nki.framework.compiled": "nki_dist.compat.framework",
        "nki.meta": "nki_dist.compat.meta",
        "nki.meta.tensor": "nki_dist.language.tensor",
        "nki.experimental": "nki_dist.language.control",
        "neuronxcc.nki": "nki_dist.compat.beta1",
        "neuronxcc.nki.language": "nki_dist.compat.beta1.language",
        "neuronxcc.nki.language.constants": "nki_dist.compat.neuron_dtypes",
        "neuronxcc.nki.isa": "nki_dist.compat.beta1.isa",
        "neuronxcc.nki.isa.constants": "nki_dist.isa.enums",
        "neuronxcc.nki.compiler": "nki_dist.compat.beta1.compiler",
        "neuronxcc.nki.compiler.sbuf": "nki_dist.compat.beta1.sbuf_allocation",
        "neuronxcc.nki.compiler.psum": "nki_dist.compat.beta1.psum_allocation",
        "neuronxcc.nki.kernels": "nki_dist.compat.beta1.kernels",
        "neuronxcc.nki.kernels.attention": "nki_dist.compat.beta1.kernels.attention",
        "neuronxcc.nki.kernels.vision": "nki_dist.compat.beta1.kernels.vision",
        "neuronxcc.nki.typing": "nki_dist.compat.beta1.typing",
        "neuronxcc.starfish.support.dtype": "nki_dist.compat.neuron_dtypes",
        "neuronxcc.starfish.support.util": "nki_dist.compat.starfish_util",
    }
)

# The same for packages that a program may have without the compiler; used only if they're missing.
# The simulator's package holds an `nki` of its own, which test harnesses alias themselves.
HELPERS = MappingProxyType(
    {
        "neuron_dtypes": "nki_dist.compat.neuron_dtypes",
        **{
            f"nki_cpu_simulator.{name}": target
            for name, target in ALIASES.items()
            if name.partition(".")[0] == "nki"
        },
    }
)

# AWS's runtime; used only if neither package is installed, as each would take the other for AWS's.
RUNTIME = MappingProxyType(
    {
        "spike": "nki_dist.compat.spike",
        "spike._spike": "nki_dist.compat.spike",
        "spike.spike_model": "nki_dist.compat.spike",
        "spike.spike_singleton": "nki_dist.compat.spike",
        "spike.spike_tensor": "nki_dist.compat.spike",
        "nkipy.runtime": "nki_dist.compat.nkipy_runtime",
        "nkipy.runtime.device_kernel": "nki_dist.compat.nkipy_runtime",
        "nkipy.runtime.device_tensor": "nki_dist.compat.nkipy_runtime",
        "nkipy.runtime.execute": "nki_dist.compat.nkipy_runtime",
    }
)

# PyTorch's devices, where there is a PyTorch. A real torch_xla is never replaced.
DEVICES = MappingProxyType(
    {
        "torch_xla": "nki_dist.compat.xla",
        "torch_xla.core.xla_model": "nki_dist.compat.xla",
        "torch_xla.debug.metrics": "nki_dist.compat.xla",
        "torch_neuronx": "nki_dist.compat.xla",
        "torch_neuronx.xla_impl.ops": "nki_dist.compat.xla",
    }
)


def install(force: bool = False, release: str | None = None) -> None:
    """Make `import nki` (and the rest of ALIASES, HELPERS and RUNTIME) give this package's modules.

    Beta 2 kernels also allocate through bare globals (`sbuf.view(dtype, shape)`), which AWS's
    compiler provided; they become builtins, unless the program has builtins of these names.

    Args:
        force: take the place of real packages, too.
        release: of NKI that this process's kernels are checked against, "0.6", "0.7" or "any";
            becomes NKI_DIST_RELEASE. By default what that says.

    Raises:
        LaunchError: a real `nki` or `neuronxcc` is installed or imported, and `force` is False; or
            there is no such release.
    """
    if release is not None:
        os.environ[RELEASE_VARIABLE] = release_name(release, "release")
    if not force:
        for package in ("nki", "neuronxcc"):
            _refuse_real(package)
    for name, target in ALIASES.items():
        _put(name, importlib.import_module(target))
    _put_missing(HELPERS, force)
    if _real("spike") is None and _real("nkipy") is None:
        _put_missing(RUNTIME, force=False)
        if not any(isinstance(finder, RuntimeOnly) for finder in sys.meta_path):
            sys.meta_path.append(RuntimeOnly())
    for name in ("sbuf", "psum", "hbm", "builtin"):
        if not hasattr(builtins, name):
            setattr(builtins, name, getattr(builtin, name, builtin))
    # Importing neuronxcc brings a level above all others; programs silence loggers with it.
    if not hasattr(logging, "OFF"):
        setattr(logging, "OFF", logging.CRITICAL + 10)  # noqa: B010 - no such name to type checkers
    if importlib.util.find_spec("torch") is not None:
        install_devices()


def install_devices(force: bool = False) -> None:
    """Make `import torch_xla` and `torch_neuronx` give the CPU, where they aren't installed.

    PyTorch's device strings "xla" and "xla:0" then mean the CPU, too.
    """
    _put_missing(DEVICES, force)
    if force or _real("torch_xla") is None:
        xla_is_cpu()


def _put_missing(table: Mapping[str, str], force: bool) -> None:
    for name, target in table.items():
        if force or _real(name.partition(".")[0]) is None:
            _put(name, importlib.import_module(target))


def _real(name: str) -> str | None:
    """Where a real package of this name is, or None if there is none or it's an alias of ours."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        ours = getattr(loaded, _MADE_HERE, False) or loaded.__name__.startswith("nki_dist")
        return None if ours else str(getattr(loaded, "__file__", "(no file)"))
    spec = importlib.util.find_spec(name)
    # A directory that happens to have the name is no package: AWS's documentation has an nki/.
    return None if spec is None or spec.origin is None else spec.origin


def _refuse_real(name: str) -> None:
    where = _real(name)
    if where is None:
        return
    if name in sys.modules:
        raise LaunchError(
            f"{name} has been imported already from {where}; install before importing it, or pass "
            "force=True",
            code="package-conflict",
        )
    raise LaunchError(
        f"a real {name} package is installed at {where}; pass force=True (--force) to use the "
        "simulator in its place",
        code="package-conflict",
    )


def _put(name: str, module: ModuleType) -> None:
    """Enter one alias, and the packages above it."""
    parent, _, child = name.rpartition(".")
    if parent and parent not in sys.modules:
        package = ModuleType(parent)
        package.__path__ = []
        setattr(package, _MADE_HERE, True)
        _put(parent, package)
    sys.modules[name] = module
    if parent:
        setattr(sys.modules[parent], child, module)
