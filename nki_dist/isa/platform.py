"""nisa.get_nc_version and get_nc_sub_version: what the kernel is compiled for."""

from __future__ import annotations

from nki_dist import arch
from nki_dist.isa.enums import nc_version
from nki_dist.isa.spec import current_tracer, tracing


def get_nc_version():
    """Generation of the NeuronCore the kernel is compiled for; the environment's outside one."""
    platform = current_tracer().arch if tracing() else arch.from_environment()
    return nc_version(platform.generation)


def get_nc_sub_version():
    """Silicon revision within the generation: 0, the first."""
    return 0
