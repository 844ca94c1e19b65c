"""No module of the package holds state that can change: several worlds live in one process.

Imports every module and looks at the globals it binds. Allowed: values of immutable types (looked
into), functions, classes, modules, context variables, frozen dataclasses, constant tables (named in
capitals, and nothing in the package changes them), caches of functions with parameters, and what
is listed below with its reason.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import pkgutil
import re
import struct
import types
import typing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki_dist

PLAIN = (
    int, float, complex, str, bytes, bool, type(None), type(...), range, slice, re.Pattern,
    enum.Enum, np.dtype, np.generic, np.ufunc, types.ModuleType, types.FunctionType, type,
    types.BuiltinFunctionType, types.MethodType, types.MappingProxyType, types.GenericAlias,
    types.UnionType, typing.TypeVar, ContextVar, property, np.finfo, np.iinfo, struct.Struct,
    types.WrapperDescriptorType,
)  # fmt: skip

# Classes whose instances are declarations: made while a module is imported, read only afterwards.
DECLARATIONS = {
    "nki_dist.isa.spec.Spec": "an instruction's declaration, completed by its own file",
    "nki_dist.isa.operands.*": "roles of parameters",
    "nki_dist.ops.function.Function": "what a function reads and writes",
    "nki_dist.arch.facts.FrozenMap": "a read-only mapping",
    "nki_dist.launcher.kernel.Kernel": "a function with launch options, fixed when it is made",
    "nki_dist.compat.beta1.launch.Beta1Kernel": "the same",
    "_pytest.stash.StashKey": "a key of pytest's own storage",
    "_pytest.fixtures.FixtureFunctionDefinition": "a declaration to pytest",
    "nki_dist.core_actor.actor.ActorClass(NeuronCore)": "Ray's handle of the actor class",
}

# State of the process, on purpose.
PROCESS_WIDE = {
    "nki_dist.forks._shared": "what a forked process has to make anew",
    "nki_dist.ops.function._BY_NAME": "functions of NumPy and conversions when asked for",
    "nki_dist.linking.blas.limit": "BLAS has one thread setting per process",
    "nki_dist.runtime.ray_thread.ray_thread": "a process is in one Ray at a time",
    "nki_dist.core_actor.ray_use.ray_use": "who has to be out before that Ray is left",
    "nki_dist.core_actor.fingerprint.versions": "what a process has loaded, which stays so",
    "nki_dist.core_actor.local_ray.local_ray": "the Ray that this process has to end",
    "nki_dist.core_actor.metrics.exported": "Ray is given a metric once for each process",
    "nki_dist.core_actor.ray_start.slow_starts": "what Ray prints in this process",
    "nki_dist.launcher.idle.idlers": "one thread looks at all worlds that may idle",
    "nki_dist.compat.spike.get_spike_singleton": "AWS's runtime, too, is one in a process",
    "nki_dist.launcher.session.in_task": "a process of Ray's is one from its start to its end",
    "nki_dist.launcher.session.session": "implicit worlds and compiled kernels stay warm",
}

CHANGES = frozenset(
    {"append", "add", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"}
    | {"setdefault", "sort", "update"}
)


def _modules() -> list[str]:
    found = pkgutil.walk_packages(nki_dist.__path__, "nki_dist.")
    return sorted(m.name for m in found if not m.name.endswith("__main__"))


def _declared(value: Any) -> bool:
    cls = type(value)
    room = cls.__module__
    return f"{room}.{cls.__name__}" in DECLARATIONS or f"{room}.*" in DECLARATIONS


def _stateless(value: Any) -> bool:
    """An instance of a class of ours without any attribute: nothing in it can change."""
    cls = type(value)
    slots = [s for c in cls.__mro__ for s in getattr(c, "__slots__", ())]
    return (
        cls.__module__.startswith("nki_dist") and not slots and not getattr(value, "__dict__", {})
    )


def _frozen(value: Any) -> bool:
    """Instances of our classes that refuse assignment: frozen dataclasses and the like."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return bool(value.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    if not type(value).__module__.startswith("nki_dist"):
        return False
    try:
        value._no_such_attribute_ = 1
    except (AttributeError, TypeError):
        slots = [s for c in type(value).__mro__ for s in getattr(c, "__slots__", ())]
        return not slots or type(value).__setattr__ is not object.__setattr__
    del value._no_such_attribute_
    return False


