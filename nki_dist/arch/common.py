"""Facts that don't differ between generations, or in one only, whose table then has its own, or for
which only one figure exists.

Invariant: every entry carries its source. What A2 says is shared because A3 and A4 are written as
changes to it; a figure a profile shows for one generation is `assumed` in the tables of the others.
Doesn't hold the formats of single instructions. Sources: `facts.DOCUMENTS`.
"""

from __future__ import annotations

from typing import Final

from nki_dist.arch.facts import FrozenMap, assumed, derived, fitted, published

KIB: Final = 1024
GIB: Final = 1024**3

COMMON: Final = FrozenMap(
    {
        # ---- chips ----
        "max_lnc": published(2, "LNC"),
        "default_lnc": published(2, "LNC"),
        "cores_per_chip": published(8, "HW"),
        # ---- memory ----
        "partitions": published(128, "A2, A3, A4"),
        "partition_quadrant": published(32, "A2: partitions are reached in groups of 32"),
        "sbuf_min_align": derived(4, "NKL norm_tkg_utils aligns to 4 bytes; TS gives no number"),
        "hbm_efficiency": fitted(
            0.91, "ROWS: two cores of trn2 stream weights at 650 GB/s from one stack of 716.8"
        ),
        "psum_banks": published(8, "A2"),
        "psum_usable_banks": published(8, "TS"),
        "psum_bank_bytes": published(2 * KIB, "A2: 16 KiB per partition in 8 banks"),
        "psum_partition_bytes": published(16 * KIB, "A2, A3, A4"),
        "psum_min_align": derived(4, "NKL norm_tkg_utils aligns to 4 bytes; TS gives no number"),
        # ---- limits ----
        "matmul_tile_min": published(32, "ISA nc_matmul"),
        "moving_free_max": published({"float32": 512, "bfloat16": 512}, "ISA nc_matmul"),
        "gemm_moving_fmax": published(512, "ISA nc_matmul"),
        "access_dims_max": published(4, "A2: free pattern of at most 4 dimensions"),
        "stationary_free_max": published(128, "ISA nc_matmul"),
        "transpose_tensor_max": published(128, "ISA nc_transpose on the Tensor engine"),
        "transpose_vector_max": published(32, "ISA nc_transpose on the Vector engine"),
        "dma_transpose_last_dim_max": published(
            128, "ISA dma_transpose: at most 128; DGE asks for multiples of 128. Chosen: ISA"
        ),
        "bn_stats_fmax": published(512, "ISA bn_stats"),
        "max8_max": published(16384, "ISA max8"),
        "local_gather_indices_max": published(4096, "ISA local_gather, per core"),
        "gpsimd_core_partitions": published(16, "A2: core i has partitions 16i to 16i + 15"),
        "gpsimd_dma_max_elements": published(256, "ISA sendrecv: 1024, 512 or 256 bytes by width"),
        "dma_compute_sources_max": published(16, "ISA dma_compute"),
        # ---- timing ----
        "tensor_ramp_ns": published(3000.0, "EXP: full speed after about 3 us"),
        "tensor_ramp_fraction": published(0.5, "EXP: starts at about 50 % of peak"),
        "tensor_busy_fraction": published(0.5, "EXP: drops back below 50 % in a window of 3 us"),
        "min_issue_cycles": published(64, "ISA26, SHR: about 64 cycles for any compute engine"),
        "access_cycles": fitted(
            68,
            "A2: about 60 cycles to begin an access to SBUF or PSUM, which engines can hide in "
            "part; PERF: about 100 for each instruction; ROWS have 40 to 120 on Vector (rope and "
            "Mamba of several widths), though ISA26 has max(64, N)",
        ),
        "dependent_latency": published(
            {"vector": 100}, "A2: 100 more for small or dependent ones on Vector"
        ),
        "dependent_latency.gpsimd": assumed(
            0, "no figure exists; gpsimd_start is charged to every GpSimd instruction already"
        ),
        "dependent_latency.sync": assumed(0, "no figure exists; Sync has no datapath"),
        "gpsimd_start": published(150, "ISA26: about 150 cycles per GpSimd instruction"),
        "accumulator_read_cycles": published(64, "ISA26 activation_reduce: one instruction"),
        "dynamic_address_cycles": published(600, "ISA26 tensor_copy_dynamic_src and _dst"),
        "register_cycles": assumed(64, "no figure exists; taken as the minimum issue interval"),
        "matmul_switch_cycles": derived(
            15,
            "PROFILE (kernel-optimization.rst, v3): 32,768 float32 nc_matmul keep Tensor busy for "
            "28.16 ms, 859.4 ns each; 4 x 512 cycles are 853.3. ROWS in bfloat16: 17 to 20",
        ),
        "matmul_exposed_cycles": derived(
            0, "PROFILE (kernel-optimization.rst, v3): products follow each other without a gap"
        ),
        "matmul_fp32_passes": published(4, "A2, ISA26: float32 runs at a quarter of the rate"),
        "range_select_passes": fitted(
            1.8, "ROWS: attention on parts of the context, whose masks it makes; no figure exists"
        ),
        "reciprocal_cycles": fitted(
            2,
            "ROWS: Vector is busy for 985 us of AccelOpt's silu on trn1, of which 410 are products "
            "and 100 starts; 448 reciprocals of 512 elements have the rest. ISA26 says 8",
        ),
        "semaphore_ns": fitted(
            240, "ROWS: chains of small instructions on several engines; no document has a figure"
        ),
        # ---- DMA ----
        "dma_compute_fraction": published(0.5, "ISA dma_compute: about 50 % before gen4"),
        "dma_qos_classes": published(1, "A4: classes exist from gen4"),
        "dma_engines": published(16, "DMAO: per core, gen2 to gen4"),
        "dma_queues_per_engine": published(16, "DMAO"),
        "dma_partitions_per_engine": published(8, "DMAO"),
        "dma_issue_swdge_ns": assumed(
            1000, "no figure exists; GpSimd writes the descriptors, so more than hardware's 600"
        ),
        "dma_semaphore_ns": published(1300, "DMAB: about 1300 ns across engines"),
        "dma_lead_fraction": derived(
            1000 / 1300,
            "DMAO's profile of a [4, 4096] load: trigger at 22,275 ns, first packet at 23,283, "
            "last at 24,699, its user at 25,015",
        ),
        "dma_efficient_bytes": published(512, "DMAB: pieces of 512 bytes and more move well"),
        "dma_packet_bytes": published(4 * KIB, "CCO: default of static compute DMA"),
        # ---- fabric ----
        "link_hop_ns": assumed(200, "no figure exists for one link; small beside ring_hop_ns"),
        "ring_hop_ns": derived(
            1940,
            "INTRA: RDH and KangaRing take equally long at rdh_max_bytes, trn2, 64 ranks, with "
            "collective_channel_gbps; INTRA also says 1 to 2 us, depending on HBM load",
        ),
        "core_barrier_ns": assumed(
            369, "no figure exists; PROFILE: barrier of the collectives takes 369 ns"
        ),
        "sendrecv_ns": fitted(
            3000, "ROWS: token generation on two cores; no document has a figure"
        ),
        "sendrecv_gpsimd_ns": assumed(
            500, "no figure exists; below DMA's alpha because AWS calls this path low-latency"
        ),
        "efa_alpha_ns": published(15000, "COLL, INTER: smallest packet, HBM to HBM, about 15 us"),
        "mesh_max_bytes": published(1 << 20, "INTRA: Mesh below 1 MB (taken as MiB)"),
        "rdh_max_bytes": published(56 << 20, "INTRA: RDH from 1 to 56 MB (taken as MiB)"),
        "mesh_link_share": derived(
            0.365, "INTRA: Mesh and RDH take equally long at mesh_max_bytes, trn2, 64 ranks"
        ),
        "cc_cores_per_core": published(2, "CCO: two CC-cores per physical core"),
        "collective_packet_bytes": published(64 * KIB, "CCO: default and most for collectives"),
        "collective_start_ns": derived(
            3700,
            "NCT: all-gathers of 1 KB take 6.2 us (32 ranks) and 10.0 us (8); their mean, without "
            "Mesh's two steps. INTRA: 1 to tens of us for all latencies together",
        ),
        "kernel_start_ns": fitted(
            7000, "ROWS: the smallest kernels, without kernel_end_ns; PROFILE: 13 to 20 us before"
        ),
        "kernel_pair_ns": fitted(
            10000,
            "ROWS: kernels on both cores of a pair, against the same on one; no figure exists",
        ),
        "kernel_end_ns": derived(5000, "PROFILE: about 5 us after the last instruction"),
        "launch_gap_ns": published(
            0, "ASYNC: executions that are queued show no idle time between them"
        ),
        "launch_gap_most_ns": derived(
            20_000,
            "ASYNC: an execution of 5.18 ms takes 5.20 ms in all when it is queued; both rounded, "
            "and nobody publishes how fast a host can queue short kernels",
        ),
    }
)


def matmul_tflops(clock_ghz: float) -> float:
    """bf16 peak of one core: two operations in each of 128x128 cells per Tensor cycle."""
    return 2 * 128 * 128 * clock_ghz / 1000
