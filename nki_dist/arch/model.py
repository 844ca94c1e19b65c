"""`Arch`: what one NeuronCore generation can do, and how fast, as one frozen object.

Invariant: every value except the two names comes from a `Fact`, so `Arch.sources()` can say for
each whether it is published, derived, fitted or assumed. Fields are grouped in the classes below
and read flat: `arch.psum_banks`, `arch.dma_engines`. Units are in the names: `_bytes`, `_ns`
nanoseconds, `_cycles` of the engine concerned, `_gbps` 10^9 bytes per second (one direction unless
said).

Doesn't hold cost formulas or dtype rules of instructions (each is in its own file of `isa`), nor
which ranks sit where (see the room topology). Source tags: `facts.DOCUMENTS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from nki_dist.arch.facts import Fact, FrozenMap, Kind
from nki_dist.errors import LaunchError


@dataclass(frozen=True)
class Chips:
    """Cores, chips and instances."""

    name: str  # the platform, as in NEURON_PLATFORM_TARGET_OVERRIDE: trn1, trn2 or trn3
    instance: str  # the variant asked for: differs from `name` for trn1n, inf2 and trn2u
    generation: int
    max_lnc: int
    default_lnc: int  # of the real platform; nki_dist launches LNC=1 unless configured
    cores_per_chip: int
    cores_per_stack: int
    stacks_per_chip: int
    chips_per_instance: int
    instances_per_ultraserver: int


@dataclass(frozen=True)
class Memory:
    """SBUF, PSUM and HBM. Sizes are per partition unless the name says otherwise."""

    partitions: int
    partition_quadrant: int
    sbuf_partition_bytes: int
    sbuf_usable_bytes: int
    sbuf_min_align: int
    psum_banks: int
    psum_usable_banks: int
    psum_banks_with_pe_transpose: int  # when DMA transposes are lowered to the Tensor engine
    psum_bank_bytes: int
    psum_partition_bytes: int
    psum_min_align: int
    hbm_stack_bytes: int
    hbm_stack_gbps: float
    hbm_efficiency: float  # of it, what transfers reach
    vector_gpsimd_exclude_sbuf: bool  # the two never access SBUF at the same time
    vector_scalar_exclude_psum: bool  # the two never access PSUM at the same time


@dataclass(frozen=True)
class Limits:
    """Largest shapes of instructions, as far as the machine sets them."""

    access_dims_max: int
    stationary_free_max: int  # columns of the Tensor engine's array; its rows are the partitions
    matmul_tile_min: int  # rows or columns of the smallest tile of the array
    moving_free_max: Mapping[str, int]  # by dst dtype: "float32", "bfloat16"
    gemm_moving_fmax: int  # what nl.tile_size reports
    transpose_tensor_max: int
    transpose_vector_max: int
    dma_transpose_last_dim_max: int
    bn_stats_fmax: int
    max8_max: int
    local_gather_indices_max: int
    gpsimd_core_partitions: int  # wired to one of GpSimd's cores
    gpsimd_dma_max_elements: int  # per partition that a sendrecv by GpSimd's own DMA can move
    dma_compute_sources_max: int


@dataclass(frozen=True)
class Timing:
    """Engines. Keys of the first two mappings: tensor, vector, scalar, gpsimd, sync."""

    engine_clock_ghz: Mapping[str, float]
    min_issue_cycles: int
    access_cycles: int  # Vector and Scalar, before the first element of SBUF or PSUM is there
    dependent_latency: Mapping[str, int]  # cycles added to a dependent one; not Scalar, see below
    gpsimd_start: int  # cycles
    accumulator_read_cycles: int
    dynamic_address_cycles: int
    register_cycles: int
    matmul_fp32_passes: int
    matmul_init_cycles: int
    matmul_exposed_cycles: int  # of each pass, loading the stationary operand
    matmul_switch_cycles: int  # from one matmul to the next, beyond the columns that pass
    tensor_ramp_ns: float
    tensor_ramp_fraction: float  # speed of the Tensor engine during the ramp
    tensor_busy_fraction: float  # of tensor_ramp_ns; less, and the ramp begins again
    vector_width: int  # elements per partition and cycle, all inputs together
    vector_width_16bit: int  # the same for 16-bit types, best case
    range_select_passes: float  # over its elements, on Vector
    reciprocal_cycles: int  # per element, on Vector
    activate_latency_ns: float  # what a dependent instruction of Scalar waits for
    act_table_load_ns: float
    semaphore_ns: float
    peak_tflops: Mapping[str, float]  # dense, per physical core, by dtype


@dataclass(frozen=True)
class Dma:
    """The DMA engines of one physical core."""

    dma_engines: int
    dma_queues_per_engine: int
    dma_partitions_per_engine: int
    dma_engine_gbps: float
    dma_element_ns: float  # shortest time of one discontiguous element
    has_hwdge: bool
    dma_issue_hwdge_ns: float
    dma_issue_swdge_ns: float
    dma_trigger_ns: float
    dma_semaphore_ns: float  # from semaphore to start, across engines
    dma_lead_fraction: float  # of dma_semaphore_ns, what passes before the first byte
    dma_packet_bytes: int
    # Pieces below this are moved one by one, with a small share; a row takes at least as long.
    dma_efficient_bytes: int
    dma_compute_fraction: float  # of the copy rate
    dma_transpose_hbm_fraction: float
    dma_transpose_sbuf_fraction: float
    dma_qos_classes: int
    gpsimd_dma_gbps: float  # per direction; 0 if GpSimd has no DMA of its own


@dataclass(frozen=True)
class Fabric:
    """Between cores, chips and instances. Keys of links: xy, z (torus) or server, rack, direct."""

    fabric: str  # "torus", "ring" or "switch"
    link_gbps: Mapping[str, float]  # of one link
    links_per_chip: Mapping[str, int]
    link_hop_ns: float
    ring_hop_ns: float
    chip_fabric_gbps: float  # core to the HBM or SBUF of another core of its chip
    core_barrier_ns: float
    sendrecv_ns: float
    sendrecv_gbps: float
    sendrecv_gpsimd_ns: float
    efa_alpha_ns: float
    efa_chip_gbps: float
    mesh_max_bytes: int  # up to here Mesh, then RDH, then KangaRing
    rdh_max_bytes: int
    mesh_link_share: float  # of a link's bandwidth, for what Mesh and all_to_all route over chips
    cc_cores_per_core: int  # processors that carry out collectives; each has a channel
    collective_channel_gbps: float  # that one channel copies: read once, written once
    collective_packet_bytes: int  # channels don't share less
    collective_start_ns: float
    kernel_start_ns: float
    kernel_end_ns: float
    kernel_pair_ns: float  # more around a kernel whose rank has two cores
    launch_gap_ns: float  # between the end of a launch and the start of the next, if it is queued
    launch_gap_most_ns: float  # what that may be


@dataclass(frozen=True)
class Arch(Chips, Memory, Limits, Timing, Dma, Fabric):
    """All facts about one generation; equal archs have equal values whatever their sources."""

    facts: Mapping[str, Fact] = field(repr=False, compare=False)

    @classmethod
    def from_facts(cls, name: str, instance: str, facts: Mapping[str, Fact]) -> Arch:
        """Build from one `Fact` per field; a missing or unknown one is a programming error.

        A fact named `field.key` adds one entry to the mapping of `field`: an entry may have
        another source, or deserve another trust, than the rest of its mapping.
        """
        values: dict[str, Any] = {key: f.value for key, f in facts.items() if "." not in key}
        for key, fact in facts.items():
            owner, dot, entry = key.partition(".")
            if dot:
                values[owner] = FrozenMap({**values[owner], entry: fact.value})
        return cls(name=name, instance=instance, facts=FrozenMap(facts), **values)

    def sources(self) -> Mapping[str, str]:
        """For each field or `field.key`: `"published: ..."`, `"derived: ..."`, `"assumed: ..."`."""
        return {key: str(fact) for key, fact in self.facts.items()}

    def assumptions(self) -> Mapping[str, str]:
        """The fields nobody publishes a figure for, with the reason for the value chosen."""
        return {key: fact.source for key, fact in self.facts.items() if fact.kind == "assumed"}

    def with_values(
        self, source: str = "set by the user", *, kind: Kind = "assumed", **values: Any
    ) -> Arch:
        """The same generation with other values, for instance a measured link latency.

        Raises LaunchError for a name that isn't a field.
        """
        changeable = {f.name for f in fields(self)} - {"name", "instance", "facts"}
        unknown = sorted(values.keys() - changeable)
        if unknown:
            raise LaunchError(
                f"an architecture has no value named {', '.join(unknown)}; "
                f"allowed: {', '.join(sorted(changeable))}",
                code="architecture-value",
            )
        changed = {key: Fact(value, kind, source) for key, value in values.items()}
        others = {key: f for key, f in self.facts.items() if key.partition(".")[0] not in changed}
        return Arch.from_facts(self.name, self.instance, {**others, **changed})

    def moving_free_limit(self, dst_dtype: str = "float32") -> int:
        """Most free elements of the moving operand of a matmul that writes `dst_dtype`."""
        return self.moving_free_max.get(dst_dtype, self.moving_free_max["float32"])

    def cycles_to_ns(self, cycles: float, engine: str) -> float:
        """Duration of `cycles` cycles of an engine."""
        return cycles / self.engine_clock_ghz[engine]

    @property
    def sbuf_bytes(self) -> int:
        """SBUF of one core, all partitions."""
        return self.sbuf_partition_bytes * self.partitions

    @property
    def cores_per_instance(self) -> int:
        """Physical cores of one instance."""
        return self.cores_per_chip * self.chips_per_instance
