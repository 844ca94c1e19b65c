"""Kernels of AWS's nki-library, in place of ours where they take the model's sizes."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from config import UsageError

from nki_dist import compat

# what a layer asks for: module of the library, function
PARTS = {
    "qkv": ("qkv.qkv", "qkv"),
    "attention_cte": ("attention.attention_cte", "attention_cte"),
    "output_projection_cte": (
        "output_projection.output_projection_cte.output_projection_cte",
        "output_projection_cte",
    ),
    "output_projection_tkg": ("output_projection.output_projection_tkg", "output_projection_tkg"),
    "mlp": ("mlp.mlp", "mlp"),
}
OF_PROMPT = (("qkv", "attention_cte", "output_projection_cte"), ("mlp",))  # used together
OF_TOKEN = (("qkv",), ("output_projection_tkg",), ("mlp",))


class Library:
    """The library's kernels.

    Args:
        root: its folder `src`, or the one that has it.

    Raises:
        UsageError: it isn't there, or can't be imported.
    """

    def __init__(self, root: Path) -> None:
        found = [p for p in (root, root / "src") if (p / "nkilib_src" / "nkilib").is_dir()]
        if not found:
            raise UsageError(f"{root} isn't nki-library: it has no nkilib_src/nkilib")
        compat.install()
        sys.path.append(str(found[0]))
        self._root = found[0]
        try:
            self.parts = {name: getattr(self._module(m), f) for name, (m, f) in PARTS.items()}
            types_ = self._module("utils.common_types")
        except (ImportError, AttributeError) as error:
            raise UsageError(f"{root} can't be used: {error}") from None
        self.options = {
            "rows": types_.QKVOutputLayout.BSD,
            "rms_norm": types_.NormType.RMS_NORM,
            "silu": types_.ActFnType.SiLU,
        }

    def _module(self, name: str) -> Any:
        whole = f"nkilib_src.nkilib.core.{name}"
        try:
            return importlib.import_module(whole)
        except SyntaxError as error:
            return self._without_second_docstring(whole, error)

    def _without_second_docstring(self, name: str, error: SyntaxError) -> Any:
        """A module that was published with the end of a docstring twice; lines stay."""
        file = self._root.joinpath(*name.split(".")).with_suffix(".py")
        pieces = file.read_text().split('"""')
        if len(pieces) != 4:
            raise UsageError(f"{file} can't be read: {error}") from None
        before, docstring, again, rest = pieces
        made = types.ModuleType(name)
        made.__file__, made.__package__ = str(file), name.rpartition(".")[0]
        text = f'{before}"""{docstring}"""' + "\n" * again.count("\n") + rest
        sys.modules[name] = made
        exec(compile(text, file, "exec"), made.__dict__)
        return made

    def fitting(
        self, groups: tuple[tuple[str, ...], ...], compiles: Callable[[dict[str, Any]], Any]
    ) -> dict[str, Any]:
        """The parts that take the model's sizes, and the options they need.

        Args:
            groups: of parts that are used together.
            compiles: a launch with some parts; raises where one of them refuses its operands.
        """
        chosen: dict[str, Any] = {}
        for names in groups:
            more = {name: self.parts[name] for name in names}
            try:
                compiles({**self.options, **more})
            except Exception:  # a part may refuse in any way: an assertion, an error of ours
                continue
            chosen.update(more)
        return {**self.options, **chosen} if chosen else {}
