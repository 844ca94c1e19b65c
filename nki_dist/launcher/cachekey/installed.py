"""What a key takes for granted about installed code, and what it never trusts.

Invariant: a name is *installed* when its source lies in the standard library, in a site-packages
folder or in this package; installed code doesn't change while a process runs, so its name stands
for it. Names on the *impure* list give answers that no description of their arguments covers (the
clock, random numbers, files, other threads): a kernel that reads them is traced every time.

It doesn't look inside installed code: a library function that reads the clock on its own account
is taken for pure unless it is listed here.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_IMPURE_MODULES: Final = _names(
    "_io _random _thread asyncio ctypes gc getpass glob importlib io mmap multiprocessing nt os "
    "pathlib posix random secrets select shutil signal socket subprocess sys tempfile threading "
    "time uuid numpy.random"
)
_WITHIN_IMPURE: Final = tuple(f"{module}." for module in _IMPURE_MODULES)
# Impure members of other modules. Handing such a module around hides which member is read.
_IMPURE: Final = {
    "builtins": _names("__import__ breakpoint compile eval exec globals id input open"),
    "datetime": _names("date datetime"),
    "inspect": _names("currentframe stack trace"),
    "numpy": _names("load loadtxt genfromtxt fromfile memmap"),
    "torch": _names(
        "load seed initial_seed normal bernoulli rand randn randint randperm multinomial rand_like "
        "randn_like randint_like"
    ),
}
# Members of impure modules that are safe: constants (still recorded by value), pure functions,
# and the environment, which is recorded as a whole when code mentions it.
_PURE: Final = {
    "os": _names("environ environb getenv getenvb fspath PathLike sep linesep pathsep name path"),
    "sys": _names(
        "argv byteorder float_info hexversion maxsize exit getsizeof intern platform stderr stdout "
        "version version_info"
    ),
    **dict.fromkeys(
        ("posixpath", "ntpath", "genericpath", "os.path"),
        _names(
            "basename commonprefix dirname isabs join normcase normpath split splitdrive splitext"
        ),
    ),
}


class Unprovable(Exception):
    """Something a kernel reads can't be described; never leaves this room."""


def _is_impure(module: str) -> bool:
    return module in _IMPURE_MODULES or module.startswith(_WITHIN_IMPURE)


def refuse_impure(module: str | None, name: str) -> None:
    """Refuse names whose answers nothing that is recorded covers.

    Raises:
        Unprovable: `module.name` may answer differently although nothing recorded has changed.
    """
    module, first = module or "", name.partition(".")[0]
    impure = first in _IMPURE.get(module, ()) or module in _PURE or _is_impure(module)
    if impure and first not in _PURE.get(module, ()):
        raise Unprovable(f"{module}.{name} may answer differently every time")


def refuse_impure_module(module: str) -> None:
    """Refuse to hand a module around if some of its members are impure: which, can't be seen."""
    if module in _IMPURE or module in _PURE or _is_impure(module):
        raise Unprovable(f"module {module} is used as a value")


def _folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)}
    found |= {str(Path(folder).resolve()) for folder in found}
    found.add(str(Path(__file__).resolve().parents[2]))
    return tuple(folder.rstrip(os.sep) + os.sep for folder in found)


_FOLDERS: Final = _folders()


@lru_cache(maxsize=4096)
def is_installed_file(filename: str) -> bool:
    """Whether a source file belongs to installed code."""
    if filename.startswith("<"):  # made from text by a program, or frozen into Python
        return filename.startswith("<frozen ")
    return os.path.abspath(filename).startswith(_FOLDERS)


def is_installed(module: ModuleType) -> bool:
    """Whether a module is installed or built in, rather than the user's own."""
    filename = module.__dict__.get("__file__")
    if filename is not None:
        return is_installed_file(filename)
    origin = getattr(module.__dict__.get("__spec__"), "origin", None)
    return origin in ("built-in", "frozen") or module.__name__ in sys.builtin_module_names


def installed_name(value: Any) -> tuple[str, str] | None:
    """(module, qualified name) when an installed module holds `value` under its own name.

    Raises:
        Unprovable: it does, and the name is impure.
    """
    path: Any
    try:
        name = getattr(value, "__module__", None)
        path = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    except Exception:  # code of a user's class ran, so nothing installed is looked at
        return None
    module = sys.modules.get(name) if isinstance(name, str) and isinstance(path, str) else None
    if not isinstance(module, ModuleType) or not is_installed(module):
        return None
    found: Any = module
    for part in path.split("."):
        found = vars(found).get(part) if isinstance(found, (ModuleType, type)) else None
    if found is not value:
        return None
    refuse_impure(module.__name__, path)
    return module.__name__, path
