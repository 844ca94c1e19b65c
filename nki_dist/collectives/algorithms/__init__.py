"""The algorithms of collectives, each in a file of its own; see `Algorithm`.

They stand in the order of preference: a group uses the first that fits and is preferred. Where
what they are documented for overlaps, that decides: a single step before Mesh, where it pays; Mesh
before RDH, RDH before KangaRing. Ring is for what is left, so it is the last.
"""

from __future__ import annotations

from typing import Final

from nki_dist.collectives.algorithm import Algorithm
from nki_dist.collectives.algorithms.hierarchical import Hierarchical
from nki_dist.collectives.algorithms.kangaring import KangaRing
from nki_dist.collectives.algorithms.mesh import Mesh
from nki_dist.collectives.algorithms.rdh import Rdh
from nki_dist.collectives.algorithms.ring import Ring
from nki_dist.collectives.algorithms.single_step_mesh import SingleStepMesh

ALGORITHMS: Final[tuple[type[Algorithm], ...]] = (
    SingleStepMesh,
    Mesh,
    Rdh,
    KangaRing,
    Hierarchical,
    Ring,
)
