"""Which algorithm a group uses: by how much data, how many members, and where they sit.

Within a node (documented "sweet ranges"): Mesh below 1 MiB, RDH up to 56 MiB in groups of 2^p,
KangaRing beyond if the group holds all ranks of each of its chips, Ring as fallback. An all-reduce
takes the single-step Mesh where the extra traffic costs less than the hop it saves. Between nodes:
Mesh for small groups and sizes, RDH, Ring for large sizes; several members per node are
hierarchical, and on trn1 large sizes use one flat ring.

Between nodes the documentation gives no thresholds; we use the same sizes, and 4 members as "small
group". NKI_DIST_COLLECTIVE_ALGORITHM overrides the choice. Values of a reduction depend on it (see
each algorithm's order), so nothing but the operands and this module's inputs decides.

Source: neuron-runtime/explore/intranode-collective-comm.rst, internode-collective-comm.rst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nki_dist.arch import Arch
from nki_dist.collectives.algorithms import Algorithm, rdh
from nki_dist.collectives.algorithms.hierarchical import hierarchical
from nki_dist.collectives.algorithms.kangaring import kangaring
from nki_dist.collectives.algorithms.mesh import MESH
from nki_dist.collectives.algorithms.rdh import RDH
from nki_dist.collectives.algorithms.ring import RING
from nki_dist.collectives.algorithms.single_step_mesh import SINGLE_STEP_MESH
from nki_dist.errors import LaunchError

VARIABLE: Final = "NKI_DIST_COLLECTIVE_ALGORITHM"
NAMES: Final = ("ring", "mesh", "single_step_mesh", "rdh", "kangaring", "hierarchical")
SMALL_GROUP: Final = 4  # members up to which Mesh is used between nodes; our assumption


@dataclass(frozen=True)
class RankLayout:
    """How ranks sit on chips and nodes; rank r is on chip r // ranks_per_chip.

    A node is what NeuronLink connects: an instance, or the instances of an UltraServer.
    """

    ranks_per_chip: int
    ranks_per_node: int

    @classmethod
    def of(cls, arch: Arch, lnc: int, ranks_per_node: int = 0) -> RankLayout:
        """The layout of a platform; `ranks_per_node` is 0 where a node is one instance."""
        chip = max(1, arch.cores_per_chip // lnc)
        return cls(chip, ranks_per_node or chip * arch.chips_per_instance)


@dataclass(frozen=True)
class Question:
    """What a choice depends on.

    Attributes:
        opcode: of the collective.
        nbytes: of the larger side of its operands.
        group: ranks, in the order of the group.
    """

    opcode: str
    nbytes: int
    group: tuple[int, ...]
    layout: RankLayout
    arch: Arch


def choose(question: Question, forced: str = "") -> Algorithm:
    """The algorithm of a group.

    Raises:
        LaunchError: `forced` names none, or one this group can't use.
    """
    if forced:
        return _forced(question, forced)
    nodes = _by_place(question.group, question.layout.ranks_per_node)
    if len(nodes) == 1:
        return _within(question, question.group, question.nbytes)
    if len(question.group) == len(nodes):
        return _between(question, len(nodes), question.nbytes)
    if len({len(n) for n in nodes}) > 1:
        return RING
    if question.arch.generation == 2 and question.nbytes > question.arch.rdh_max_bytes:
        return RING  # the flat ring of trn1
    return _hierarchical(question, nodes)


def _by_place(group: Sequence[int], ranks: int) -> list[list[int]]:
    """Positions of members that share a chip or node, in the order of the group."""
    places: dict[int, list[int]] = {}
    for position, rank in enumerate(group):
        places.setdefault(rank // ranks, []).append(position)
    return list(places.values())


def _hierarchical(question: Question, nodes: list[list[int]]) -> Algorithm:
    shares = len(nodes[0])
    # Gathering, the inner stage moves everything; reducing, the outer one has a share of it.
    inner = _within(question, [question.group[p] for p in nodes[0]], question.nbytes)
    outer = _between(question, len(nodes), question.nbytes // shares)
    return hierarchical(nodes, inner, outer)


def _within(question: Question, group: Sequence[int], nbytes: int) -> Algorithm:
    arch, size = question.arch, len(group)
    if nbytes < arch.mesh_max_bytes:
        bandwidth = arch.link_gbps.get("xy") or next(iter(arch.link_gbps.values()))
        return _mesh(question.opcode, size, nbytes, bandwidth, arch.ring_hop_ns)
    if nbytes <= arch.rdh_max_bytes and rdh.possible(size):
        return RDH
    pairs = chip_pairs(group, question.layout)
    return kangaring(pairs) if pairs else RING


def _between(question: Question, size: int, nbytes: int) -> Algorithm:
    arch = question.arch
    if nbytes < arch.mesh_max_bytes and size <= SMALL_GROUP:
        bandwidth = arch.efa_chip_gbps / question.layout.ranks_per_chip
        return _mesh(question.opcode, size, nbytes, bandwidth, arch.efa_alpha_ns)
    if nbytes <= arch.rdh_max_bytes and rdh.possible(size):
        return RDH
    return RING


def _mesh(opcode: str, size: int, nbytes: int, gbps: float, hop_ns: float) -> Algorithm:
    if opcode != "all_reduce":
        return MESH
    extra = (size - 1) * nbytes * (1 - 2 / size)  # bytes a rank sends more than in two steps
    return SINGLE_STEP_MESH if extra <= hop_ns * gbps else MESH


def chip_pairs(group: Sequence[int], layout: RankLayout) -> list[tuple[int, int]]:
    """Positions of neighbours for KangaRing; none unless the group has whole chips only."""
    pairs = []
    for members in _by_place(group, layout.ranks_per_chip):
        if len(members) != layout.ranks_per_chip or len(members) % 2:
            return []
        pairs += list(zip(members[::2], members[1::2]))
    return pairs


def _forced(question: Question, name: str) -> Algorithm:
    size = len(question.group)
    simple = {"ring": RING, "mesh": MESH, "single_step_mesh": SINGLE_STEP_MESH}
    if name in simple:
        return simple[name]
    if name == "rdh" and rdh.possible(size):
        return RDH
    if name == "kangaring" and size % 2 == 0:
        group = list(range(size))
        pairs = chip_pairs(question.group, question.layout)
        return kangaring(pairs or list(zip(group[::2], group[1::2])))
    if name == "hierarchical":
        nodes = _by_place(question.group, question.layout.ranks_per_node)
        if len({len(n) for n in nodes}) == 1:
            return _hierarchical(question, nodes)
    if name not in NAMES:
        raise LaunchError(f"{VARIABLE}={name!r}; allowed: {', '.join(NAMES)}")
    needs = {
        "rdh": "a power of two",
        "kangaring": "an even number",
        "hierarchical": "an equal number on each node",
    }
    raise LaunchError(
        f"{VARIABLE}={name}: a group of {size} ranks, {list(question.group)}, can't use it; it "
        f"needs {needs[name]} of members"
    )
