"""A checkpoint as Hugging Face saves it: parts of tensors, read from the shards that have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  # so that NumPy knows bfloat16
import numpy as np
from config import UsageError


class Checkpoint:
    """The tensors of a folder with safetensors; nothing is read before it is asked for.

    Raises:
        UsageError: a shard is missing, or safetensors isn't installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        if index.is_file():
            self._files = json.loads(index.read_text())["weight_map"]
        elif single.is_file():
            self._files = {}
        else:
            raise UsageError(f"{folder} has no model.safetensors and no index of shards")
        for name in {*self._files.values(), *([] if self._files else [single.name])}:
            if not (folder / name).is_file():
                raise UsageError(f"{folder} lacks the shard {name} that its index names")
        self._open: dict[str, Any] = {}

    def read(
        self, name: str, rows: slice = slice(None), columns: slice = slice(None)
    ) -> np.ndarray:
        """A part of a tensor; of a matrix, rows are outputs, as torch has them."""
        try:
            part = self._shard(name).get_slice(name)
        except (
            Exception
        ) as error:  # safetensors has no class of its own for a name that isn't there
            raise UsageError(f"{self.folder} has no tensor {name}: {error}") from None
        return part[rows, columns] if len(part.get_shape()) == 2 else part[rows]

    def _shard(self, name: str) -> Any:
        file = self._files.get(name, "model.safetensors")
        if file not in self._open:
            try:
                from safetensors import safe_open
            except ImportError:
                raise UsageError("pip install safetensors, which reads checkpoints") from None
            self._open[file] = safe_open(self.folder / file, framework="np")
        return self._open[file]
