"""The data types of NKI, as objects that compare and convert like the NumPy types they stand for.

Invariant: there is one `DType` object per name in a process (pickling, copying and looking up give
that same object back), so identity decides the fast path and a name is enough to send a type
anywhere.

NumPy has no packed types. `np.zeros(shape, float8_e4m3fn_x4)` is an array of a structured dtype
whose one field has the type's name, so that it can't be taken for numbers: kernels know it again,
also after slicing, copying, pickling and saving, and arithmetic on it is NumPy's TypeError.

Not modelled: an array of tfloat32 is one of float32, and `np.dtype("float32") == tfloat32`, with
the NumPy dtype on the left, is answered by NumPy from that alone and is True.

Follows: AWS Neuron SDK, `nki/api/nki.api.shared.rst` ("Supported Data Types") and the data types
of `nki/api/nki/language/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np

from nki_dist.errors import invalid

# What `nl` has by these names, too.
__all__ = [
    "DType",
    "bfloat16",
    "bool_",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "int8",
    "int16",
    "int32",
    "int64",
    "tfloat32",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

_RAW: Final = {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}


class DType:
    """One NKI data type. Not to be constructed by callers: use the constants or `of`.

    Attributes:
        name: NKI's name for it, such as `"float32"`; `getattr(nl, name)` is this object.
        dtype: NumPy dtype of callers' arrays, which NumPy makes of this object: ml_dtypes' for
            bfloat16 and the 8-bit floats, for a packed type a structured one, else NumPy's own.
        storage: NumPy dtype that the simulator computes with: `dtype`, or for a packed type `raw`.
        raw: unsigned NumPy dtype of the same size, through which bits move untouched.
        itemsize: bytes per element; a packed type counts its four values as one element.
        bits: `8 * itemsize`.
        kind: `"float"`, `"int"`, `"uint"`, `"bool"` or `"mx"` (four packed values).
        is_float: whether it is a float; False for packed types.
        is_integer: whether it is a signed or unsigned integer.
        is_mx: whether an element is four packed values.
        min: smallest finite value, a Python number. For a packed type, of one of its four values.
        max: largest finite value, likewise.
    """

    name: str
    dtype: np.dtype[Any]
    storage: np.dtype[Any]
    raw: np.dtype[Any]
    itemsize: int
    bits: int
    kind: str
    is_float: bool
    is_integer: bool
    is_mx: bool
    min: float | int
    max: float | int

    def __init__(
        self, name: str, stored: Any, kind: str, low: float | int, high: float | int
    ) -> None:
        storage: np.dtype[Any] = np.dtype(stored)
        facts = {
            "name": name,
            "dtype": np.dtype([(name, storage)]) if kind == "mx" else storage,
            "storage": storage,
            "raw": _RAW[storage.itemsize],
            "itemsize": storage.itemsize,
            "bits": 8 * storage.itemsize,
            "kind": kind,
            "is_float": kind == "float",
            "is_integer": kind in ("int", "uint"),
            "is_mx": kind == "mx",
            "min": low,
            "max": high,
        }
        for key, value in facts.items():
            object.__setattr__(self, key, value)

    def __setattr__(self, key: str, value: Any) -> None:
        raise AttributeError(f"nki data type {self.name} is immutable; can't set {key!r}")

    def __delattr__(self, key: str) -> None:
        raise AttributeError(f"nki data type {self.name} is immutable; can't delete {key!r}")

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if isinstance(other, DType):
            return False  # one object per type
        return find(other) is self

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        # Equal to the hash of the name, so that a dict keyed by names is found by type and back.
        return hash(self.name)

    def __or__(self, other: object) -> Any:
        # Kernels write parameters as `x: nl.float32 | None`; the annotation is never evaluated.
        return Any

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"nki.language.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)

    def __reduce__(self) -> str:
        return self.name  # of this module


def _float(name: str, storage: Any, largest: float) -> DType:
    return DType(name, storage, "float", -largest, largest)


def _int(name: str) -> DType:
    info = np.iinfo(name)
    return DType(name, name, "uint" if name[0] == "u" else "int", int(info.min), int(info.max))


bool_: Final = DType("bool_", np.bool_, "bool", 0, 1)
int8: Final = _int("int8")
int16: Final = _int("int16")
int32: Final = _int("int32")
uint8: Final = _int("uint8")
uint16: Final = _int("uint16")
uint32: Final = _int("uint32")
float16: Final = _float("float16", np.float16, 65504.0)
float32: Final = _float("float32", np.float32, float(np.finfo(np.float32).max))
bfloat16: Final = _float("bfloat16", ml_dtypes.bfloat16, (2 - 2.0**-7) * 2.0**127)
tfloat32: Final = _float("tfloat32", np.float32, (2 - 2.0**-10) * 2.0**127)
float8_e4m3: Final = _float("float8_e4m3", ml_dtypes.float8_e4m3, 240.0)
float8_e4m3fn: Final = _float("float8_e4m3fn", ml_dtypes.float8_e4m3fn, 448.0)
float8_e5m2: Final = _float("float8_e5m2", ml_dtypes.float8_e5m2, 57344.0)
# An exponent: no sign, no zero.
float8_e8m0fnu: Final = DType(
    "float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, "float", 2.0**-127, 2.0**127
)
float8_e5m2_x4: Final = DType("float8_e5m2_x4", np.uint32, "mx", -57344.0, 57344.0)
float8_e4m3fn_x4: Final = DType("float8_e4m3fn_x4", np.uint32, "mx", -448.0, 448.0)
float4_e2m1fn_x4: Final = DType("float4_e2m1fn_x4", np.uint16, "mx", -6.0, 6.0)

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, DType))

# From NKI 0.7 on. They are moved, and loaded as NkiScalars; no engine computes with them.
int64: Final = _int("int64")
uint64: Final = _int("uint64")
# What values are followed in beside a kernel (insight.drift); no tensor of a kernel has it.
float64: Final = _float("float64", np.float64, float(np.finfo(np.float64).max))
WIDE: Final = (int64, uint64)


def _objects() -> Mapping[Any, DType]:
    table: dict[Any, DType] = {bool: bool_, int: int32, float: float32}
    for dt in (*ALL, *WIDE):
        if dt is not tfloat32:  # NumPy's float32 means float32
            table[dt.dtype] = dt
        if dt is not tfloat32 and not dt.is_mx:  # structured dtypes share one scalar type
            table[dt.dtype.type] = dt
    return MappingProxyType(table)


_BY_NAME: Final = MappingProxyType({dt.name: dt for dt in (*ALL, *WIDE)} | {"bool": bool_})
_BY_OBJECT: Final = _objects()
of_numpy: Final = _BY_OBJECT.get  # the NKI type that a NumPy dtype is, or None


def find(x: Any) -> DType | None:
    """The NKI type `x` stands for, or None: `of` without the error."""
    if isinstance(x, DType):
        return x
    if isinstance(x, str):
        return _BY_NAME.get(x) or _BY_NAME.get(x.rpartition(".")[2])
    try:
        named = _BY_OBJECT.get(x)
    except TypeError:  # unhashable, so not a type
        return None
    if named is not None or isinstance(x, np.dtype):
        return named
    return _find_foreign(x)


def _find_foreign(x: Any) -> DType | None:
    """Dtype objects of frameworks, recognised by what they say about themselves."""
    module = type(x).__module__.partition(".")[0]
    if module == "torch":
        return _BY_NAME.get(str(x).removeprefix("torch."))
    # jax.numpy.float32 and its kin are objects that carry the NumPy dtype. Arrays and tensors have
    # a dtype too, but they aren't one.
    if hasattr(x, "shape"):
        return None
    inner = getattr(x, "dtype", None)
    if isinstance(inner, np.dtype):
        return _BY_OBJECT.get(inner)
    return None


def of(x: Any) -> DType:
    """The NKI data type that `x` stands for.

    Accepts a `DType`, a name (`"bfloat16"`, or any dotted name that ends in one), a NumPy or
    ml_dtypes dtype or scalar type, a torch or jax dtype, and Python's `bool`, `int` (int32) and
    `float` (float32).

    Raises:
        NkiValidationError: `x` stands for no NKI type (float64 is the usual case).
    """
    if x.__class__ is DType:
        return x
    found = find(x)
    if found is None:
        message = f"data type must be one of NKI's: got {x!r}, allowed " + ", ".join(
            d.name for d in (*ALL, *WIDE)
        )
        raise invalid(message, code="dtype-unknown")
    return found
