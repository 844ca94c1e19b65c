"""Kernels in code blocks of the documentation's pages, against NumPy in float64.

`python -m bench.real_kernels.pages CHECKOUT` prints one JSON object per kernel. A block is taken if
its text is a program that defines a kernel; what pages only sketch isn't.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from bench.real_kernels.checks import Check, run
from nki_dist import compat

OPENING = re.compile(r"^( *)\.\. code(?:-block)?:: *python\s*$")
IMPORTS = (
    "import numpy as np\nimport nki\nimport nki.language as nl\nimport nki.isa as nisa\n"
    "import nki.collectives as ncc\n"
)
RELU_AND_SCALE = {"relu_kernel": lambda x: np.maximum(x, 0), "scale_kernel": lambda x: x / 2}


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every Python block of a reStructuredText page."""
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines):
        opening = OPENING.match(line)
        if opening is None:
            continue
        body = []
        for inner in lines[number + 1 :]:
            if inner.strip() and len(inner) - len(inner.lstrip()) <= len(opening[1]):
                break
            if not re.match(r"\s*:[a-z-]+:", inner):  # options of the block
                body.append(inner)
        yield number + 1, textwrap.dedent("\n".join(body))


def kernels(checkout: Path, folder: Path) -> Iterator[tuple[str, int, str, Any]]:
    """Page, line, name and kernel of each block that can be executed; files are made in folder."""
    for page in sorted(checkout.glob("nki/**/*.rst")):
        for line, text in blocks(page):
            found: dict[str, Any] = {}
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                tree = ast.parse(text)
                file = folder / f"{page.stem}_{line}.py"
                file.write_text(IMPORTS + text)
                names: dict[str, Any] = {"__name__": page.stem}
                exec(compile(file.read_text(), str(file), "exec"), names)
                functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
                defined = [f.name for f in functions if any(map(_computes, f.body))]
                found = {name: names[name] for name in defined if hasattr(names[name], "fn")}
            for name, kernel in found.items():
                yield str(page.relative_to(checkout)), line, name, kernel


def _computes(statement: ast.stmt) -> bool:
    """Whether it's more than a docstring or an ellipsis."""
    return not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))


def checks(checkout: Path, folder: Path) -> Iterator[Check]:
    """Kernels that do something whose result can be said without the page."""
    rng = np.random.default_rng(0)
    for page, line, name, kernel in kernels(checkout, folder):
        for args, want, tolerance in cases(name, line, rng):
            call = lambda kernel=kernel, args=args: result(kernel, args)  # noqa: E731
            yield Check(page, f"{name}, line {line}", call, want, tolerance)


def result(kernel: Any, args: list[np.ndarray]) -> np.ndarray:
    """What a kernel returns, or its last argument if it returns nothing."""
    with contextlib.redirect_stdout(io.StringIO()):
        out = kernel(*args)
    return np.stack(out) if isinstance(out, tuple) else np.asarray(args[-1] if out is None else out)


def cases(name: str, line: int, rng: np.random.Generator) -> Iterator[tuple[list, Any, float]]:
    """Arguments, what must come out, and the tolerance, for kernels of these names."""

    def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
        return rng.standard_normal(shape).astype(dtype)

    if name == "tensor_exp_kernel_isa":  # the pages have one for each of these shapes
        x = normal(*((4, 4096) if line < 150 else (128, 128)), dtype=bfloat16)
        yield [x], np.exp(x.astype(np.float64)), 1e-2
    elif name == "nki_tensor_add_kernel":
        for dtype in (np.float16, np.float32):
            a, b = normal(97, 33, dtype=dtype), normal(97, 33, dtype=dtype)
            yield [a, b], (a + b).astype(np.float64), 0.0
    elif name in RELU_AND_SCALE:
        x = normal(256, 512)
        yield [x, np.zeros_like(x)], RELU_AND_SCALE[name](x.astype(np.float64)), 0.0
    elif name == "loop":
        a, b, c = (normal(5, 30) for _ in range(3))
        yield [a, b, c], np.exp(np.stack([a, b, c]).astype(np.float64)), 1e-6
    elif name == "matrix_multiply_kernel":  # sizes as small as each one's blocks allow
        sizes = [(128, 128, 512), (256, 384, 1024), (256, 384, 1024), (384, 512, 2048)]
        pages = [line < 150, line < 300, line < 450, line < 600, True]
        k, m, n = [*sizes, (1024, 2048, 1024)][pages.index(True)]
        a, b = normal(k, m, dtype=bfloat16), normal(k, n, dtype=bfloat16)
        yield [a, b], a.astype(np.float64).T @ b.astype(np.float64), 1e-2


def main() -> None:
    compat.install()
    compat.install_devices()
    with tempfile.TemporaryDirectory() as folder:
        run(checks(Path(sys.argv[1]).resolve(), Path(folder)))


if __name__ == "__main__":
    main()
