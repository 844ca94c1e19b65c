"""Single-step mesh: every member sends its whole buffer to all others and reduces everything.

One step instead of mesh's two for N times the traffic, so for the smallest sizes: those of Mesh at
which the extra traffic costs less than the hop it saves. All-reduce only; gathering and scattering
are mesh's. Order of the reduction: the order of the group, as in mesh, so both give the same bits.

Source: neuron-runtime/explore/intranode-collective-comm.rst, internode-collective-comm.rst.
"""

from __future__ import annotations

from collections.abc import Sequence

from nki_dist.collectives.algorithms.mesh import Mesh
from nki_dist.collectives.members import Members, Stage
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.question import Question
from nki_dist.collectives.reduction import Reduction


class SingleStepMesh(Mesh):
    name = "single_step_mesh"

    @classmethod
    def preferred(cls, question: Question) -> bool:
        return question.opcode == "all_reduce" and super().preferred(question) and _pays(question)

    def all_reduce(self, x: Party, flat: Array, reduction: Reduction) -> Waiting:
        buffers = yield from self.all_gather(x, flat)
        return [reduction.finish(reduction.fold(buffers))]

    def messages(self, opcode: str, size: int) -> Sequence[int]:
        return super().messages("all_gather" if opcode == "all_reduce" else opcode, size)

    def stages(self, opcode: str, m: Members, nbytes: float) -> list[Stage]:
        if opcode != "all_reduce":
            return super().stages(opcode, m, nbytes)
        if m.size == 1:
            return []
        copies = m.on_chip * m.on_chip * nbytes
        sent = [(m.crossed(m.chips[0], c), copies) for c in m.chips[1:]]
        latency = max(m.farthest(), m.arch.ring_hop_ns if m.nodes == 1 else 0.0)
        on_chip = (m.on_chip - 1) * nbytes / m.arch.chip_fabric_gbps
        return [Stage(latency, max(m.wire(sent), on_chip), m.touch(2 * m.size * nbytes))]


def _pays(question: Question) -> bool:
    arch, size = question.arch, question.size
    if question.one_node:
        gbps = arch.link_gbps.get("xy") or next(iter(arch.link_gbps.values()))
        hop_ns = arch.ring_hop_ns
    else:
        gbps = arch.efa_chip_gbps / question.layout.ranks_per_chip
        hop_ns = arch.efa_alpha_ns
    more = (size - 1) * question.nbytes * (1 - 2 / size)  # bytes a rank sends, than in two steps
    return more <= hop_ns * gbps
