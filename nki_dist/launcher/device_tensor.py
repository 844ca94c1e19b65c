"""`nki.DeviceTensor`: a tensor that stays in the HBM of each rank of a world, between launches.

The names are those of AWS's runtime (nkipy's `DeviceTensor`, spike's `SpikeTensor`). Where it lies
is for `residence`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from nki_dist import dtypes, frameworks
from nki_dist.dtypes import DType
from nki_dist.errors import LaunchError, NkiError, TensorSizeError
from nki_dist.hbm.layout import Given, as_array
from nki_dist.hbm.regions import Block
from nki_dist.launcher.binding import PerRank, is_array, of_rank, take_array
from nki_dist.launcher.in_hbm import InHbm


class DeviceTensor(InHbm):
    """A tensor in the HBM of each rank of a world; `World.put` and launches make them.

    It is freed when nobody has it, by `free()`, and with its world. A kernel that gets one reads
    and writes it where it is, and what such a kernel returns are DeviceTensors. Made by
    `from_numpy`, outside of a world, it lives where `kernel[n](...)` is launched.

    Attributes:
        shape: of each rank's part.
        dtype: NumPy's, ml_dtypes included.
        name: in messages and `World.residents()`.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        name: str,
        home: Any = None,
        alone: bool = False,
    ) -> None:
        super().__init__(shape, dtype, name)
        self._home, self._alone = home, alone  # a Residence; whether it reads as one array
        self._block: Block | None = None
        self._values: list[np.ndarray] | None = None  # of one that isn't in HBM yet
        self._restore: Any = None  # gives the values, while nothing has been written since
        self._error: BaseException | None = None  # why there is no value

    # ---- made outside of a world -----------------------------------------------------------------

    @classmethod
    def from_numpy(cls, array: np.ndarray, name: str | None = None, core_id: int = 0) -> Any:
        """A tensor with the contents of an array, for launches outside of a world.

        Args:
            array: of any dtype that NKI has.
            name: for messages.
            core_id: as AWS's; there is one simulated rank.

        Raises:
            NkiValidationError: NKI has no such dtype.
        """
        taken = _taken(name or "array", array)
        tensor = cls(taken.shape, dtypes.of(taken.dtype), name or "tensor", alone=True)
        tensor._values = [np.array(taken, order="C")]
        return tensor

    @classmethod
    def from_torch(cls, tensor: Any, name: str | None = None, core_id: int = 0) -> Any:
        """As `from_numpy`, of a CPU tensor of torch."""
        return cls.from_numpy(tensor, name, core_id)

    # ---- values ----------------------------------------------------------------------------------

    def numpy(self) -> Any:
        """Copies of its contents: a list by rank, or one array if it was made outside of a world.

        Waits for the launches before.

        Raises:
            NkiError: the launch that was to write it failed, or an earlier one whose error nobody
                has seen.
            LaunchError: it is freed, its world closed or dry.
            CoreLostError: it was lost with a process or node.
        """
        values: list[np.ndarray] = self._read()
        return values[0] if self._alone else values

    def torch(self) -> Any:
        """As `numpy`, as tensors of torch."""
        import torch

        like = frameworks.describe(torch.empty(0))
        values = [frameworks.like(like, a) for a in self._read()]
        return values[0] if self._alone else values

    def write_from_numpy(self, array: Any) -> None:
        """Write it anew, after the launches before.

        Args:
            array: of its shape and dtype, for all ranks, or `nki.per_rank(...)`.

        Raises:
            TensorSizeError: another shape or dtype; nothing is written.
        """
        ranks = 1 if self._home is None else self._home.ranks
        values = values_by_rank(array, ranks, self.name)
        first = values[0]
        assert isinstance(first, np.ndarray)
        self._check_fits(first)
        if self._values is not None:
            self._refuse_freed()
            self._values = [np.array(as_array(v), order="C") for v in values]
        else:
            self._at_home().write(self, values)

    def write_from_torch(self, tensor: Any) -> None:
        """As `write_from_numpy`, from a CPU tensor of torch."""
        self.write_from_numpy(tensor)

    def free(self) -> None:
        """Give its memory back, after the launches before. Idempotent."""
        if self._home is not None:
            self._home.free(self)
        self._values = self._restore = None
        self._error = LaunchError(
            f"tensor {self.name} was freed; put it again with world.put", code="tensor-freed"
        )

    @property
    def nbytes(self) -> int:
        """Bytes in each rank's HBM."""
        return self.hollow.size * self._dtype.itemsize

    def _read(self) -> list[np.ndarray]:
        if self._values is not None:
            return [v.copy() for v in self._values]
        values: list[np.ndarray] = self._at_home().read(self)
        return values

    def _at_home(self) -> Any:
        self._refuse_freed()
        assert self._home is not None
        return self._home

    def _refuse_freed(self) -> None:
        error = self._error
        if isinstance(error, NkiError) and error.code == "tensor-freed":
            raise error.with_traceback(None)

    def _check_fits(self, value: np.ndarray) -> None:
        if value.shape != self.shape or value.dtype != self.hollow.dtype:
            raise TensorSizeError(
                f"Size mismatch: an array of shape {value.shape} and dtype {value.dtype} "
                f"({value.nbytes} bytes) for tensor {self.name} of shape {self.shape} and dtype "
                f"{self.dtype} ({self.nbytes} bytes)",
                code="tensor-size",
                numbers={"got": value.shape, "allowed": self.shape},
            )

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise self._not_here("NumPy was given it as an array")

    def __reduce__(self) -> Any:
        raise self._not_here("can't be copied or pickled as a Python object")

    def _not_here(self, why: str) -> LaunchError:
        return LaunchError(
            f"tensor {self.name} is in HBM, and {why}",
            code="tensor-as-array",
            hint="write tensor.numpy(), which copies it from there",
        )

    def __repr__(self) -> str:
        return f"DeviceTensor(shape={self.shape}, dtype={self.dtype}, name={self.name})"


def values_by_rank(value: Any, ranks: int, name: str) -> list[Given]:
    """An array for each rank, of one shape and dtype; the same one where they don't differ.

    What a function of the rank gives is made when it is called, but for rank 0's.

    Raises:
        LaunchError: it is no array, or ranks differ.
        NkiValidationError: NKI has no such dtype.
    """
    if not isinstance(value, PerRank):
        return [_taken(name, value)] * ranks
    first = _taken(name, of_rank(value, 0, ranks))
    cache: dict[int, np.ndarray] = {}

    def of(rank: int) -> np.ndarray:
        given = of_rank(value, rank, ranks)
        if id(given) not in cache:
            found = _taken(name, given)
            if (found.shape, found.dtype) != (first.shape, first.dtype):
                raise LaunchError(
                    f"tensor {name} is {first.shape} {first.dtype} on rank 0 and {found.shape} "
                    f"{found.dtype} on rank {rank}; all ranks have one shape and dtype",
                    code="ranks-differ",
                    numbers={"rank": rank},
                )
            if callable(value.values):
                return found
            cache[id(given)] = found
        return cache[id(given)]

    if callable(value.values):
        return [first, *(partial(of, rank) for rank in range(1, ranks))]
    return [of(rank) for rank in range(ranks)]


def _taken(name: str, value: Any) -> np.ndarray:
    if not is_array(value) or isinstance(value, DeviceTensor):
        raise LaunchError(
            f"{type(value).__name__} for tensor {name}; allowed: an array of NumPy, torch or jax",
            code="tensor-kind",
        )
    array, shape, _ = take_array("world.put", name, value)
    return array.reshape(shape)
