"""The public surface against NKI 0.6 (SDK 2.32): names, parameters, their order and defaults.

What 0.7 has otherwise is in `tests/data/nki_api_0_7.json`, which tests/nki_0_7/test_api.py reads;
its names and parameters count here, too.

`tests/data/nki_api.json` lists what the documentation declares: for each function its parameters as
[name] or [name, default as written there], for each class its methods and members. What we export
beyond that stands in BEYOND and LONGER, with the reason.
"""

from __future__ import annotations

import importlib
import inspect
import json
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nki_dist.dtypes import DType
from nki_dist.language.tile_size import TileSize

DATA = Path(__file__).parent / "data"
API = json.loads((DATA / "nki_api.json").read_text())
API_0_7 = json.loads((DATA / "nki_api_0_7.json").read_text())

BEYOND = {
    "nki": {
        "Autotuned": "the type of what autotune returns",
        "Checks": "what kernels are checked against",
        "Drift": "what nki.drift returns",
        "DryRun": "what world.dry_run returns",
        "Kernel": "the type of what jit returns, for isinstance and annotations",
        "PerRank": "the type of what per_rank returns",
        "Record": "what nki.record returns",
        "Run": "what world.run(profile=True) returns",
        "DeviceTensor": "a tensor that stays in HBM between launches",
        "TensorSpec": "a shape and a dtype in place of an array, in dry runs and estimates",
        "World": "ranks: many logical cores in one launch",
        "autotune": "chooses compile-time arguments by simulated time",
        "benchmark": "Beta 1 decorator that published scripts use: simulated time here",
        "collectives": "submodule",
        "cpu_simulate": "how published test harnesses start AWS's simulator",
        "drift": "where precision is lost",
        "errors": "submodule: the typed errors",
        "debug": "values while a kernel is written",
        "estimate": "simulated time of a kernel that isn't run",
        "isa": "submodule",
        "language": "submodule",
        "link_passes": "the names that NKI_DIST_LINK_WITHOUT takes",
        "per_rank": "an argument that differs from rank to rank",
        "profile": "simulated time of a kernel",
        "record": "a launch that can be asked what happened inside it",
    },
    "nki.language": {
        "bool": "spelling of bool_ in published kernels",
        "nc": "launch grids of Beta 1",
        "range": "spelling of static_range in published kernels",
        "spmd_dim": "launch grids of Beta 1",
    },
    "nki.isa": {
        "INSTRUCTIONS": "table from which codec, executor, timing and coverage derive",
        "device_print": "instruction behind nl.device_print",
        "language_math": "instruction behind nl functions that no engine has",
    },
    "nki.collectives": {
        "rg_partition_op": "argument of ReplicaGroup.from_partition_op, documented from SDK 2.33",
    },
}
LONGER = {
    "nki.language.shared_constant": "dtype: parameter of Beta 1 that published kernels pass",
    "nki.simulate": "check: what the kernel is checked against",
    "nki.language.NkiTensor.reshape": "dimensions one by one, as in NumPy and published kernels",
}
TYPES_ONLY = {  # documented as annotations, in classes whose instances users never make
    "nki.language.NkiTensor.__init__": "tensors are made by nl.ndarray",
    "nki.isa.NkiInstruction.__init__": "handles are returned by instructions",
    "nki.isa.VirtualRegister.__init__": "registers are made by nisa.register_alloc",
}
OPERATORS = {"equal", "maximum"}  # defaults that we keep by name

FUNCTIONS = [(m, n) for m, v in API.items() for n in v["functions"]]
CLASSES = [(m, n) for m, v in API.items() for n in v["classes"]]


def ours(module: str) -> ModuleType:
    return importlib.import_module(module.replace("nki", "nki_dist", 1))


def default(value: Any) -> str:
    """A default as the documentation writes it."""
    if value is Ellipsis:
        return "..."
    if type(value).__name__ == "MemoryRegion":
        return value.name
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, DType) or (isinstance(value, str) and value in OPERATORS):
        return str(getattr(value, "name", value))
    return repr(value)


