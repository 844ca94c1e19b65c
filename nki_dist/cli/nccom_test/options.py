"""The options of nccom-test's guide: which mean something here, and what becomes of the others.

What changes the result on a device but nothing here is refused, so that nobody takes a time for
something it isn't. What only says how a device is driven (hosts, repetitions, logs) is ignored,
with a note.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from nki_dist import arch as architectures
from nki_dist.arch.measured import measured
from nki_dist.cli.nccom_test.plan import OPERATIONS, TYPES, Groups, Plan, placed
from nki_dist.cli.shared.command import refused
from nki_dist.collectives.algorithms import ALGORITHMS
from nki_dist.collectives.operations import OPERATIONS as CARRIED_OUT
from nki_dist.collectives.operations import Kind
from nki_dist.runtime.hosts import forced_algorithm
from nki_dist.runtime.settings import LNC_VARIABLE, default_lnc
from nki_dist.topology.topology import SYSTEMS, Topology, system

CHECKS: Final = ("random", "all_ones")

_LAYOUT: Final = "says how a tensor lies in SBUF, which no simulated time depends on"
_VALUE: Final[Mapping[str, Any]] = MappingProxyType({})
_VALUES: Final[Mapping[str, Any]] = MappingProxyType({"nargs": "+"})
_FLAG: Final[Mapping[str, Any]] = MappingProxyType({"action": "store_true"})

# Options that the help doesn't list; the page does. Those without a reason have no effect on
# simulated time, the others are refused for it.
_HIDDEN: Final = (
    (("-n", "--iters"), _VALUE, ""),
    (("-w", "--warmup_iters"), _VALUE, ""),
    (("-I", "--neff_iters"), _VALUE, ""),
    (("-W", "--neff_warmup_iters"), _VALUE, ""),
    (("--unique-buff",), _FLAG, ""),
    (("--coalesced-cc-size-ratio",), _VALUE, ""),
    (("-s", "--hosts"), _VALUES, ""),
    (("--hosts-file",), _VALUE, ""),
    (("--mpi-log-dir",), _VALUE, ""),
    (("-S", "--slurm-mode"), _FLAG, ""),
    (("-u", "--slurm-vcpus-per-node"), _VALUE, ""),
    (("--slurm-setup-script",), _VALUE, ""),
    (("--slurm-job-id",), _VALUE, ""),
    (("--slurm-use-head-node-neuron-bench",), _FLAG, ""),
    (("--non-interactive",), _FLAG, ""),
    (("--debug",), _FLAG, ""),
    (("--vcpu-pin-mode",), _FLAG, ""),
    (("--data-collector-port",), _VALUE, ""),
    (("--data-collector-host",), _VALUE, ""),
    (("--variable-size-op-metadata",), _VALUE, ""),  # times are of full buffers
    (("--input-shape",), _VALUE, _LAYOUT),
    (("--output-shape",), _VALUE, _LAYOUT),
    (("--cc-dim",), _VALUE, _LAYOUT),
    (
        ("--shared-output-buff",),
        _FLAG,
        "two ranks with one buffer: HBM belongs to one rank here, and no figure says what it saves",
    ),
    (
        ("--sb2sb",),
        _FLAG,
        "tensors in SBUF: no figure says what they save; those in HBM are timed",
    ),
    (
        ("--streams-json",),
        _VALUE,
        "collectives beside each other: no figure says how they share HBM, DMA engines and EFA; "
        "time them one by one",
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the guide, and ours."""
    add = parser.add_argument
    add("operation", metavar="OPERATION", nargs="?", help=", ".join(OPERATIONS))
    add("-r", "--nworkers", type=int, required=True, metavar="N", help="ranks")
    add("-N", "--nnodes", type=int, metavar="N", help="instances; as many as needed by default")
    sizes = parser.add_argument_group("sizes, in bytes or as 2KB, 32M, 1GB")
    sizes.add_argument("-b", "--minbytes", default="32M", metavar="B", help="first (32M)")
    sizes.add_argument("-e", "--maxbytes", default="32M", metavar="B", help="last (32M)")
    sizes.add_argument("-i", "--stepbytes", metavar="B", help="added each time; (e - b) / 10")
    sizes.add_argument("-f", "--stepfactor", metavar="F", help="or multiplied with each time")
    data = parser.add_argument_group("data")
    data.add_argument(
        "-d", "--datatype", choices=TYPES, default="uint8", help="of the elements (uint8)"
    )
    data.add_argument(
        "-c",
        "--check",
        nargs="?",
        const="random",
        metavar="|".join(CHECKS),
        help="run the operation with real data on all ranks and compare it with NumPy",
    )
    data.add_argument("--seed", type=int, default=0, help="of random data (0)")
    data.add_argument(
        "--check-limit",
        default="1GB",
        metavar="B",
        help="sizes whose inputs and outputs take more on all ranks aren't checked (1GB); ours",
    )
    where = parser.add_argument_group("where")
    where.add_argument("--platform", choices=SYSTEMS, help="ours; NEURON_PLATFORM_TARGET_OVERRIDE")
    where.add_argument("--lnc", type=int, metavar="L", help="cores per rank; ours; NEURON_LOGICAL_"
                       "NC_CONFIG, else the platform's")  # fmt: skip
    where.add_argument(
        "--algorithm", metavar="NAME", help=f"ours; one of {', '.join(a.name for a in ALGORITHMS)}"
    )
    where.add_argument("--data-parallel-dimension", type=int, metavar="N", help="ranks per group")
    where.add_argument("--custom-replica-groups", metavar="JSON", help="file of the groups")
    where.add_argument("--custom-src-target-pairs", metavar="JSON", help="file of permute's pairs")
    output = parser.add_argument_group("output")
    output.add_argument("--report-to-json-file", metavar="FILE", help="write the results there")
    output.add_argument(
        "-t", "--stats", nargs="+", default=["avg"], metavar="STAT", help="avg, p50, p99, ..."
    )
    output.add_argument("--show-algorithm", action="store_true", help="add a column")
    output.add_argument("--show-input-output-size", action="store_true", help="add two columns")
    output.add_argument(
        "--bandwidth-unit",
        choices=("GiB", "GB"),
        default="GiB",
        help="what GB/s means: 2^30 bytes as the guide says (GiB), or 10^9; ours",
    )
    for flags, kind, _ in _HIDDEN:
        parser.add_argument(*flags, **kind, help=argparse.SUPPRESS)


