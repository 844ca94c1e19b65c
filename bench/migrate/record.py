"""`python -m bench.migrate.record KIND FILE FOLDER`: a program's launches, written down.

KIND is script, samples (kernels of nki-samples that no script of it covers; FILE is the checkout)
or pages (code blocks of the documentation). For the first launch of each kernel FOLDER gets a file
with its arguments, the grid, and what came out.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import pickle
import runpy
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from ml_dtypes import bfloat16

from nki_dist import compat
from nki_dist.launcher.kernel import Kernel
from nki_dist.launcher.results import Run


def plain(value: Any) -> Any:
    """Tensors of torch and jax as NumPy arrays."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    if not hasattr(value, "__array__") or isinstance(value, np.generic):
        return value
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        return value.detach().view(sys.modules["torch"].int16).numpy().view(bfloat16)
    return np.asarray(value)


def watch(folder: Path) -> None:
    """Write down the first launch of each kernel, from now on."""
    launch, seen = Kernel._launch, set()

    def watched(kernel: Kernel, args: tuple, kwargs: dict[str, Any]) -> Any:
        code = inspect.unwrap(kernel.fn).__code__
        key = (code.co_filename, code.co_name)
        if key in seen:
            return launch(kernel, args, kwargs)
        seen.add(key)
        given = copy.deepcopy((plain(args), plain(kwargs)))
        out = launch(kernel, args, kwargs)
        row = {"file": key[0], "name": key[1], "grid": kernel.grid, "given": given}
        came = out.outputs if isinstance(out, Run) else out  # kernels that save files are profiled
        row |= {"text": Path(key[0]).read_text(), "out": (plain(came), plain(args))}
        try:
            data = pickle.dumps(row)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            print(f"{key[1]} can't be written down: {error}", file=sys.stderr)
        else:
            (folder / f"{len(seen):03}_{key[1]}.pickle").write_bytes(data)
        return out

    mock.patch.object(Kernel, "_launch", watched).start()


def main() -> None:
    kind, path, folder = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    np.random.seed(0)
    compat.install()
    compat.install_devices()
    watch(folder)
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
        if kind == "script":
            sys.argv = [str(path)]
            sys.path.insert(0, str(path.parent))
            with contextlib.suppress(SystemExit):
                runpy.run_path(str(path), run_name="__main__")
            return
        from bench.real_kernels import checks, pages

        with tempfile.TemporaryDirectory() as scratch:
            found = pages.checks(path, Path(scratch)) if kind == "pages" else checks.checks(path)
            for check in found:
                try:
                    check.call()
                except Exception:  # of foreign code: what it launched counts, and the others go on
                    traceback.print_exc()


if __name__ == "__main__":
    main()
