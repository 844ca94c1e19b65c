"""What `nki-dist nccom-test` measures: operations, their sizes and groups, and simulated time.

`size` is what nccom-test means by it: bytes of the larger of a rank's input and output. So it is
the input of a reduce-scatter, the output of an all-gather, and either of the other operations.
Costs are those of `nki_dist.collectives`, which profiles use, too. A size's time is that of its
slowest group or pair; all start together.

Source: tools/neuron-sys-tools/nccom-test.rst of the Neuron SDK's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from nki_dist import dtypes
from nki_dist.cli.shared.command import refused
from nki_dist.collectives.choose import choose
from nki_dist.collectives.cost import all_to_all_ns, cost_ns, move_ns, sharing_groups
from nki_dist.collectives.members import Members
from nki_dist.collectives.operations import OPERATIONS as CARRIED_OUT
from nki_dist.collectives.operations import Kind
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.topology.topology import Topology

Groups: TypeAlias = "tuple[tuple[int, ...], ...]"


# How the guide calls types, and which they are here.
TYPES: Final[Mapping[str, dtypes.DType]] = MappingProxyType(
    {
        "uint8": dtypes.uint8,
        "int8": dtypes.int8,
        "uint16": dtypes.uint16,
        "int16": dtypes.int16,
        "fp8": dtypes.float8_e4m3,
        "fp8e4": dtypes.float8_e4m3,
        "fp16": dtypes.float16,
        "bf16": dtypes.bfloat16,
        "int32": dtypes.int32,
        "uint32": dtypes.uint32,
        "fp32": dtypes.float32,
    }
)


@dataclass(frozen=True)
class Operation:
    """A row of the guide's tables of operations and of bus bandwidth factors.

    Attributes:
        names: what users call it.
        opcode: of the collective that carries it out here.
        passes: how often (r - 1) / r of the data crosses a rank's lines; 0 for a factor of 1.
        reads_part, writes_part: a rank's input or output is the size divided by the ranks.
        divides: the data is cut into equal parts, one for each rank.
    """

    names: tuple[str, ...]
    opcode: str
    passes: int = 1
    reads_part: bool = False
    writes_part: bool = False
    divides: bool = True

    def bus_factor(self, ranks: int) -> float:
        """Bus bandwidth over algorithm bandwidth."""
        return self.passes * (ranks - 1) / ranks if self.passes else 1.0

    @property
    def paired(self) -> bool:
        return CARRIED_OUT[self.opcode].kind is Kind.PAIRS


_OPERATIONS: Final = (
    Operation(("all_reduce", "allr"), "all_reduce", passes=2, divides=False),
    Operation(("all_gather", "allg"), "all_gather", reads_part=True),
    Operation(("all_gatherv", "allgv"), "all_gather_v", reads_part=True),
    Operation(("reduce_scatter", "redsct"), "reduce_scatter", writes_part=True),
    Operation(("sendrecv",), "collective_permute", passes=0, divides=False),
    Operation(("alltoall",), "all_to_all"),
    Operation(("alltoallv",), "all_to_all_v"),
    Operation(("permute",), "collective_permute", passes=0, divides=False),
)
OPERATIONS: Final = MappingProxyType({name: o for o in _OPERATIONS for name in o.names})


@dataclass(frozen=True)
class Plan:
    """All that is the same for every size.

    Attributes:
        operation, type: what the guide calls them; keys of `OPERATIONS` and `TYPES`.
        workers: ranks of the topology that take part.
        groups: of those ranks, all of one size; a permutation's is all of them.
        pairs: (source, target) of a permutation.
        algorithm: asked for, or "".
    """

    operation: str
    type: str
    topology: Topology
    workers: tuple[int, ...]
    groups: Groups
    pairs: Groups = ()
    algorithm: str = ""

    @property
    def op(self) -> Operation:
        return OPERATIONS[self.operation]

    @property
    def dtype(self) -> dtypes.DType:
        return TYPES[self.type]

    @property
    def ranks(self) -> int:
        """Those of one operation, which bandwidths are counted for."""
        return len(self.groups[0])

    @property
    def unit(self) -> int:
        """Bytes that every size is a multiple of."""
        return self.dtype.itemsize * (self.ranks if self.op.divides else 1)

    def counts(self, size: int) -> tuple[int, int]:
        """Elements of a rank's input and output."""
        whole = size // self.dtype.itemsize
        part = whole // self.ranks
        return (part if self.op.reads_part else whole), (part if self.op.writes_part else whole)

    def time_us(self, size: int) -> tuple[str, float]:
        """The algorithm and its simulated time, in microseconds.

        Raises:
            LaunchError: a group can't use the algorithm that was asked for.
        """
        if self.op.paired:
            return "direct", max(self._pair_us(size, pair) for pair in self.pairs)
        found = (self._group_us(size, g) for g in self.groups)
        return max(found, key=lambda found: found[1])

    def _question(self, size: int, group: Sequence[int]) -> Question:
        t = self.topology
        layout = RankLayout(
            t.ranks_per_chip, t.ranks_per_instance * t.arch.instances_per_ultraserver
        )
        return Question(self.op.opcode, size, tuple(group), layout, t.arch)

    def _group_us(self, size: int, group: Sequence[int]) -> tuple[str, float]:
        question = self._question(size, group)
        sharing = sharing_groups(self.groups, question)
        if CARRIED_OUT[self.op.opcode].kind is Kind.DIRECT:
            return "direct", all_to_all_ns(Members(question, self.topology, sharing)) / 1000
        algorithm = choose(question, self.algorithm)
        return algorithm.name, cost_ns(Members(question, self.topology, sharing), algorithm) / 1000

    def _pair_us(self, size: int, pair: Sequence[int]) -> float:
        touches = CARRIED_OUT[self.op.opcode].touches
        return move_ns(Members(self._question(size, pair), self.topology), 1, touches) / 1000