def settle(arguments: argparse.Namespace) -> None:
    """Sort out values that may stand before OPERATION, and refuse what can't be simulated.

    The guide writes `--check allg`: the operation, not a kind of check.

    Raises:
        LaunchError: an option isn't simulated or has a wrong value, or there is no operation.
    """
    if arguments.operation is None and arguments.check in OPERATIONS:
        arguments.operation, arguments.check = arguments.check, "random"
    for name in ("stats", "hosts"):
        values = getattr(arguments, name)
        if arguments.operation is None and values and values[-1] in OPERATIONS:
            arguments.operation = values.pop()
    if arguments.operation not in OPERATIONS:
        got = "no operation" if arguments.operation is None else repr(arguments.operation)
        raise refused(f"nccom-test: {got}; allowed: {', '.join(OPERATIONS)}")
    for flags, _, why in _HIDDEN:
        if why and _given(arguments, flags[-1]):
            raise refused(f"{flags[-1]}: {why}; leave it out")
    if arguments.check not in (None, *CHECKS):
        raise refused(f"--check {arguments.check}; allowed: {', '.join(CHECKS)}")
    for stat in arguments.stats:
        if not re.fullmatch(r"avg|p(\d\d?|100)", stat):
            raise refused(f"--stats {stat}; allowed: avg, p0 to p100")
    for flag, value in (("-r", arguments.nworkers), ("-N", arguments.nnodes)):
        if value is not None and value < 1:
            raise refused(f"{flag} {value}; must be positive")


def without_effect(arguments: argparse.Namespace) -> list[str]:
    """The options that were given and change nothing here."""
    return [flags[-1] for flags, _, why in _HIDDEN if not why and _given(arguments, flags[-1])]


def _given(arguments: argparse.Namespace, flag: str) -> bool:
    value = getattr(arguments, flag.lstrip("-").replace("-", "_"))
    return value is not None and value is not False


# ---- a plan of them -----------------------------------------------------------------------------


