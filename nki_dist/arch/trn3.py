"""Facts of NeuronCore-v4 (gen4): trn3, as in a Gen1 UltraServer, and what differs in Gen2.

Invariant: as `common.py`. Sources: A4, HW, DMAO; tags in `facts.DOCUMENTS`.
"""

from __future__ import annotations

from typing import Final

from nki_dist.arch.common import COMMON, GIB, KIB, matmul_tflops
from nki_dist.arch.facts import FrozenMap, assumed, derived, published

_BF16: Final = matmul_tflops(2.4)

FACTS: Final = FrozenMap(
    {
        **COMMON,
        "generation": published(4, "ISA nc_version"),
        "cores_per_stack": published(2, "A4, LNC: a bank belongs to a pair of cores"),
        "stacks_per_chip": published(4, "A4, HW"),
        "chips_per_instance": published(16, "HW: server of a Gen1 UltraServer; Gen2 has 4"),
        "instances_per_ultraserver": published(4, "HW: Gen1; Gen2 has 36 servers of 4 chips"),
        "sbuf_partition_bytes": published(256 * KIB, "A4"),
        "sbuf_usable_bytes": derived(
            245752, "size less 16 KiB and 8 bytes, as NKL on trn2; a third party has the same"
        ),
        "psum_banks_with_pe_transpose": published(7, "TS: trn2 and later"),
        "hbm_stack_bytes": published(36 * GIB, "A4, HW"),
        "hbm_stack_gbps": derived(
            1225.0, "HW 4.9 TB/s per chip, A4 4.7. Chosen: 4.9 / 4, which gives HW's rack totals"
        ),
        "vector_gpsimd_exclude_sbuf": published(False, "A3, kept by A4"),
        "vector_scalar_exclude_psum": published(False, "A3, kept by A4"),
        "moving_free_max": published(
            {"float32": 4096, "bfloat16": 8192},
            "ISA nc_matmul: all of PSUM; A4 draws 512 for MX. Chosen: ISA",
        ),
        "gemm_moving_fmax": assumed(
            512, "no figure for gen4; kernels size one-bank PSUM tiles by it, so 512 is safe"
        ),
        "engine_clock_ghz": published(
            {"tensor": 2.4, "vector": 1.2, "scalar": 1.2, "gpsimd": 1.2}, "A4"
        ),
        "engine_clock_ghz.sync": assumed(1.2, "no figure exists; taken as scalar"),
        "dependent_latency.tensor": assumed(390, "trn2's figure: the clock is the same"),
        "matmul_init_cycles": assumed(64, "A2's figure for gen2; none is given for gen4"),
        "vector_width": published(2, "A4: 256 elements per cycle in other types"),
        "vector_width_16bit": published(4, "A4: 512 elements per cycle, float8 too"),
        "activate_latency_ns": assumed(290.0, "trn2's figure: the clock is the same"),
        "act_table_load_ns": assumed(1290.0, "trn2's figure: the clock is the same"),
        "peak_tflops": derived(
            {"bfloat16": _BF16, "float16": _BF16, "float32": _BF16 / 4, "float8": _BF16 * 2},
            "2 x 128 x 128 x clock; A4 79, 20; float8 as A3's double_row",
        ),
        "dma_engine_gbps": published(38.4, "DMAO"),
        "dma_trigger_ns": assumed(8.0, "the figure of trn2; none exists for trn3"),
        "dma_element_ns": assumed(7.0, "trn1's figure (PERF); none exists for trn3"),
        "has_hwdge": published(True, "A3, DGE: from gen3"),
        "dma_issue_hwdge_ns": assumed(600.0, "A3's figure for trn2; none exists for trn3"),
        "dma_compute_fraction": published(1.0, "A4: read, add and write at the full rate"),
        "dma_transpose_hbm_fraction": assumed(0.9, "A3's figure for trn2"),
        "dma_transpose_sbuf_fraction": assumed(0.5, "A3's figure for trn2"),
        "dma_qos_classes": published(4, "A4, ISA: 0 is the highest"),
        "gpsimd_dma_gbps": assumed(153.0, "A3's figure for trn2"),
        "fabric": published("switch", "HW: NeuronLink-v4 and NeuronSwitch-v1"),
        "link_gbps": derived(
            {"server": 32.0, "rack": 32.0, "direct": 32.0},
            "HW trn3-arch levels of 256, 320 and 128 GB/s over 4, 5 and 2 links, halved per "
            "direction; HW also says 2.56 TB/s and 2048 GiB/s per chip, three bases that don't fit",
        ),
        "links_per_chip": published({"server": 4, "rack": 5, "direct": 2}, "HW trn3-arch, Gen2"),
        "collective_channel_gbps": assumed(
            53.0, "no figure exists; trn2's, as much faster as the DMA engines are"
        ),
        "mesh_link_share": derived(1.0, "HW: between switches, no chip passes on what others send"),
        "chip_fabric_gbps": assumed(1225.0, "no figure exists; taken as one HBM stack"),
        "sendrecv_gbps": assumed(528.0, "no figure exists; 16 engines at DMAB's sustained rate"),
        "efa_chip_gbps": derived(25.0, "HW: 12800 Gbps over 64 chips"),
    }
)

GEN2: Final = FrozenMap(
    {
        **FACTS,
        "chips_per_instance": published(4, "HW: server of a Gen2 UltraServer"),
        "instances_per_ultraserver": published(36, "HW: Gen2 UltraServer, 144 chips"),
    }
)