# ---- who takes part -----------------------------------------------------------------------------


def placed(topology: Topology, workers: int, nodes: int) -> tuple[Topology, tuple[int, ...]]:
    """The ranks that are `workers` ranks divided equally over `nodes` instances.

    Args:
        topology: of the platform; its number of ranks doesn't matter.

    Returns:
        The topology that holds them, and their numbers in it.

    Raises:
        LaunchError: they can't be divided, or an instance has too few ranks.
    """
    most, what = topology.ranks_per_instance, f"{topology.arch.instance} with LNC {topology.lnc}"
    each, left = divmod(workers, nodes)
    if left or not each:
        raise refused(
            f"-r {workers} can't be divided equally over -N {nodes} instances",
            ranks=workers,
            instances=nodes,
        )
    if each > most:
        raise refused(
            f"-r {workers} -N {nodes} puts {each} ranks on an instance; one of {what} has {most}. "
            f"Give -N {-(-workers // most)}, or leave -N out",
            got=each,
            most=most,
        )
    ranks = workers if nodes == 1 else nodes * most
    members = tuple(node * most + n for node in range(nodes) for n in range(each))
    return Topology(topology.arch, ranks, topology.lnc), members


# ---- sizes --------------------------------------------------------------------------------------

_UNITS: Final = MappingProxyType({"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30})


def bytes_of(text: str, option: str) -> int:
    """Bytes of a size as users write it: 8, 2kb, 32M, 1GB; kb and so on are powers of 1024.

    Raises:
        LaunchError: it isn't one.
    """
    found = re.fullmatch(r"(\d+)([kmg]?)i?b?", text.strip().lower(), re.ASCII)
    if found is None or not int(found[1]):
        raise refused(
            f"{option} {text}; allowed: a positive number of bytes, such as 8, 2KB, 32M or 1GB"
        )
    return int(found[1]) * _UNITS[found[2]]


def sizes_of(
    plan: Plan, least: str, most: str, step: str | None, factor: str | None
) -> tuple[int, ...]:
    """The sizes of a sweep, in bytes.

    Args:
        least, most, step, factor: -b, -e, -i and -f as users write them.

    Raises:
        LaunchError: they make no sweep, or a size can't be cut into elements and ranks.
    """
    low, high = bytes_of(least, "-b"), bytes_of(most, "-e")
    if low > high:
        raise refused(
            f"-b {least} is more than -e {most}; the default of both is 32M", least=low, most=high
        )
    if step is not None and factor is not None:
        raise refused("give -i or -f, not both")
    if factor is not None:
        by = bytes_of(factor, "-f")
        if by < 2:
            raise refused(f"-f {factor}; must be 2 or more", got=by, least=2)
        sizes = [low]
        while sizes[-1] * by <= high:
            sizes.append(sizes[-1] * by)
    else:
        # A step nobody chose is kept to sizes that there are.
        by = bytes_of(step, "-i") if step is not None else (high - low) // 10
        if step is None:
            by = max(by // plan.unit, 1) * plan.unit
        sizes = list(range(low, high + 1, by))
    _check_sizes(plan, sizes)
    return tuple(sizes)


def _check_sizes(plan: Plan, sizes: Sequence[int]) -> None:
    for size in sizes:
        if size % plan.unit:
            parts = f" in {plan.ranks} equal parts" if plan.op.divides else ""
            nearest = -(-size // plan.unit) * plan.unit
            raise refused(
                f"{plan.operation} of {size} bytes: must be whole elements of {plan.type}{parts}, "
                f"so a multiple of {plan.unit} bytes, such as {nearest}; see -b, -i and -f",
                got=size,
                multiple=plan.unit,
            )
