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
        try:
            import safetensors
        except ImportError:
            raise UsageError("pip install safetensors, which reads checkpoints") from None
        self.folder, self._safetensors = folder, safetensors
        self._open: dict[str, Any] = {}
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        if index.is_file():
            self._files = json.loads(index.read_text())["weight_map"]
        elif single.is_file():
            self._files = {}
        else:
            raise UsageError(f"{folder} has no model.safetensors and no index of shards")
        for name in set(self._files.values()):
            if not (folder / name).is_file():
                raise UsageError(f"{folder} lacks the shard {name} that its index names")

    def read(
        self, name: str, rows: slice = slice(None), columns: slice = slice(None)
    ) -> np.ndarray:
        """A part of a tensor; of a matrix, rows are outputs, as torch has them."""
        shard = self._shard(self._files.get(name, "model.safetensors"))
        try:
            part = shard.get_slice(name)
        except self._safetensors.SafetensorError:
            raise UsageError(f"{self.folder} has no tensor {name}") from None
        return part[rows, columns] if len(part.get_shape()) == 2 else part[rows]

    def _shard(self, file: str) -> Any:
        if file not in self._open:
            path, of = self.folder / file, self._safetensors
            try:
                self._open[file] = of.safe_open(path, framework="np")
            except (of.SafetensorError, OSError) as error:
                raise UsageError(f"{path} can't be read: {error}") from None
        return self._open[file]
