"""Files of arrays (.npy) that keep the types which NumPy doesn't know by itself.

`np.save` writes bfloat16 and most float8 types as bytes without a type (`V2`, `V1`), and `np.load`
gives them back as such. Here the header has the type's name instead, so `np.load` gives the type
wherever `ml_dtypes` has been imported (`nki_dist` does it), and says that it doesn't know the name
elsewhere. Files of NumPy's own types are those that `np.save` writes.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from numpy.lib import format as npy


def save_array(file: str | PathLike[str], array: np.ndarray[Any, Any]) -> None:
    """Write an array so that `np.load` gives it back with its type.

    Args:
        file: its path, with its suffix.
        array: of any shape; packed MX types are saved as the structured types that they are.

    Raises:
        OSError: the file can't be written.
    """
    with open(file, "wb") as opened:
        if _known(array.dtype):
            npy.write_array(opened, array, allow_pickle=False)
            return
        # The shape comes from the argument: ascontiguousarray makes a scalar an array of one.
        header = {"descr": array.dtype.name, "fortran_order": False, "shape": array.shape}
        npy.write_array_header_1_0(opened, header)
        opened.write(np.ascontiguousarray(array).tobytes())


def _known(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy would read back what it writes for a type."""
    try:
        return npy.descr_to_dtype(npy.dtype_to_descr(dtype)) == dtype
    except TypeError:  # it writes `<f1` for float8_e5m2, which it can't read
        return False
