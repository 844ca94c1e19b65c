"""torch CPU tensors as kernel arguments and results, without importing torch.

Invariant: a tensor and its array share memory wherever NumPy can express the layout, and bits are
never converted: types that NumPy lacks travel as integers of the same size.

A launch is opaque to torch.compile: the graph breaks around it, and neither the simulator nor the
kernel's own Python is traced by Dynamo. What records operations instead of computing (torch.jit,
make_fx, torch.func) is refused, as the result would be recorded as a constant.

Autograd can't know a kernel's derivative. Results of inputs that require gradients do so too, and
raise when a backward pass reaches them: silence would leave weights untrained. Inside
`torch.autograd.Function`, or under `no_grad`, nothing requires gradients. An input that the kernel
writes gets a new version, so that backward passes that saved it notice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import ml_dtypes
import numpy as np

from nki_dist.errors import LaunchError, NkiValidationError
from nki_dist.frameworks import numpy_arrays

name = "torch"

# torch's name of each type that NumPy lacks, with the type that stands for it there.
_EXTENSION_TYPES: Final = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in (
        *("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
        *("float8_e4m3fnuz", "float8_e5m2fnuz"),
    )
}
_SAME_SIZE: Final = {1: "uint8", 2: "int16"}


def _torch() -> ModuleType | None:
    """torch, if the program has imported it: nobody can hold a tensor otherwise."""
    return sys.modules.get("torch")


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, hidden from torch.compile where that is in use."""
    dynamo = sys.modules.get("torch._dynamo")
    disable = getattr(dynamo, "disable", None)  # missing while torch is still being imported
    return function if disable is None else disable(function)


# Dynamo looks for this mark on functions it is about to trace into; it's what `disable` sets, and
# setting it here needs no torch.
uncompiled._torchdynamo_disable = True  # type: ignore[attr-defined]


