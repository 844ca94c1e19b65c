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

PARTS = {  # function: its module
    "qkv": "core.qkv.qkv",
    "attention_cte": "core.attention.attention_cte",
    "attention_tkg": "core.attention.attention_tkg",
    "output_projection_cte": "core.output_projection.output_projection_cte.output_projection_cte",
    "output_projection_tkg": "core.output_projection.output_projection_tkg",
    "mlp": "core.mlp.mlp",
    "rmsnorm_tkg": "core.subkernels.rmsnorm_tkg",
    "router_topk": "core.router_topk.router_topk",
    "transformer_tkg": "experimental.transformer.transformer_tkg",
}
GROUPS = (  # what takes the place of ours together
    ("qkv",),
    ("attention_cte", "output_projection_cte"),
    ("attention_tkg",),
    ("output_projection_tkg",),
    ("mlp",),
    ("router_topk",),
    ("rmsnorm_tkg",),
)


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
            modules = {name: self._module(module) for name, module in PARTS.items()}
            types_ = self._module("core.utils.common_types")
            tkg = self._module("core.attention.attention_tkg_utils")
            memory = self._module("core.utils.allocator")
            self.parts = {name: getattr(m, name) for name, m in modules.items() if m}
        except (ImportError, AttributeError) as error:
            raise UsageError(f"{root} can't be used: {error}") from None
        self.options = {
            "rows": types_.QKVOutputLayout.BSD,
            "rms_norm": types_.NormType.RMS_NORM,
            "no_norm": types_.NormType.NO_NORM,
            "silu": types_.ActFnType.SiLU,
            "softmax": types_.RouterActFnType.SOFTMAX,
            "config": tkg.AttnTKGConfig,
            "memory": memory.create_auto_alloc_manager,
        }

    def _module(self, name: str) -> Any:
        whole = f"nkilib_src.nkilib.{name}"
        try:
            return importlib.import_module(whole)
        except SyntaxError as error:
            return self._without_second_docstring(whole, error)
        except ModuleNotFoundError as error:
            if str(error.name).startswith("nkilib_src"):
                raise
            return None  # it needs a package that isn't installed, as transformer_tkg does torch

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
        self, compiles: Callable[[dict[str, Any]], Any], groups: Any = GROUPS
    ) -> dict[str, Any]:
        """The parts that a launch asks for and that take its sizes, and the options they need.

        Args:
            compiles: the launch with some parts; raises where one of them refuses its operands.
            groups: of parts that are used together.
        """
        chosen: dict[str, Any] = {}
        asked: set[str] = set()

        def noted(name: str) -> Callable[..., Any]:
            def part(*args: Any, **kwargs: Any) -> Any:
                asked.add(name)
                return self.parts[name](*args, **kwargs)

            return part

        for names in groups:
            if not self.parts.keys() >= set(names):
                continue
            try:
                compiles({**self.options, **chosen, **{name: noted(name) for name in names}})
            except Exception:  # a part may refuse in any way: an assertion, an error of ours
                continue
            chosen.update({name: self.parts[name] for name in names if name in asked})
        return {**self.options, **chosen} if chosen else {}
