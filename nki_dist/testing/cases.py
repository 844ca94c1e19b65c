"""Cases: the arguments that a kernel is tried with, given or made from shapes and a seed.

Invariant: a case with a seed and a distribution makes the same arrays on every machine, and other
arrays for every seed, distribution and argument: equal data hides mix-ups, and an answer that was
remembered from other data is wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist import dtypes
from nki_dist.dtypes import DType
from nki_dist.errors import LaunchError
from nki_dist.testing.report import Limits

Array: TypeAlias = "np.ndarray[Any, Any]"
Shape: TypeAlias = "tuple[int, ...]"
Data: TypeAlias = "str | Callable[[np.random.Generator, Shape, np.dtype[Any]], Any]"


# ---- distributions ------------------------------------------------------------------------------


def _wide(rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    # Sums of products of two such values don't overflow, nor do the tiles of a right kernel.
    reach = 8 if dtype.max > 1e9 else 4
    return rng.standard_normal(shape) * np.exp2(rng.integers(-reach, reach + 1, shape))


def _zeros(rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    return np.where(rng.random(shape) < 0.5, 0.0, rng.standard_normal(shape))


def _special(rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    values = rng.standard_normal(shape)
    chosen = rng.integers(0, 20, shape)
    for n, value in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0)):
        values[chosen == n] = value
    return values


DISTRIBUTIONS: Final = MappingProxyType(
    {
        "normal": lambda rng, shape, _: rng.standard_normal(shape),
        "wide": _wide,
        "negative": lambda rng, shape, _: -np.abs(rng.standard_normal(shape)) - 0.5,
        "positive": lambda rng, shape, _: np.abs(rng.standard_normal(shape)) + 0.5,
        "zeros": _zeros,
        "special": _special,
    }
)
DATA: Final = ("normal", "wide", "negative", "zeros")
"""Distributions that cases are tried with unless they say otherwise."""

_INTEGERS: Final = 100  # what 1.0 of a distribution is for integers


def integers(low: int, high: int) -> Data:
    """Uniform integers from `low` to `high - 1`, for indices and such: `data={"rows": ...}`."""
    if not low < high:
        raise LaunchError(
            f"integers({low}, {high}); there is no integer from {low} to {high - 1}",
            code="check-case",
        )

    def drawn(rng: np.random.Generator, shape: Shape, dtype: np.dtype[Any]) -> Array:
        return rng.integers(low, high, shape).astype(dtype)

    drawn.__name__ = f"integers({low}, {high})"
    return drawn


def _draw(data: Data, rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    if callable(data):
        array = np.asarray(data(rng, shape, dtype.dtype))
        if array.shape != shape:
            raise LaunchError(
                f"{data!r} made data of shape {array.shape}, asked for {shape}",
                code="check-case",
                numbers={"got": array.shape, "allowed": shape},
            )
        return array.astype(dtype.dtype)
    values: Array = DISTRIBUTIONS[data](rng, shape, dtype)
    if dtype.kind == "bool":
        return np.asarray(values > 0)
    with np.errstate(all="ignore"):
        if dtype.is_integer:
            # fmin and fmax rather than clip: integers have no NaN, so it becomes the smallest.
            values = np.fmax(np.fmin(np.rint(values * _INTEGERS), dtype.max), dtype.min)
        else:
            finite = np.isfinite(values)
            values = np.where(finite, np.clip(values, dtype.min, dtype.max), values)
        return values.astype(dtype.dtype)


# ---- cases --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Arguments to try a kernel with.

    Args:
        shapes: of arrays to be made: {parameter: shape}, or a list of shapes for the first
            parameters. A shape is a tuple of positive ints.
        dtypes: of these arrays: one for all, or {parameter: dtype} with float32 for the others;
            with a list of shapes, a list.
        data: a distribution for all of them ("normal", "wide": over 16 powers of two, 8 in small
            types, "negative", "positive", "zeros": half of them, "special": some NaN and
            infinities), or a function of (generator, shape, dtype), or {parameter: either}. Where
            it says nothing, the case is tried with each `data` of `check_kernel`. Integers are 100
            times as large and rounded, within their range.
        seed: of the data; `check_kernel` tries several where it says nothing.
        args, kwargs: further arguments as they are: arrays, and values known at compile time.
        rtol, atol: as of `check_kernel`, for this case.
        limits: likewise.
        name: what reports call it.

    Raises:
        LaunchError: a shape, dtype or distribution that there isn't.
    """

    shapes: Mapping[str, Shape] | Sequence[Shape] = ()
    dtypes: Any = "float32"
    data: Any = None
    seed: int | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    rtol: float | None = None
    atol: float | None = None
    limits: Limits | None = None
    name: str = ""

    def __post_init__(self) -> None:
        for key, shape in self._shapes():
            if not isinstance(shape, (tuple, list)) or not all(map(_positive_int, shape)):
                raise LaunchError(
                    f"shape {shape!r} of {key}; allowed: a tuple of positive ints",
                    code="check-case",
                )
            if self._dtype(key).is_mx:
                raise LaunchError(
                    f"{key} is {self._dtype(key).name}, for which there is no random data; pass an "
                    "array in args or kwargs",
                    code="check-case",
                )
            self._data(key)
        names = {key for key, _ in self._shapes()}
        for what in (self.dtypes, self.data):
            if isinstance(what, Mapping) and not what.keys() <= names:
                extra = sorted(map(str, what.keys() - names))
                raise LaunchError(
                    f"{', '.join(extra)} has no shape; shapes has {sorted(names)}",
                    code="check-case",
                )
        if self.seed is not None and not (isinstance(self.seed, int) and self.seed >= 0):
            raise LaunchError(
                f"seed={self.seed!r}; allowed: 0 and positive ints", code="check-case"
            )

    @property
    def generated(self) -> bool:
        """Whether arrays are made for it."""
        return bool(self.shapes)

    def variants(self, seeds: Iterable[int], data: Iterable[Data]) -> Iterator[Case]:
        """The case with every seed and distribution that it leaves open."""
        if not self.generated:
            yield self
            return
        # Of a mapping, what it doesn't mention is open.
        open_names = not isinstance(self.data, Mapping) or len(self.data) < len(self.shapes)
        choices = list(data) if self.data is None or isinstance(self.data, Mapping) else [self.data]
        if not open_names:
            choices = choices[:1]
        for choice in choices:
            chosen: Any = choice
            if isinstance(self.data, Mapping):
                chosen = {key: self.data.get(key, choice) for key, _ in self._shapes()}
            for seed in seeds if self.seed is None else (self.seed,):
                yield replace(self, data=chosen, seed=seed)

    def inputs(self, rank: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments.

        Args:
            rank: whose; made arrays differ between ranks.
        """
        arrays = {key: self._array(key, tuple(shape), rank) for key, shape in self._shapes()}
        named = {key: array for key, array in arrays.items() if isinstance(key, str)}
        first = tuple(array for key, array in arrays.items() if not isinstance(key, str))
        return (*first, *self.args), {**named, **self.kwargs}

    def _shapes(self) -> list[tuple[Any, Any]]:
        if isinstance(self.shapes, Mapping):
            return list(self.shapes.items())
        return list(enumerate(self.shapes))

    def _dtype(self, key: Any) -> DType:
        given = self.dtypes
        if isinstance(given, Mapping):
            given = given.get(key, "float32")
        elif isinstance(given, (list, tuple)):
            if len(given) != len(self.shapes):
                raise LaunchError(
                    f"{len(given)} dtypes for {len(self.shapes)} shapes",
                    code="check-case",
                    numbers={"got": len(given), "allowed": len(self.shapes)},
                )
            given = given[key] if isinstance(key, int) else given[list(self.shapes).index(key)]
        return dtypes.of(given)

    def _data(self, key: Any = None) -> Data:
        given = self.data.get(key) if isinstance(self.data, Mapping) else self.data
        given = "normal" if given is None else given
        if not callable(given) and given not in DISTRIBUTIONS:
            raise LaunchError(
                f"data={given!r}; allowed: {', '.join(DISTRIBUTIONS)}, or a function of a "
                "numpy.random.Generator, a shape and a dtype",
                code="check-case",
            )
        return given

    def _array(self, key: Any, shape: Shape, rank: int) -> Array:
        data = self._data(key)
        which = zlib.crc32(f"{key} {label(data)}".encode())
        rng = np.random.default_rng([self.seed or 0, which, rank])
        return _draw(data, rng, shape, self._dtype(key))

    def __str__(self) -> str:
        parts = [self.name] if self.name else []
        for key, shape in self._shapes():
            dtype = self._dtype(key)
            text = "x".join(map(str, shape)) + ("" if dtype.name == "float32" else f" {dtype.name}")
            parts.append(f"{key}={text}" if isinstance(key, str) else text)
        parts += [_short(value) for value in self.args]
        parts += [f"{name}={_short(value)}" for name, value in self.kwargs.items()]
        return " ".join(parts)

    @property
    def data_text(self) -> str:
        """What its arrays are made of; empty if it makes none."""
        if not self.generated:
            return ""
        if isinstance(self.data, Mapping):
            shown = ",".join(f"{key}:{label(d)}" for key, d in self.data.items())
        else:
            shown = label(self._data())
        return f"data={shown} seed={self.seed or 0}"


def label(data: Data) -> str:
    """What a distribution is called."""
    return data if isinstance(data, str) else getattr(data, "__name__", type(data).__name__)


def _positive_int(n: Any) -> bool:
    return isinstance(n, (int, np.integer)) and not isinstance(n, bool) and bool(n > 0)


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype"):
        return f"{'x'.join(map(str, shape))} {value.dtype}"
    text = repr(value)
    return text if len(text) <= 30 else text[:27] + "..."


def as_case(value: Any) -> Case:
    """A case as users write it: a Case, a tuple of arguments or a dict of them."""
    if isinstance(value, Case):
        return value
    if isinstance(value, Mapping):
        return Case(kwargs=dict(value))
    if isinstance(value, (tuple, list)):
        return Case(args=tuple(value))
    raise LaunchError(
        f"{type(value).__name__} as a case; allowed: a Case, a tuple of arguments, or a dict of "
        "arguments by name",
        code="check-case",
    )


# ---- odd sizes ----------------------------------------------------------------------------------


def odd_sizes(size: int) -> list[int]:
    """Sizes near and below one where kernels go wrong: 1, a prime, one less, one more.

    Args:
        size: where the kernel is at home, such as 512.
    """
    if not _positive_int(size):
        raise LaunchError(f"odd_sizes({size!r}); allowed: a positive int", code="check-case")
    prime = next((n for n in range(max(2, size * 3 // 4), 1, -1) if _is_prime(n)), 1)
    return [n for n in dict.fromkeys((1, prime, size - 1, size + 1)) if n >= 1 and n != size]


def odd_shapes(shape: Sequence[int], axes: Iterable[int] | None = None) -> list[Shape]:
    """A shape, then each of its axes at odd sizes, then all of them at once.

    Several arguments share sizes: `[Case({"x": (m, k), "w": (k, n)}) for m, k, n in
    odd_shapes((128, 256, 512))]`.

    Args:
        shape: where the kernel is at home.
        axes: those that may change; all by default.

    Returns:
        The shapes, the given one first, without repetitions.
    """
    chosen = range(len(shape)) if axes is None else [range(len(shape))[axis] for axis in axes]
    sizes = {axis: odd_sizes(shape[axis]) for axis in chosen}
    found = [tuple(shape)]
    for axis, odd in sizes.items():
        found += [tuple(n if a == axis else s for a, s in enumerate(shape)) for n in odd]
    for which in (0, -1, 1):  # all ones, all one more, all primes
        found.append(
            tuple(
                sizes[a][which % len(sizes[a])] if sizes.get(a) else s for a, s in enumerate(shape)
            )
        )
    return list(dict.fromkeys(found))


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))
