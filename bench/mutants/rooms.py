"""Which files are changed, where in them, and which tests have to notice.

Only tests without Ray, the most specific first: a run ends at the first failure, so a mutant that
is noticed costs a second or two. A file that isn't in a room is not changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

WHOLE, DECLARATIONS, COSTS = "whole files", "declarations", "costs"


class Room(NamedTuple):
    """Code of one kind.

    Attributes:
        files: patterns of paths, from the root.
        part: of the files: everything, what `@instruction(...)` reads, or what `@x.cost` calls.
        tests: paths from the root, for all files.
        own: how tests name a file's subject, {} for its stem: files with that word come first.
    """

    name: str
    files: tuple[str, ...]
    part: str
    tests: tuple[str, ...]
    own: str = ""


_ISA: Final = ("nki_dist/isa/*.py", "nki_dist/isa/collectives/*.py")
_TIMING: Final = (
    "tests/timing/test_replay.py",
    "tests/timing/test_report.py",
    "tests/timing/test_messages.py",
    "tests/timing/test_order.py",
    "tests/timing/test_collectives.py",
)
_NUMBERS: Final = (
    "tests/test_casts.py",
    "tests/test_cast_details.py",
    "tests/test_dtypes.py",
    "tests/isa/test_mx.py",
    "tests/test_alu.py",
    "tests/test_precise_fp.py",
)
_COLLECTIVES: Final = (
    "tests/collectives/test_algorithms.py",
    "tests/collectives/test_matrix.py",
    "tests/collectives/test_operations.py",
    "tests/collectives/test_permutes.py",
    "tests/collectives/test_variable.py",
    "tests/timing/test_collectives.py",
)
_COMPILER: Final = (
    "tests/compiler",
    "tests/test_precise_fp.py",
    "tests/isa/test_accumulators.py",
    "tests/timing/test_order.py",
    "tests/test_bad_input.py",
)
_DECLARED: Final = (
    "tests/test_public_api.py",
    "tests/test_coverage_page.py",
    "tests/isa",
    "tests/collectives/test_constraints.py",
    "tests/collectives/test_limitations.py",
    "tests/collectives/test_operations.py",
    "tests/compiler/test_uninitialised.py",
    "tests/test_precise_fp.py",
    *(f"tests/test_release_notes{part}.py" for part in ("", "_0_4", "_0_5_and_0_6", "_2_28")),
)

ROOMS: Final = (
    Room("declarations", _ISA, DECLARATIONS, _DECLARED, r"\b(?:nisa|ncc)\.{}\b"),
    Room(
        "roles",
        ("nki_dist/isa/operands.py", "nki_dist/isa/collectives/_roles.py"),
        WHOLE,
        ("tests/collectives/test_constraints.py", *_DECLARED),
    ),
    Room("costs", (*_ISA, "nki_dist/isa/timing_rules.py"), COSTS, ("tests/timing",)),
    Room("timing", ("nki_dist/timing/*.py",), WHOLE, _TIMING),
    Room("passes", ("nki_dist/compiler/passes/*.py",), WHOLE, _COMPILER, r"\b{}\b"),
    Room(
        "casts",
        tuple(f"nki_dist/dtypes/{name}.py" for name in ("casts", "rounding", "tables", "mx")),
        WHOLE,
        _NUMBERS,
    ),
    Room(
        "algorithms",
        (
            "nki_dist/collectives/algorithms/*.py",
            "nki_dist/collectives/choose.py",
            "nki_dist/collectives/price.py",
        ),
        WHOLE,
        _COLLECTIVES,
    ),
    Room(
        "layout",
        ("nki_dist/hbm/layout.py",),
        WHOLE,
        ("tests/hbm/test_layout.py",),
    ),
    Room(
        "links",
        (
            *(f"nki_dist/core_actor/{name}.py" for name in ("links", "ring", "bell")),
            "nki_dist/runtime/messages.py",
        ),
        WHOLE,
        (
            "tests/transport/test_messages.py",
            "tests/transport/test_ring.py",
            "tests/transport/test_links.py",
            "tests/transport/test_wakes_and_growth.py",
        ),
    ),
)


def sources(room: Room, root: Path) -> list[Path]:
    """Files of a room, from the root, in the order of their names."""
    found = {path for pattern in room.files for path in root.glob(pattern)}
    return sorted(path.relative_to(root) for path in found if path.name != "__init__.py")


def tests(room: Room, source: Path, root: Path) -> tuple[str, ...]:
    """Tests for a file: those that speak of it, most often first, then the room's."""
    if not room.own:
        return room.tests
    word = re.compile(room.own.format(re.escape(source.stem)))
    counts = {}
    for pattern in room.tests:
        path = root / pattern
        for file in path.glob("test_*.py") if path.is_dir() else [path]:
            counts[file.relative_to(root).as_posix()] = len(word.findall(file.read_text()))
    named = sorted((name for name, n in counts.items() if n), key=lambda name: -counts[name])
    return (*named, *(name for name in counts if name not in named))
