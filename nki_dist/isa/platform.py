"""nisa.get_nc_version and get_nc_sub_version: what the kernel is compiled for."""

from __future__ import annotations

from nki_dist.isa.enums import nc_version
from nki_dist.isa.tracing import platform


def get_nc_version():
    """Generation of the NeuronCore the kernel is compiled for; the environment's outside one."""
    return nc_version(platform().generation)


def get_nc_sub_version():
    """Silicon revision within the generation: 0, the first."""
    return 0
