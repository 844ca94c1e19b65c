"""Probes: what can be seen of a figure from outside, without running anything.

A probe is a function of an `Arch` that gives something to compare: whether the compiler accepts a
kernel, nl.tile_size, addresses, a schedule in simulated time, places of ranks, costs of
collectives. `PROBES` has those of every figure; each has to see the figure change.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from unittest import mock

import nki_dist.language as nl
from nki_dist import dtypes
from nki_dist.arch import Arch, allowed_start_partitions
from nki_dist.collectives.timing import collective_rules
from nki_dist.errors import NkiError
from nki_dist.program import Access, Instruction, MemoryRegion, Program, Storage
from nki_dist.timing import Seat, profile_launch
from nki_dist.timing.exchange import Seats
from nki_dist.timing.sequence import gap_between
from nki_dist.topology import topology as topologies
from nki_dist.topology.topology import Topology, system
from tests.arch import kernels
from tests.timing.build import compiled

Probe = Callable[[Arch], Any]


def said(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, or the message it refuses with."""
    try:
        return function(*arguments)
    except NkiError as error:
        return error.message


# ---- the compiler -------------------------------------------------------------------------------


def compiling(kernel: Callable[[], Any]) -> Probe:
    """Whether a kernel is accepted; a message could quote a limit that isn't applied."""

    def tracing(x: Any) -> None:
        kernel()

    def probe(arch: Arch) -> bool:
        try:
            compiled(tracing, [(4, 4)], platform=arch)
        except NkiError:
            return False
        return True

    return probe


def starts(arch: Arch) -> list[tuple[int, ...]]:
    """Where engines can begin, for few partitions and for more than a quadrant."""
    return [allowed_start_partitions(count, arch) for count in (16, 48)]


def tile_size(name: str, **environment: str) -> Probe:
    """A constant of nl.tile_size, inside a kernel."""

    def probe(arch: Arch) -> list[int]:
        seen = []
        with mock.patch.dict(os.environ, environment):
            compiled(lambda x: seen.append(getattr(nl.tile_size, name)), [(4, 4)], platform=arch)
        return seen

    return probe


def addresses(make: Callable[..., Any]) -> Probe:
    """Where tensors of odd sizes are placed."""

    def kernel(x: Any) -> None:
        kernels.many_alive(lambda: make(128, 3, dtype=nl.bfloat16), 3)

    def probe(arch: Arch) -> list[Any]:
        (program,) = compiled(kernel, [(4, 4)], platform=arch)[0]
        return [s.address for s in program.storages]

    return probe


# ---- simulated time -----------------------------------------------------------------------------


@functools.cache
def _programs(
    kernel: Callable[..., Any], arch: Arch, cores: int, shape: tuple[int, ...]
) -> list[Program]:
    return compiled(kernel, [shape], cores, platform=arch)[0]


def timing(
    kernel: Callable[..., Any],
    cores: int = 1,
    alone: int = 1,
    shape: tuple[int, ...] = (128, 512),
    schedule: str = "compiled",
) -> Callable[[Arch], Probe]:
    """The profile of a kernel, and when each of its instructions began and ended.

    Args:
        cores: of the logical core.
        alone: how many logical cores run it.
        schedule: see `replay`.
    """

    def of(base: Arch) -> Probe:
        programs = _programs(kernel, base, cores, shape) * alone

        def probe(arch: Arch) -> Any:
            trips: list[list[int]] = [[]] * len(programs)
            profile = profile_launch(programs, trips, arch, "probe", schedule=schedule)
            profile.assumed_parameters.clear()  # says "set by the user", whatever it is for
            cores = profile.timeline.cores
            times = [(c.ready, c.start, c.end, c.done, c.queues) for c in cores]
            return times, profile.to_dict()

        return probe

    return of


# ---- ranks and collectives ----------------------------------------------------------------------