def without_derivative(name: str, inputs: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """The results, requiring gradients if an input does; backward raises a LaunchError.

    Args:
        name: of the kernel.
        inputs, results: arrays of any framework.
    """
    torch = _torch()
    if torch is None or not torch.is_grad_enabled():
        return list(results)
    sources = [t for t in inputs if owns(t) and t.requires_grad]
    places = [n for n, t in enumerate(results) if owns(t) and t.is_floating_point()]
    if not sources or not places:
        return list(results)

    base: Any = torch.autograd.Function

    class Launch(base):  # type: ignore[misc]  # made here because only users import torch
        @staticmethod
        def forward(ctx: Any, *sources: Any) -> Any:
            return tuple(results[n] for n in places)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            raise LaunchError(
                f"a backward pass reached a result of kernel {name}, whose derivative nobody gave; "
                "call the kernel in the forward of a torch.autograd.Function that has a backward, "
                "or detach its inputs",
                code="no-derivative",
            )

    results_by_place = dict(zip(places, Launch.apply(*sources), strict=True))
    return [results_by_place.get(n, result) for n, result in enumerate(results)]


def owns(value: Any) -> bool:
    tensor = getattr(_torch(), "Tensor", None)  # missing while torch is still being imported
    return tensor is not None and isinstance(value, tensor)


def _refuse_recording(torch: ModuleType) -> None:
    """A graph that torch records would hold the kernel's result as a constant."""
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    by_fx = proxies is not None and proxies.get_proxy_mode() is not None
    if by_fx or torch.jit.is_tracing():
        recorder = "torch.export or make_fx" if by_fx else "torch.jit.trace"
        raise LaunchError(
            f"a kernel was called inside {recorder}, which would record its result as a constant; "
            "call it outside, or use torch.compile, which breaks the graph around kernels",
            code="framework-transformation",
        )


def _refuse_tangent(torch: ModuleType, value: Any) -> None:
    """A kernel's result has no tangent, which forward-mode differentiation takes for zero.

    Inside an autograd.Function, whose `jvp` gives the derivative, nothing has one.
    """
    forward_ad = torch.autograd.forward_ad
    if forward_ad._current_level < 0 or not torch._C._is_fwd_grad_enabled():
        return
    if forward_ad.unpack_dual(value).tangent is not None:
        raise LaunchError(
            f"a kernel was given a tensor of shape {tuple(value.shape)} with a tangent "
            "(forward-mode differentiation), and nobody gave the kernel's derivative; call it in "
            "the forward of a torch.autograd.Function that has a jvp, or detach its inputs",
            code="no-derivative",
        )


def to_numpy(value: Any) -> np.ndarray:
    """The tensor's memory as an array (a copy only for lazily negated or conjugated tensors).

    Raises:
        LaunchError: the tensor isn't a dense CPU tensor, or torch is recording a graph.
        NkiValidationError: NumPy has no dtype for it.
    """
    torch = _torch()
    assert torch is not None, "nobody holds a tensor without having imported torch"
    _refuse_recording(torch)
    _refuse_tangent(torch, value)
    if value.device.type != "cpu" or value.layout is not torch.strided:
        raise LaunchError(
            f"kernel inputs must be dense CPU tensors, got a tensor of shape {tuple(value.shape)} "
            f"on {value.device} with layout {value.layout}; call .cpu() or .to_dense() first",
            code="array-kind",
        )
    plain = value.detach().resolve_conj().resolve_neg()
    name = str(value.dtype).removeprefix("torch.")
    extension = _EXTENSION_TYPES.get(name)
    try:
        if extension is None:
            return np.asarray(plain.numpy())
        integers = getattr(torch, _SAME_SIZE[extension.itemsize])
        return np.asarray(plain.view(integers).numpy().view(extension))
    except TypeError as error:
        raise NkiValidationError(
            f"dtype torch.{name} isn't supported: {error}", code="dtype-unknown"
        ) from None
    except RuntimeError as error:  # tensors without data: fake, meta, being traced by torch
        raise LaunchError(
            f"a {type(value).__name__} of shape {tuple(value.shape)} has no data ({error}); "
            "kernels can't be inside torch.func transformations, torch.export or fake tensor modes",
            code="array-without-data",
        ) from None


def like(array: np.ndarray) -> Any:
    """A tensor with the array's bits; shares the array's memory when it's writable and dense.

    Raises:
        LaunchError: torch has no such dtype.
    """
    torch = _torch()
    name = array.dtype.name
    extension = name in _EXTENSION_TYPES
    # float8_e4m3 is the case that matters: torch only has the variant without infinities.
    if not hasattr(torch, "bool" if name == "bool" else name):
        raise LaunchError(
            f"torch has no dtype for {name}; pass NumPy arrays to this kernel, or have it "
            "return the tensor viewed as unsigned integers",
            code="framework-dtype",
        )
    if not (array.flags.writeable and array.flags.c_contiguous):
        array = array.copy(order="C")
    if not extension:
        return torch.from_numpy(array)  # type: ignore[union-attr]
    integers = array.view(_SAME_SIZE[array.itemsize])
    return torch.from_numpy(integers).view(getattr(torch, name))  # type: ignore[union-attr]


def write_back(value: Any, array: np.ndarray) -> None:
    """Copy `array` into the tensor's memory.

    Raises:
        LaunchError: the tensor can't take it (lazily negated, elements sharing memory, ...).
    """
    if value.is_neg() or value.is_conj():
        raise LaunchError(
            f"the kernel writes to an input of shape {tuple(value.shape)} that is a lazily negated "
            "or conjugated view; pass a copy (x.clone())",
            code="input-read-only",
        )
    if value.requires_grad and _torch().is_grad_enabled():  # type: ignore[union-attr]
        raise LaunchError(
            f"the kernel writes to an input of shape {tuple(value.shape)} that requires gradients, "
            "which autograd wouldn't know; launch it under torch.no_grad(), or pass x.detach()",
            code="no-derivative",
        )
    numpy_arrays.write_back(to_numpy(value), array)
    _torch().autograd.graph.increment_version(value)  # type: ignore[union-attr]
