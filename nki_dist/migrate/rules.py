"""The rules of `nki-dist migrate`, and the page of AWS's documentation that each follows.

docs/migrate_rules.py says what they do, with examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_GUIDE: Final = "nki/migration/index.rst"
_RULES: Final = {
    f"{_GUIDE}, Migrating from NKI 0.1.0 to NKI 0.2.0": (
        "import operator index mask hint dst tile-operator "
        "loop-reduce instances measure removed undecided"
    ),
    "NKI Loops, Migrating from NKI 0.6.0 to NKI 0.7.0 (docs/releases.md)": "range grid",
    f"{_GUIDE}, Migrating from NKI 0.2.0 to NKI 0.3.0": "jit-mode simulate baremetal platform",
    f"{_GUIDE}, Removing block dimensions from NKI kernels": "par-dim",
    f"{_GUIDE}, Improved allocation API": "allocator",
    f"{_GUIDE}, Migrating from NKI 0.5.0 to NKI 0.6.0": "loop",
}
PAGES: Final[Mapping[str, str]] = MappingProxyType(
    {rule: page for page, rules in _RULES.items() for rule in rules.split()}
)