def plan_of(arguments: argparse.Namespace) -> Plan:
    """What is to be measured.

    Raises:
        LaunchError: the platform hasn't these ranks, or options don't fit each other.
    """
    workers = arguments.nworkers
    topology = _platform(arguments)
    nodes = arguments.nnodes or -(-workers // topology.ranks_per_instance)
    if nodes > 1 and topology.arch.instance == "inf2":
        raise refused(
            f"-r {workers} on {nodes} instances of inf2; nccom-test allows one instance of it, "
            f"which has {topology.ranks_per_instance} ranks"
        )
    topology, members = placed(topology, workers, nodes)
    groups, pairs = _groups(arguments), _pairs(arguments)
    algorithm = _algorithm(arguments)
    return Plan(
        arguments.operation,
        arguments.datatype,
        topology,
        members,
        tuple(tuple(members[worker] for worker in group) for group in groups),
        tuple((members[a], members[b]) for a, b in pairs),
        algorithm,
    )


def _platform(arguments: argparse.Namespace) -> Topology:
    """A rank on the platform, which says how many there are on an instance."""
    lnc = arguments.lnc
    if arguments.platform:
        one = system(arguments.platform, 1, lnc)
    else:
        arch = architectures.from_environment()
        one = Topology(arch, 1, arch.default_lnc if lnc is None else lnc)
    if lnc is None and os.environ.get(LNC_VARIABLE):
        one = Topology(one.arch, 1, default_lnc(one.arch.max_lnc))
    return Topology(measured(one.arch), 1, one.lnc)


def _algorithm(arguments: argparse.Namespace) -> str:
    """The algorithm of all groups: the option's, else the environment's, else ""."""
    operation = OPERATIONS[arguments.operation]
    by_algorithm = CARRIED_OUT[operation.opcode].kind is Kind.ALGORITHM
    if not arguments.algorithm:
        return forced_algorithm() if by_algorithm else ""
    name = "hierarchical" if arguments.algorithm == "hier" else str(arguments.algorithm)
    allowed = [a.name for a in ALGORITHMS]
    if name not in allowed:
        raise refused(f"--algorithm {name}; allowed: {', '.join(allowed)}")
    if not by_algorithm:
        raise refused(
            f"--algorithm {name} with {arguments.operation}, whose ranks send to each other "
            "directly; it is for all_reduce, all_gather and reduce_scatter"
        )
    return name


def _groups(arguments: argparse.Namespace) -> Groups:
    """Groups of worker numbers."""
    workers, part = arguments.nworkers, arguments.data_parallel_dimension
    paired = OPERATIONS[arguments.operation].paired
    if (part is not None or arguments.custom_replica_groups) and paired:
        raise refused(
            f"{arguments.operation} has no groups; say its pairs with --custom-src-target-pairs"
        )
    if part is not None and arguments.custom_replica_groups:
        raise refused("give --data-parallel-dimension or --custom-replica-groups, not both")
    if part is not None:
        if part < 1 or workers % part:
            raise refused(f"--data-parallel-dimension {part}; must divide the {workers} ranks")
        count = workers // part
        return tuple(tuple(range(first, workers, count)) for first in range(count))
    if not arguments.custom_replica_groups:
        return (tuple(range(workers)),)
    file = arguments.custom_replica_groups
    groups = _lists(file, "replica_groups", "--custom-replica-groups")
    members = [rank for group in groups for rank in group]
    sizes = {len(group) for group in groups}
    if sorted(members) != list(range(workers)) or len(sizes) > 1:
        raise refused(
            f"--custom-replica-groups {file}: {groups}; must be groups of equal size that have "
            f"each of the ranks 0 to {workers - 1} once"
        )
    return groups


def _pairs(arguments: argparse.Namespace) -> Groups:
    """(source, target) worker numbers: a ring, unless a file says more."""
    workers, file = arguments.nworkers, arguments.custom_src_target_pairs
    if file is not None and arguments.operation != "permute":
        raise refused(f"--custom-src-target-pairs with {arguments.operation}; it is for permute")
    if not OPERATIONS[arguments.operation].paired:
        return ()
    if file is None:
        return tuple((rank, (rank + 1) % workers) for rank in range(workers))
    pairs = _lists(file, "src_target_pairs", "--custom-src-target-pairs")
    sources, targets = ([pair[side] for pair in pairs if len(pair) == 2] for side in (0, 1))
    good = len(sources) == len(pairs) and all(
        len(set(side)) == len(side) and min(side) >= 0 and max(side) < workers
        for side in (sources, targets)
    )
    if not good:
        raise refused(
            f"--custom-src-target-pairs {file}: {pairs}; must be pairs of the ranks 0 to "
            f"{workers - 1}, each at most once a source and at most once a target"
        )
    return pairs


def _lists(file: str, key: str, flag: str) -> Groups:
    """The one list of lists of ints that a file has under `key`, inside another list."""
    try:
        found = json.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise refused(f"{flag} {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise refused(f"{flag} {file}: not JSON: {error}") from None
    match found.get(key) if isinstance(found, dict) else None:
        case [[_, *_] as lists] if all(map(_is_ranks, lists)):
            return tuple(map(tuple, lists))
    raise refused(
        f'{flag} {file}: must be {{"{key}": [[[0, 1], [2, 3]]]}}: one list of lists of ranks'
    )


def _is_ranks(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(n) is int for n in value)