def _immutable(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(_immutable(v) for v in value)
    if isinstance(value, functools.partial):
        return all(_immutable(v) for v in (value.func, *value.args, *value.keywords.values()))
    if isinstance(value, functools._lru_cache_wrapper):
        return bool(inspect.signature(value).parameters) or _immutable(value())
    if isinstance(value, np.ndarray):
        return not value.flags.writeable
    if isinstance(value, PLAIN) or type(value) is object or _declared(value):
        return True
    if type(value).__module__ in ("typing", "typing_extensions", "__future__"):
        return True
    return _stateless(value) or _frozen(value)


def _constant_table(name: str, value: Any, changed: frozenset[str]) -> bool:
    """A dict, list or set of constants that is never changed after import."""
    if name != name.upper() or name in changed or not isinstance(value, (dict, list, set)):
        return False
    return _deeply_plain(value)


def _deeply_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_deeply_plain(v) for v in value.values())
    if isinstance(value, (list, set)):
        return all(_deeply_plain(v) for v in value)
    return _immutable(value)


def _name(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def _changed_names(tree: ast.AST) -> set[str]:
    """Names that a statement changes in place: `x[..] = `, `del x[..]`, `x.update()`, `x += `."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found.add(_name(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in CHANGES:
                found.add(_name(node.func.value))
        elif isinstance(node, ast.AugAssign):
            found.add(_name(node.target))
        elif isinstance(node, ast.Global):
            found.update(node.names)
    return found


@pytest.fixture(scope="module")
def changed() -> frozenset[str]:
    paths = Path(nki_dist.__file__).parent.rglob("*.py")
    return frozenset().union(*(_changed_names(ast.parse(path.read_text())) for path in paths))


# torch.compile keeps what its compiled frames need in the globals of the functions they come from,
# under these names; another test of the same process may have compiled a caller of a kernel.
DYNAMO = re.compile(r"__(builtins_dict|import|resume_at|compiled_fn)_\w+")


def _bound_here(module: types.ModuleType) -> set[str]:
    """Names the module itself assigns, not those it imports or Dynamo put there."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text())
    imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    names = {alias.asname or alias.name.split(".")[0] for n in imports for alias in n.names}
    return {name for name in vars(module) if not DYNAMO.fullmatch(name)} - names


@pytest.mark.parametrize("name", _modules())
def test_globals_are_constants(name: str, changed: frozenset[str]) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] != "nki_dist":
            pytest.skip(f"needs {error.name}")
        raise
    bound = _bound_here(module)
    offenders = [
        f"{name}.{key}: {type(value).__name__}"
        for key, value in vars(module).items()
        if key in bound
        and not (key.startswith("__") and key.endswith("__"))
        and not key.startswith("__builtins_dict__")  # torch.compile's, where it has looked around
        and f"{name}.{key}" not in PROCESS_WIDE
        and not _immutable(value)
        and not _constant_table(key, value, changed)
    ]
    assert not offenders, "mutable module state: " + ", ".join(offenders)


def test_what_dynamo_binds_is_not_ours_and_everything_else_is(monkeypatch) -> None:
    from nki_dist.launcher import kernel

    for name in ("__builtins_dict___4", "__import_nki_dist_dot_isa_dot_spec", "__resume_at_28_3"):
        monkeypatch.setitem(vars(kernel), name, {})
        assert name not in _bound_here(kernel)
    monkeypatch.setitem(vars(kernel), "__cache", {})
    assert {"Kernel", "jit", "__cache"} <= _bound_here(kernel)
