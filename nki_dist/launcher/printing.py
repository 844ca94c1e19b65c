"""Where `nl.device_print` goes: the driver's stdout, and files if the environment asks for them.

With NEURON_RT_DEBUG_OUTPUT_DIR set, every print is also saved as
`<dir>/<prefix>/core_<logical core>/<iteration>/tensor.npy`, iterations counted per prefix and core.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TextIO

import numpy as np

DIRECTORY_VARIABLE = "NEURON_RT_DEBUG_OUTPUT_DIR"


class Printer:
    """Shows and saves printed tensors of one launch."""

    def __init__(
        self, lnc: int, stream: TextIO | None = None, directory: str | None = None
    ) -> None:
        self.lnc = lnc
        self.stream = stream
        self.directory = directory or os.environ.get(DIRECTORY_VARIABLE)
        self._counts: Counter[tuple[int, str]] = Counter()

    def __call__(self, core: int, prefix: str, array: np.ndarray) -> None:
        text = np.array2string(array, threshold=64, separator=", ")
        print(f"[core {core}] {prefix} {text}", file=self.stream or sys.stdout)
        if self.directory:
            iteration = self._counts[core, prefix]
            self._counts[core, prefix] += 1
            folder = Path(self.directory, prefix, f"core_{core // self.lnc}", str(iteration))
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / "tensor.npy", array)