def places(arch: Arch) -> Any:
    """Places and paths of ranks in two domains, and the drawing."""

    def look() -> Any:
        topology = _domains(arch)
        ranks = range(0, topology.ranks, max(1, topology.ranks // 37))
        paths = [said(topology.path, 0, r) for r in ranks]
        return [str(topology.place(r)) for r in ranks], paths, topology.draw()

    return said(look)


def _domains(arch: Arch, count: int = 2) -> Topology:
    """A world that fills some instances, or UltraServers."""
    return Topology(arch, count * arch.cores_per_instance * arch.instances_per_ultraserver, 1)


def gaps(arch: Arch) -> Any:
    """The time between launches."""
    return gap_between(arch)[:3]


def degrees(arch: Arch) -> Any:
    return [said(lambda lnc=lnc: bool(Topology(arch, 8, lnc))) for lnc in (2, 4)]


def usual_degree(arch: Arch) -> Any:
    """LNC of a system whose user doesn't say."""
    with mock.patch.object(topologies.architectures, "get", lambda name: arch):
        return said(lambda: system("trn2", ranks=4).lnc)


@functools.lru_cache(maxsize=8)
def costs(arch: Arch) -> Any:
    """Of collectives of several sizes, on a chip, between chips, and between instances."""

    found = []
    for group in _groups(arch):
        ranks = Seats([Seat(r, 0, 0) for r in group])
        rules = collective_rules(_domains(arch))
        found += [said(rules[i.opcode], i, 0, ranks, arch) for i in _collectives(group)]
    return found


def _groups(arch: Arch) -> Iterator[list[int]]:
    chip, instance = arch.cores_per_chip, arch.cores_per_instance
    domain = instance * arch.instances_per_ultraserver
    yield list(range(chip))
    yield list(range(4 * chip))
    yield [0, 1, domain, domain + 1]
    for other in (domain // 2, instance, domain):
        yield [0, other]
    instances = {n * instance % domain for n in (0, 1)} | {domain // 2}
    yield sorted(
        {first + n * chip for first in instances for n in (0, 1, 5) if n * chip < instance}
    )


def _collectives(group: list[int]) -> Iterator[Instruction]:
    for nbytes in (1 << 16, 3 << 19, 1 << 23, 5 << 24):
        storage = Storage(0, MemoryRegion.shared_hbm, (1, nbytes), dtypes.uint8)
        tensor = Access(storage, 0, storage.shape, storage.strides, dtypes.uint8)
        common = {"srcs": [tensor], "dsts": [tensor], "replica_group": [group]}
        for opcode in ("all_reduce", "all_gather", "all_to_all"):
            yield Instruction(opcode, common, "cc", 0, 0)
        channels = {"channel_ids": [0, 1, 2, 3]}
        yield Instruction("collective_permute_implicit", {**common, **channels}, "cc", 0, 0)


# ---- which probe sees which figure --------------------------------------------------------------

_BUSY: Final = timing(kernels.busy)
_ADDRESSED: Final = timing(kernels.addressed)
_MATMULS: Final = timing(kernels.multiplying)
_PORTS: Final = timing(kernels.ports)
_LOADING: Final = timing(kernels.loading, alone=2, shape=(128, 8192))
_RENDEZVOUS: Final = timing(kernels.rendezvous, cores=2)

_TIMED: Final[Mapping[Callable[[Arch], Probe], str]] = {
    _BUSY: """engine_clock_ghz.vector engine_clock_ghz.scalar engine_clock_ghz.gpsimd
        access_cycles dependent_latency.vector dependent_latency.gpsimd gpsimd_start
        accumulator_read_cycles activate_latency_ns act_table_load_ns
        semaphore_ns dma_engines dma_partitions_per_engine
        dma_element_ns dma_semaphore_ns dma_lead_fraction dma_packet_bytes
        dma_compute_fraction dma_transpose_hbm_fraction dma_transpose_sbuf_fraction
        kernel_start_ns kernel_end_ns""",
    _ADDRESSED: """engine_clock_ghz.sync dependent_latency.sync dynamic_address_cycles
        register_cycles has_hwdge dma_issue_hwdge_ns dma_issue_swdge_ns""",
    _MATMULS: """engine_clock_ghz.tensor dependent_latency.tensor matmul_fp32_passes
        matmul_init_cycles matmul_exposed_cycles matmul_switch_cycles tensor_ramp_ns
        tensor_ramp_fraction tensor_busy_fraction""",
    timing(kernels.copied_fast, cores=2): "kernel_pair_ns",
    timing(kernels.busy, schedule="program"): "dma_queues_per_engine",
    timing(kernels.scattered, shape=(128, 4096)): "dma_efficient_bytes",
    timing(kernels.copied_fast): "vector_width_16bit",
    timing(kernels.copied_apart): "vector_width_16bit",
    timing(kernels.combined): "vector_width_16bit",
    timing(kernels.short): "min_issue_cycles",
    timing(kernels.combined_wide): "vector_width",
    timing(kernels.inverted): "reciprocal_cycles",
    timing(kernels.selected): "range_select_passes",
    _PORTS: "vector_gpsimd_exclude_sbuf vector_scalar_exclude_psum",
    _LOADING: "dma_engine_gbps dma_trigger_ns hbm_stack_gbps hbm_efficiency cores_per_stack",
    _RENDEZVOUS: "core_barrier_ns sendrecv_ns sendrecv_gbps sendrecv_gpsimd_ns gpsimd_dma_gbps",
    **{
        timing(kernels.product_of(getattr(nl, dtype))): f"peak_tflops.{key}"
        for key, dtype in (
            ("bfloat16", "bfloat16"),
            ("float16", "float16"),
            ("float32", "float32"),
            ("float8", "float8_e5m2"),
        )
    },
}

_SEEN: Final[Mapping[Probe, str]] = {
    places: """cores_per_chip cores_per_stack chips_per_instance instances_per_ultraserver
        fabric efa_chip_gbps""",
    gaps: "launch_gap_ns launch_gap_most_ns",
    degrees: "max_lnc",
    usual_degree: "default_lnc",
    costs: """stacks_per_chip hbm_stack_gbps link_gbps.xy link_gbps.z link_gbps.server
        link_gbps.rack link_gbps.direct links_per_chip.xy links_per_chip.z links_per_chip.server
        links_per_chip.rack links_per_chip.direct link_hop_ns ring_hop_ns chip_fabric_gbps
        efa_alpha_ns efa_chip_gbps mesh_max_bytes rdh_max_bytes mesh_link_share cc_cores_per_core
        collective_channel_gbps collective_packet_bytes collective_start_ns""",
    starts: "partitions partition_quadrant",
    addresses(kernels.sbuf): "sbuf_min_align",
    addresses(kernels.psum): "psum_min_align",
    tile_size("pmax"): "partitions",
    tile_size("sbuf_size_bytes"): "partitions sbuf_partition_bytes",
    tile_size("sbuf_fmax_bytes"): "sbuf_usable_bytes",
    tile_size("sbuf_min_align"): "sbuf_min_align",
    tile_size("psum_min_align"): "psum_min_align",
    tile_size("psum_bank_fmax"): "psum_bank_bytes",
    tile_size("psum_num_banks"): "psum_banks",
    tile_size(
        "psum_num_banks", NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE="true"
    ): "psum_banks_with_pe_transpose",
    tile_size("gemm_stationary_fmax"): "stationary_free_max",
    tile_size("gemm_moving_fmax"): "gemm_moving_fmax",
    tile_size("bn_stats_fmax"): "bn_stats_fmax",
}

# A platform that lacks what a figure belongs to is probed as if it had it.
FEATURES: Final[Mapping[str, Mapping[str, Any]]] = {
    "dma_issue_hwdge_ns": {"has_hwdge": True},
    "dma_qos_classes": {"generation": 4},
    "dma_transpose_last_dim_max": {"generation": 4},
    "efa_alpha_ns": {"efa_chip_gbps": 25.0},
    "gpsimd_core_partitions": {"generation": 4},
    "gpsimd_dma_max_elements": {"generation": 4},
    "link_gbps.z": {"instances_per_ultraserver": 4},
    "links_per_chip.z": {"instances_per_ultraserver": 4},
    "psum_bank_bytes": {"generation": 3},
    "range_select_passes": {"generation": 3},
    "stacks_per_chip": {"hbm_stack_gbps": 1.0},  # else collectives are slower than the HBM
    "stationary_free_max": {"generation": 4},
    "tensor_busy_fraction": {"tensor_ramp_ns": 3000.0, "tensor_ramp_fraction": 0.5},
    "tensor_ramp_fraction": {"tensor_ramp_ns": 3000.0},
    "tensor_ramp_ns": {"tensor_ramp_fraction": 0.5},
    "moving_free_max.bfloat16": {"generation": 4},
    **{figure: {"generation": 4} for figure in _TIMED[_RENDEZVOUS].split()},
}


def probes(figure: str, base: Arch) -> list[Probe]:
    """All probes of a figure; those of time compile their kernels for `base`."""
    timed = [of(base) for of, figures in _TIMED.items() if figure in figures.split()]
    seen = [probe for probe, figures in _SEEN.items() if figure in figures.split()]
    return [*timed, *seen, *map(compiling, kernels.LIMITS.get(figure, ()))]
