"""`spike`, AWS's runtime: tensors stay in HBM as `nki.DeviceTensor`, and there are no NEFFs.

`SpikeTensor` is `DeviceTensor`. What `Spike` allocates are bytes of this process, which no kernel
sees: on a device only compiled kernels (NEFFs) take them. Whatever a `core_id` says, a process is
one simulated rank. `reset` frees what the runtime allocated; DeviceTensors aren't its, and stay.

Names and arguments are those of aws-neuron/nkipy.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NoReturn

import numpy as np

from nki_dist.compat.compiler import CompiledKernel, only_for_hardware
from nki_dist.compiler.locations import users_line
from nki_dist.errors import LaunchError, NkiError, OutOfBoundsError
from nki_dist.launcher.device_tensor import DeviceTensor

CORES_VARIABLE: Final = "NEURON_RT_VISIBLE_CORES"

SpikeTensor = DeviceTensor
SpikeRuntimeError = SpikeError = NrtError = NkiError


class SpikeModel(CompiledKernel):
    """A loaded NEFF; can't be made."""

    @classmethod
    def load_from_neff(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises LaunchError."""
        only_for_hardware(f"{cls.__name__}.load_from_neff")


class NrtModel(CompiledKernel):
    """The same, of the lower level."""


class SystemTraceSession(CompiledKernel):
    """A trace of a device; can't be made."""


class SpikeProfiler(CompiledKernel):
    """A profiler of NEFFs; can't be made."""


@dataclass(frozen=True)
class TensorMetadata:
    """Of an input or output: bytes, name of the dtype, shape."""

    size: int
    dtype: str
    shape: list[int]


@dataclass(frozen=True)
class BenchmarkResult:
    """What a benchmark measured, in simulated milliseconds."""

    mean_ms: float
    min_ms: float
    max_ms: float
    std_dev_ms: float
    iterations: int
    warmup_iterations: int
    durations_ms: list[float]


class NrtTensor:
    """Memory that a `Spike` allocated.

    Attributes:
        size: in bytes.
    """

    def __init__(self, data: np.ndarray, core_id: int, name: str) -> None:
        self.core_id, self.name, self.size = core_id, name, data.size
        self._data: np.ndarray | None = data


class Spike:
    """The runtime: memory that is allocated, written, read and freed.

    An offset is in bytes, and a size of 0 means all from there on. What was freed, or whose runtime
    is closed, is a LaunchError; what is outside of a tensor an OutOfBoundsError.
    """

    def __init__(self, verbose_level: int = 0) -> None:
        self._closed = False

    @staticmethod
    def get_visible_neuron_core_count() -> int:
        """How many cores NEURON_RT_VISIBLE_CORES lists, such as "0-3,8"; 1 without it.

        Raises:
            LaunchError: it is no such list.
        """
        text = os.environ.get(CORES_VARIABLE, "0")
        try:
            spans = [list(map(int, part.split("-"))) for part in text.split(",")]
        except ValueError:
            message = f"{CORES_VARIABLE}={text!r}; allowed: numbers and ranges, such as 0-3,8"
            raise LaunchError(message, code="setting-value") from None
        return len({n for span in spans for n in range(span[0], span[-1] + 1)})

    def close(self) -> int:
        """Free all that it allocated; 0."""
        self._closed = True
        return 0

    def allocate_tensor(self, size: int, core_id: int = 0, name: str | None = None) -> NrtTensor:
        """`size` bytes of 0."""
        return NrtTensor(np.zeros(size, np.uint8), core_id, name or "")

    def slice_from_tensor(
        self, source: NrtTensor, offset: int = 0, size: int = 0, name: str | None = None
    ) -> NrtTensor:
        """Part of a tensor, which shares its memory."""
        return NrtTensor(self._part(source, offset, size), source.core_id, name or "")

    def free_tensor(self, tensor: NrtTensor) -> None:
        """Let go of it; slices keep their memory."""
        tensor._data = None

    def tensor_write(self, tensor: NrtTensor, data: Any, offset: int = 0) -> None:
        """Write a buffer: bytes, or an array."""
        given = np.frombuffer(data, np.uint8)
        self._part(tensor, offset, given.size)[:] = given

    def tensor_read(self, tensor: NrtTensor, offset: int = 0, size: int = 0) -> bytes:
        """What is there."""
        return self._part(tensor, offset, size).tobytes()

    tensor_write_from_pybuffer = tensor_write

    def tensor_read_to_pybuffer(
        self, tensor: NrtTensor, buffer: Any, offset: int = 0, size: int = 0
    ) -> None:
        """Read to the beginning of a writable buffer; a size of 0 means as much as it holds."""
        into = np.frombuffer(buffer, np.uint8)
        into[: size or None] = self._part(tensor, offset, size or into.size)

    def load_model(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises LaunchError, as do the other functions of models."""
        only_for_hardware("a model of spike")

    unload_model = execute = get_tensor_info = load_model

    def _part(self, tensor: NrtTensor, offset: int, size: int) -> np.ndarray:
        end = offset + size if size else tensor.size
        if self._closed or tensor._data is None:
            raise LaunchError(
                f"tensor {tensor.name} was freed, or its runtime closed; allocate it again",
                location=users_line(),
                code="tensor-freed",
                hint="",
            )
        if not 0 <= offset <= end <= tensor.size:
            raise OutOfBoundsError(
                f"bytes {offset} to {end} of tensor {tensor.name}, which has {tensor.size}",
                location=users_line(),
                code="access-range",
                hint="stay within the tensor",
            )
        return tensor._data[offset:end]


@lru_cache(maxsize=1)
def get_spike_singleton() -> Spike:
    """The runtime of this process."""
    return Spike()


def configure(visible_cores: Iterable[int] | None = None) -> None:
    """Set NEURON_RT_VISIBLE_CORES, before the runtime is first used or after `reset`.

    Raises:
        LaunchError: the runtime is in use.
    """
    if get_spike_singleton.cache_info().currsize:
        message = "spike.configure while the runtime is in use; call spike.reset() first"
        raise LaunchError(message, location=users_line(), code="world-option")
    if visible_cores is not None:
        os.environ[CORES_VARIABLE] = ",".join(map(str, visible_cores))


def reset() -> None:
    """Close the runtime, if it is in use, and warn of that; the next use makes another."""
    if get_spike_singleton.cache_info().currsize:
        warnings.warn("spike.reset() has freed what the runtime allocated", stacklevel=2)
        get_spike_singleton().close()
        get_spike_singleton.cache_clear()
