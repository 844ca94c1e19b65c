"""Which files are changed, where in them, and which tests have to notice.

Only tests without Ray (`[ray]` is left out of those for all hosts), the most specific first: a run
ends at the first failure, so a mutant that is noticed costs a second or two. A file that isn't in
an area is not changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

_FUNCTION: Final = re.compile(r"^def ([a-z]\w*)", re.MULTILINE)

WHOLE, DECLARATIONS, COSTS = "whole files", "declarations", "costs"


class Area(NamedTuple):
    """Code of one kind.

    Attributes:
        files: patterns of paths, from the root.
        part: of the files: everything, what `@instruction(...)` and roles read, or what `@x.cost`
            calls.
        tests: paths from the root, for all files: those of files first, then folders, whose tests
            each take some 15 seconds.
        own: how tests name a file's subject, {} for its stem or a public function of it.
        among: patterns of test files that are run before `tests` if they name the subject.
    """

    name: str
    files: tuple[str, ...]
    part: str
    tests: tuple[str, ...]
    own: str = ""
    among: tuple[str, ...] = ()


_ISA: Final = ("nki_dist/isa/*.py", "nki_dist/isa/collectives/*.py")
_TIMING: Final = tuple(
    f"tests/timing/test_{name}.py"
    for name in (
        *("replay", "report", "messages", "dma", "costs"),
        *("edges", "order", "trace", "table", "collectives"),
    )
)
_NUMBERS: Final = (
    "tests/test_casts.py",
    "tests/test_cast_details.py",
    "tests/test_dtypes.py",
    "tests/isa/test_mx.py",
    "tests/test_alu.py",
    "tests/test_precise_fp.py",
    "tests/test_precise_fp_programs.py",
    "tests/isa",
)
_COLLECTIVES: Final = (
    "tests/collectives/test_algorithms.py",
    "tests/collectives/test_registry.py",
    "tests/timing/test_stages.py",
    "tests/timing/test_collectives.py",
    *(
        f"tests/collectives/test_{name}.py"
        for name in (
            *("equal_groups", "matrix", "operations", "permutes"),
            *("variable", "replica_group"),
        )
    ),
)
_COMPILER: Final = (
    *(
        f"tests/compiler/test_{name}.py"
        for name in (
            "uninitialised",
            "uninitialised_addresses",
            "taint_oracle",
            "elements",
            "allocate",
            "overwritten",
            "schedule",
            "conflicts",
            "partial_writes",
        )
    ),
    "tests/test_precise_fp.py",
    "tests/test_precise_fp_programs.py",
    "tests/isa/test_accumulators.py",
    "tests/isa/test_nc_matmul.py",
    "tests/isa/test_nc_matmul_limits.py",
    "tests/runtime/test_dry_run.py",
    "tests/compiler",
    "tests/isa",
)
_DECLARED: Final = (
    "tests/isa/test_declared_operands.py",
    "tests/isa/effects/test_effects.py",
    "tests/isa/effects/test_exchanges.py",
    "tests/test_coverage_page.py",
    "tests/test_public_api.py",
)
_REFUSED: Final = ("tests/refusals", "tests/isa", "tests/language")
_FIGURES: Final = "tests/arch/test_every_figure_matters.py"
_TIMED: Final = ("tests/timing", "tests/estimates")
_NAMED: Final = (
    "tests/isa/test_*.py",
    "tests/collectives/test_[clopv]*.py",
    "tests/compiler/test_uninit*.py",
    "tests/language/test_math.py",
    "tests/language/test_random_and_operators.py",
    "tests/test_precise_fp.py",
    "tests/test_precise_fp_programs.py",
    "tests/test_release_notes*.py",
)

_OPERATIONS: Final = tuple(
    f"tests/ops/test_{name}.py" for name in ("place", "functions", "declarations")
)
_BOUND: Final = (
    *(
        f"tests/linking/test_{name}.py"
        for name in (
            *("passes", "sharing", "loads", "late_needs", "needs", "orders", "lane_orders"),
            *("printing", "linked"),
        )
    ),
    *(
        f"tests/runtime/test_{name}.py"
        for name in (
            *("lanes", "team", "addressed", "chains", "chain_operands", "many_ranks"),
            *("cores_of_one_program", "host_memory", "stopping", "uncollected"),
        )
    ),
    "tests/isa/effects/test_effects.py",
    "tests/test_blas.py",
    "tests/linking",
    "tests/isa",
)
_RUN: Final = tuple(
    f"tests/runtime/test_{name}.py"
    for name in (
        *("barriers_of_other_tensors", "beyond_its_dimension", "dry_classes", "dry_run"),
        *("interrupts", "saved_prints", "skipped_rows_of_programs", "timeouts"),
        "races_by_element",
    )
)

_LAUNCHED: Final = (
    "tests/test_messages_of_launches.py",
    "tests/runtime",
    "tests/debug",
    "tests/insight",
)

AREAS: Final = (
    Area(
        "declarations",
        _ISA,
        DECLARATIONS,
        (*_DECLARED, "tests/timing/test_messages.py", _FIGURES, *_REFUSED),
        r"\b(?:nisa|ncc)\.{}\b",
        _NAMED,
    ),
    Area(
        "roles",
        (
            "nki_dist/isa/operands.py",
            "nki_dist/isa/reach.py",
            "nki_dist/isa/collectives/roles.py",
        ),
        WHOLE,
        (
            "tests/isa/test_roles.py",
            "tests/isa/test_partition_rules.py",
            "tests/isa/test_indirection.py",
            "tests/isa/test_vector_offsets.py",
            "tests/collectives/test_constraints.py",
            "tests/collectives/test_limitations.py",
            "tests/collectives/test_replica_group.py",
            "tests/runtime/test_dry_run.py",
            *_DECLARED,
            *_REFUSED,
        ),
    ),
    Area(
        "costs",
        _ISA,
        COSTS,
        ("tests/timing/test_costs.py", "tests/timing/test_replay.py", _FIGURES, *_TIMED),
    ),
    Area(
        "timing",
        ("nki_dist/timing/*.py", "nki_dist/isa/timing_rules.py"),
        WHOLE,
        (*_TIMING, _FIGURES, "tests/runtime/test_dry_classes.py", *_TIMED, "tests/report"),
    ),
    Area(
        "passes",
        ("nki_dist/compiler/passes/*.py",),
        WHOLE,
        _COMPILER,
        r"\b{}\b",
        ("tests/compiler/test_*.py",),
    ),
    Area(
        "casts",
        tuple(f"nki_dist/dtypes/{name}.py" for name in ("casts", "rounding", "tables", "mx")),
        WHOLE,
        _NUMBERS,
    ),
    Area(
        "algorithms",
        (
            "nki_dist/collectives/algorithms/*.py",
            *(
                f"nki_dist/collectives/{name}.py"
                for name in ("algorithm", "choose", "members", "cost", "question")
            ),
        ),
        WHOLE,
        (*_COLLECTIVES, _FIGURES, "tests/timing"),
    ),
    Area(
        "layout",
        ("nki_dist/hbm/layout.py",),
        WHOLE,
        ("tests/hbm/test_layout.py", "tests/hbm"),
    ),
    Area(
        "links",
        (
            *(f"nki_dist/core_actor/{name}.py" for name in ("links", "ring", "doorbell")),
            "nki_dist/runtime/messages.py",
        ),
        WHOLE,
        (
            "tests/transport/test_messages.py",
            "tests/transport/test_ring.py",
            "tests/transport/test_links.py",
            "tests/transport/test_wakes_and_growth.py",
            "tests/transport/test_node_memory.py",
            "tests/insight/test_records.py",
        ),
    ),
    Area(
        "ops",
        ("nki_dist/ops/*.py",),
        WHOLE,
        (*_OPERATIONS, "tests/language", *_BOUND),
    ),
    Area(
        "linking",
        ("nki_dist/linking/*.py",),
        WHOLE,
        _BOUND,
        r"\b{}\b",
        ("tests/linking/test_*.py",),
    ),
    Area(
        "runtime",
        # All but what needs Ray.
        ("nki_dist/runtime/[!r]*.py", "nki_dist/runtime/r[!a]*.py", "nki_dist/runtime/races.py"),
        WHOLE,
        (*_BOUND, *_RUN, *_LAUNCHED),
    ),
    Area(
        "stepping",
        ("nki_dist/runtime/stepping/*.py",),
        WHOLE,
        ("tests/debug", "tests/insight"),
    ),
)


def sources(area: Area, root: Path) -> list[Path]:
    """Files of a area, from the root, in the order of their names."""
    found = {path for pattern in area.files for path in root.glob(pattern)}
    return sorted(path.relative_to(root) for path in found if path.name != "__init__.py")


def chosen_tests(area: Area, source: Path, root: Path) -> tuple[str, ...]:
    """Tests for a file: those that speak of it, most often first, then the area's."""
    names = [source.stem, *_FUNCTION.findall((root / source).read_text())]
    word = re.compile(area.own.format(f"(?:{'|'.join(names)})"))
    spoken = {}
    for file in sorted(path for pattern in area.among for path in root.glob(pattern)):
        name = file.relative_to(root).as_posix()
        spoken[name] = len(word.findall(file.read_text()))
    named = sorted((name for name, n in spoken.items() if n), key=lambda name: -spoken[name])
    return tuple(dict.fromkeys((*named, *area.tests)))
