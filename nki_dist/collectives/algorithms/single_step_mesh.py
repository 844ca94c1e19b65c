"""Single-step mesh: every member sends its whole buffer to all others and reduces everything.

One step instead of mesh's two for N times the traffic, so for the smallest sizes. All-reduce only;
gathering and scattering are mesh's. Order of the reduction: the order of the group, as in mesh, so
both give the same bits.

Source: neuron-runtime/explore/intranode-collective-comm.rst, internode-collective-comm.rst.
"""

from __future__ import annotations

from typing import Final

from nki_dist.collectives.algorithms import Algorithm, mesh
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.reduction import Reduction


def all_reduce(x: Party, flat: Array, reduction: Reduction) -> Waiting:
    buffers = yield from mesh.all_gather(x, flat)
    return [reduction.finish(reduction.fold(buffers))]


SINGLE_STEP_MESH: Final = Algorithm(
    "single_step_mesh", mesh.all_gather, mesh.reduce_scatter, all_reduce
)
