"""nki-library's test harness and arrays of packed types.

AWS's NumPy types of that kind are built in C: they print as their name, and don't convert to
float32, upon which the harness compares the values inside. Ours are structured dtypes, which print
as such and would be compared as words. So the harness gets what it looks for from here.

The MX kernels of moe_tkg ask weights for `base_tensor`, which the library's views of tensors have
and tensors don't; their tests pass tensors.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import numpy as np

from nki_dist import dtypes
from nki_dist.compat.neuron_dtypes import static_cast
from nki_dist.language.tensor import NkiTensor


def install() -> None:
    """After the harness has been imported, before its tests are."""
    itself = property(lambda tensor: tensor)
    mock.patch.object(NkiTensor, "base_tensor", itself, create=True).start()
    references = sys.modules.get("nkilib_src.nkilib.core.utils.mx_torch_common")
    if references is not None:
        references.quantize_to_mx = _with_nki_type(references.quantize_to_mx)
    module = sys.modules.get("test.utils.output_validator")
    if module is not None:
        validator = module.OutputValidator
        validator._compare_outputs = _on_values(validator._compare_outputs)


def _with_nki_type(quantize: Any) -> Any:
    """The reference's `quantize_to_mx`, also for the dtype of an array."""

    def quantized(data: Any, dtype: Any) -> Any:
        return quantize(data, dtypes.of(dtype))

    return quantized


def _on_values(compare: Any) -> Any:
    def compared(
        self: Any, actual: dict[str, Any], golden: dict[str, Any], *args: Any, **options: Any
    ) -> Any:
        return compare(self, _unpacked(actual), _unpacked(golden), *args, **options)

    return compared


def _unpacked(arrays: dict[str, Any]) -> dict[str, Any]:
    """float32 values in place of arrays of packed types; anything else as it is."""
    return {name: static_cast(a, np.float32) if _packed(a) else a for name, a in arrays.items()}


def _packed(value: Any) -> bool:
    found = dtypes.find(value.dtype) if isinstance(value, np.ndarray) else None
    return found is not None and found.is_mx