def parameters(function: Any) -> list[list[str]]:
    """As in the data file; what collects further keywords has no name that a caller could use."""
    found = []
    for p in inspect.signature(function).parameters.values():
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        name = "**" if stars == "**" else stars + p.name
        found.append([name] if p.default is p.empty else [name, default(p.default)])
        if p.kind is p.KEYWORD_ONLY:
            found[-1].append("keyword")
    return found


def documented(module: str, name: str) -> list[list[str]]:
    listed = API_0_7["functions"].get(f"{module}.{name}") or API[module]["functions"][name]
    return [["**"] if p[0].startswith("**") else p for p in listed]


@pytest.mark.parametrize(("module", "name"), FUNCTIONS, ids=lambda x: x)
def test_functions_have_the_documented_parameters(module, name):
    function = getattr(ours(module), name)
    have, want = parameters(function), documented(module, name)
    if f"{module}.{name}" in LONGER:
        assert len(have) > len(want)
        assert all(len(p) == 2 for p in have[len(want) :])
        have = have[: len(want)]
    assert have == want


@pytest.mark.parametrize(("module", "name"), CLASSES, ids=lambda x: x)
def test_classes_have_the_documented_members(module, name):
    cls = TileSize if name == "_TileSize" else getattr(ours(module), name)
    listed = API[module]["classes"][name]
    for member, value in listed["members"].items():
        assert hasattr(cls, member) or member in _declared(cls), member
        if isinstance(getattr(cls, member, None), Enum):
            assert repr(getattr(cls, member).value) == value
    for method, names in listed["methods"].items():
        full = f"{module}.{name}.{method}"
        assert hasattr(cls, method), method
        if full in TYPES_ONLY or isinstance(inspect.getattr_static(cls, method), property):
            continue
        if name == "NKIObject" and method == "__init__":
            continue  # subclasses declare it
        have = [p[0] for p in parameters(getattr(cls, method))][1:]
        if full in API_0_7["functions"]:
            names = [p[0] for p in API_0_7["functions"][full]]
        assert (have[: len(names)] if full in LONGER else have) == names, method


def _declared(cls: type) -> set[str]:
    """Attributes of instances, in slots and annotations of the class and its bases."""
    found: set[str] = set()
    for c in cls.__mro__:
        found |= {*getattr(c, "__slots__", ()), *getattr(c, "__annotations__", {})}
    return found


@pytest.mark.parametrize("module", API)
def test_constants_exist(module):
    assert [n for n in API[module]["constants"] if not hasattr(ours(module), n)] == []


def added(module: str) -> set[str]:
    """Names of a module that 0.7 has."""
    names = (*API_0_7["functions"], *API_0_7["classes"], *API_0_7["constants"])
    parts = (name.removeprefix(f"{module}.") for name in names if name.startswith(f"{module}."))
    first = {part.partition(".")[0] for part in parts}
    return {name for name in first if f"{module}.{name}" not in API} & {*ours(module).__all__}


@pytest.mark.parametrize("module", API)
def test_what_we_export_beyond_is_listed(module):
    """Both directions: no export without a reason, no reason for what isn't there."""
    listed = API[module]
    known = {*listed["functions"], *listed["classes"], *listed["constants"]} | added(module)
    extra = set(ours(module).__all__) - known
    other = sorted(extra ^ set(BEYOND[module]))
    assert not other, f"give the reason in BEYOND of tests/test_public_api.py: {other}"
    missing = {n for n in known if n != "_TileSize"} - set(ours(module).__all__)
    assert missing == set()


@pytest.mark.parametrize("module", API)
def test_every_exported_name_exists(module):
    assert [n for n in ours(module).__all__ if not hasattr(ours(module), n)] == []


@pytest.mark.parametrize(
    ("module", "name"),
    [(m, n) for m, n in FUNCTIONS if m != "nki.collectives"],
    ids=lambda x: x,
)
def test_every_function_says_what_it_does(module, name):
    assert (inspect.getdoc(getattr(ours(module), name)) or "").strip()
