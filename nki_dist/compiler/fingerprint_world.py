"""What a fingerprint takes for granted about installed code, and what it never trusts.

Invariant: a name is *installed* when its source lies in the standard library, in a site-packages
folder or in this package; installed code doesn't change while a process runs, so its name stands
for it. Names on the *impure* list give answers that no fingerprint of their arguments covers (the
clock, random numbers, files, other threads): a kernel that reads them is traced every time.

It doesn't look inside installed code: a library function that reads the clock on its own account
is taken for pure unless it is listed here.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_IMPURE_MODULES: Final = (
    *("_io", "_random", "_thread", "asyncio", "ctypes", "gc", "getpass", "glob", "importlib"),
    *("io", "mmap", "multiprocessing", "nt", "os", "pathlib", "posix", "random", "secrets"),
    *("select", "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading"),
    *("time", "uuid", "numpy.random"),
)
_WITHIN_IMPURE: Final = tuple(f"{module}." for module in _IMPURE_MODULES)
_IMPURE_BUILTINS: Final = (
    *("__import__", "breakpoint", "compile", "eval", "exec", "globals", "id", "input", "open"),
)
_IMPURE_NAMES: Final = frozenset(
    [("builtins", name) for name in _IMPURE_BUILTINS]
    + [("datetime", name) for name in ("date", "datetime")]
    + [("inspect", name) for name in ("currentframe", "stack", "trace")]
    + [("numpy", name) for name in ("load", "loadtxt", "genfromtxt", "fromfile", "memmap")]
    + [("torch", name) for name in ("load", "seed", "initial_seed", "normal", "bernoulli")]
    + [("torch", name) for name in ("rand", "randn", "randint", "randperm", "multinomial")]
    + [("torch", name) for name in ("rand_like", "randn_like", "randint_like")]
)
# Members of impure modules that are safe: constants (still recorded by value), pure functions,
# and the environment, which is recorded as a whole when code mentions it.
_PURE_EXCEPTIONS: Final = frozenset(
    [("os", name) for name in ("environ", "environb", "getenv", "getenvb", "fspath", "PathLike")]
    + [("os", name) for name in ("sep", "linesep", "pathsep", "name", "path")]
    + [("sys", name) for name in ("argv", "byteorder", "float_info", "hexversion", "maxsize")]
    + [("sys", name) for name in ("exit", "getsizeof", "intern", "platform", "stderr", "stdout")]
    + [("sys", name) for name in ("version", "version_info")]
)
_PURE_PATH_FUNCTIONS: Final = frozenset(
    (
        *("basename", "commonprefix", "dirname", "isabs", "join"),
        *("normcase", "normpath", "split", "splitdrive", "splitext"),
    )
)
_PATH_MODULES: Final = frozenset({"posixpath", "ntpath", "genericpath", "os.path"})
# Modules with impure members: handing one of them around hides which member is read.
_PARTLY_IMPURE: Final = frozenset({name for name, _ in _IMPURE_NAMES})


def is_impure(module: str | None, name: str) -> bool:
    """Whether `module.name` may answer differently although nothing we record has changed."""
    if not module:
        return False
    if module in _PATH_MODULES:
        return name.split(".")[0] not in _PURE_PATH_FUNCTIONS
    if (module, name) in _IMPURE_NAMES:
        return True
    if module in _IMPURE_MODULES or module.startswith(_WITHIN_IMPURE):
        return (module, name) not in _PURE_EXCEPTIONS
    return False


def is_impure_module(module: str) -> bool:
    """Whether a module can't be handed around: some of its members are impure."""
    return module in _PARTLY_IMPURE or module in _PATH_MODULES or is_impure(module, "")


class InstalledCode:
    """Says which files, modules and classes belong to installed code; remembers its answers."""

    def __init__(self) -> None:
        paths = sysconfig.get_paths()
        folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
        folders += [
            *site.getsitepackages(),
            site.getusersitepackages(),
            os.path.dirname(os.__file__),
        ]
        own = Path(__file__).resolve().parent.parent
        resolved = {str(Path(folder).resolve()) for folder in folders} | {*folders, str(own)}
        self._prefixes = tuple(folder.rstrip(os.sep) + os.sep for folder in resolved)
        self._answers: dict[str, bool] = {}

    def has_file(self, filename: str) -> bool:
        """Whether a source file belongs to installed code."""
        answer = self._answers.get(filename)
        if answer is None:
            if filename.startswith("<"):  # made from text by a program, or frozen into Python
                answer = filename.startswith("<frozen ")
            else:
                answer = os.path.abspath(filename).startswith(self._prefixes)
            self._answers[filename] = answer
        return answer

    def has_module(self, module: ModuleType | None) -> bool:
        """Whether a module is installed or built in, rather than the user's own."""
        if module is None:
            return False
        filename = module.__dict__.get("__file__")
        if filename is not None:
            return self.has_file(filename)
        spec = module.__dict__.get("__spec__")
        origin = getattr(spec, "origin", None)
        return origin in ("built-in", "frozen") or module.__name__ in sys.builtin_module_names

    def names(self, value: Any) -> tuple[str, str] | None:
        """(module, qualified name) when an installed module holds `value` under its own name."""
        module_name, path = getattr(value, "__module__", None), value.__qualname__
        module = sys.modules.get(module_name) if isinstance(module_name, str) else None
        if not isinstance(module, ModuleType) or not self.has_module(module):
            return None
        found: Any = module
        for part in path.split("."):
            found = vars(found).get(part) if isinstance(found, (ModuleType, type)) else None
        return (module.__name__, path) if found is value else None
