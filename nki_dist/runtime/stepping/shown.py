"""Values of a tensor as text: short enough to read, with what nobody has written left out."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nki_dist import frameworks

UNWRITTEN: Final = "--"
WIDTH: Final = 9  # of a number with three digits, sign and exponent


def shown(values: np.ndarray[Any, Any], unwritten: np.ndarray[Any, np.dtype[np.bool_]]) -> str:
    """Rows of numbers; of a large array the corners, as NumPy's `print` has it.

    Args:
        values: of any dtype of NKI; floats are shown with three significant digits.
        unwritten: of the same shape: elements to be shown as `--`.
    """
    plain = frameworks.plain(values)
    real = plain.dtype.kind == "f"
    cells = plain.astype(object)
    cells[unwritten] = None

    def cell(value: Any) -> str:
        text = f"{value:.3g}" if real and value is not None else str(value)
        return (UNWRITTEN if value is None else text).rjust(WIDTH if real else 1)

    return np.array2string(cells, max_line_width=100, formatter={"all": cell})
