"""What to write instead of an array whose dtype NKI has no type for.

NeuronCores have no 64-bit types, but Python's numbers become 64-bit arrays, so this is the first
refusal that many meet. The advice is an expression of the array's own library.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nki_dist.frameworks import jax_arrays, torch_tensors

_NARROWER: Final = {"f": "float32", "i": "int32", "u": "uint32"}
_WHOLE: Final = " (values must fit in 32 bits)"


def remedy(name: str, value: Any, dtype: np.dtype) -> str:
    """What to pass in place of an array.

    Args:
        name: what the kernel calls it.
        value: the array, of any library.
        dtype: its type as NumPy knows it, which isn't one of NKI's.
    """
    kind = dtype.kind
    if kind == "c":
        return f"{name}.real and {name}.imag as two arguments"
    if kind in "fiu" and not dtype.isnative and dtype.itemsize < 8:
        return f"{name}.astype({name}.dtype.newbyteorder('='))"
    if kind in _NARROWER:
        narrow = _NARROWER[kind]
        text = _cast(name, value, narrow) + ("" if kind == "f" else _WHOLE)
        if np.ndim(value) == 0 and isinstance(value, np.ndarray):
            number = "float" if kind == "f" else "int"
            text += f", or {number}({name}) for a number that is known when the kernel is compiled"
        return text
    if kind == "O":
        return f"np.array({name}, dtype=np.float32): this one holds Python objects"
    if kind in "SU":
        return f"numbers: {name} holds text"
    if kind in "Mm":
        return f"{name}.astype(np.int64).astype(np.int32){_WHOLE}"
    if dtype.names:
        return f"each field as an argument of its own: {name}[{dtype.names[0]!r}], ..."
    return _cast(name, value, "float32")


def _cast(name: str, value: Any, dtype: str) -> str:
    if torch_tensors.owns(value):
        method = {"float32": "float()", "int32": "int()"}.get(dtype, f"to(torch.{dtype})")
        return f"{name}.{method}"
    module = "jnp" if jax_arrays.owns(value) else "np"
    return f"{name}.astype({module}.{dtype})"
