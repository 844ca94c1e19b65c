"""Where `nl.device_print` goes: the driver's stdout, and files if the environment asks for them.

With NEURON_RT_DEBUG_OUTPUT_DIR set, every print is also saved as
`<dir>/<prefix>/core_<logical core>/<iteration>/tensor.npy`: AWS's directories, the file's name and
format are ours. `np.load` gives arrays back with their dtype, bfloat16 and float8 included, where
`nki_dist` or `ml_dtypes` has been imported. Iterations count the prints of a prefix on a core, over
all launches of the process. The second physical core of a logical one saves `tensor_lnc1.npy`
beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nki_dist import frameworks
from nki_dist.dtypes.npy import save_array
from nki_dist.errors import LaunchError

DIRECTORY_VARIABLE = "NEURON_RT_DEBUG_OUTPUT_DIR"


class Printer:
    """Shows and saves printed tensors.

    Args:
        lnc: cores per rank.
        next_number: counts the prints of the process: 0, 1, 2, ... for each (place, core).
    """

    def __init__(self, lnc: int, next_number: Callable[..., int]) -> None:
        self.lnc = lnc
        self._next_number = next_number

    def __call__(self, core: int, prefix: str, array: np.ndarray) -> None:
        text = np.array2string(frameworks.plain(array), threshold=64, separator=", ")
        print(f"[core {core}] {prefix} {text}")
        directory = os.environ.get(DIRECTORY_VARIABLE)
        if directory:
            logical, physical = divmod(core, self.lnc)
            # A prefix is a message, and must not lead out of the directory.
            place = Path(directory, prefix.replace(os.sep, "_"), f"core_{logical}")
            iteration = self._next_number(place, physical)
            name = f"tensor_lnc{physical}.npy" if physical else "tensor.npy"
            _save(place / str(iteration), name, array)


def _save(folder: Path, name: str, array: np.ndarray) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_array(folder / name, array)
    except OSError as error:
        raise LaunchError(
            f"{DIRECTORY_VARIABLE}={os.environ.get(DIRECTORY_VARIABLE)!r}: {folder / name} can't "
            f"be written ({error.strerror or error}); name a directory that can, or unset the "
            "variable",
            code="setting-value",
        ) from None
