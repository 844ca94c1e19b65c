"""Facts of NeuronCore-v3 (gen3): trn2, with the differences of trn2u.

Invariant: as `common.py`. Doesn't model sparsity, which has no API, nor power caps. Sources: A3,
HW, DMAO, DMAB; tags in `facts.DOCUMENTS`.
"""

from __future__ import annotations

from typing import Final

from nki_dist.arch.common import COMMON, GIB, KIB, matmul_tflops
from nki_dist.arch.facts import FrozenMap, assumed, derived, fitted, published

_BF16: Final = matmul_tflops(2.4)

FACTS: Final = FrozenMap(
    {
        **COMMON,
        "generation": published(3, "ISA nc_version"),
        "cores_per_stack": published(2, "A3, LNC: a bank belongs to a pair of cores"),
        "stacks_per_chip": published(4, "A3, HW"),
        "chips_per_instance": published(16, "HW trn2-arch"),
        "instances_per_ultraserver": published(1, "HW: trn2.48xlarge stands alone"),
        "sbuf_partition_bytes": published(
            224 * KIB, "A3; EXP says 256 KiB without generation. Chosen: A3"
        ),
        "sbuf_usable_bytes": derived(212984, "NKL: size less 16 KiB and 8 bytes"),
        "psum_banks_with_pe_transpose": published(7, "TS"),
        "hbm_stack_bytes": published(24 * GIB, "A3, HW; EXP's 32 GB per core is not used"),
        "hbm_stack_gbps": derived(
            716.8,
            "A3 3.0 TB/s per chip, HW 2.9, the profiler's denominator 2.867. Chosen: the last / 4",
        ),
        "vector_gpsimd_exclude_sbuf": published(False, "A3"),
        "vector_scalar_exclude_psum": published(False, "A3: full rate in different banks"),
        "engine_clock_ghz": published(
            {"tensor": 2.4, "vector": 0.96, "scalar": 1.2, "gpsimd": 1.2}, "A3"
        ),
        "engine_clock_ghz.sync": assumed(1.2, "no figure exists; taken as scalar"),
        "dependent_latency.tensor": derived(
            390, "PROFILE: a float32 MATMUL of 512 rows takes 590 ns, of which 427 are its rows"
        ),
        "matmul_init_cycles": assumed(64, "A2's figure for gen2; none is given for gen3"),
        "vector_width": published(2, "A3: 256 elements per cycle in other types"),
        "vector_width_16bit": published(4, "A3: 512 elements per cycle in 16 bits"),
        "activate_latency_ns": derived(290.0, "PROFILE: ACTIVATE takes 0.29 us + N x 0.833 ns"),
        "act_table_load_ns": derived(1290.0, "PROFILE: ACT_TABLE_LOAD takes 1.29 us"),
        "peak_tflops": derived(
            {"bfloat16": _BF16, "float16": _BF16, "float32": _BF16 / 4, "float8": _BF16 * 2},
            "2 x 128 x 128 x clock, the profiler's denominator; A3 79, 20, 158; HW 667 per chip",
        ),
        "dma_engine_gbps": fitted(
            25.5,
            "ROWS: weights streamed by one core; DMAO's peak is 27.2, DMAB's sustained rate 23",
        ),
        "dma_trigger_ns": derived(8.0, "PROFILE: trigger instruction on its queue"),
        "dma_element_ns": fitted(
            16.0, "ROWS: norms that load pieces of 24 to 64 bytes; PERF has 7 for 4 bytes on trn1"
        ),
        "has_hwdge": published(True, "A3, DGE"),
        "dma_issue_hwdge_ns": published(600.0, "A3, DGE: about 600 ns per DMA instruction"),
        "dma_transpose_hbm_fraction": published(0.9, "A3: up to 90 % of the copy rate"),
        "dma_transpose_sbuf_fraction": published(0.5, "A3: up to 50 % of the copy rate"),
        "gpsimd_dma_gbps": published(153.0, "A3: 307 GB/s, 153 each way"),
        "fabric": published("torus", "HW, LS: 4x4; an UltraServer adds Z: 4x4x4"),
        "link_gbps": derived(
            {"xy": 128.0, "z": 64.0},
            "HW: 1024 GB/s over 4 links and 256 over 2, both directions summed (assumed)",
        ),
        "links_per_chip": published({"xy": 4, "z": 2}, "HW; Z only in an UltraServer"),
        "collective_channel_gbps": derived(
            37.5, "NCT: permutation on one chip, 32 MiB in 894 us, with one channel"
        ),
        "chip_fabric_gbps": assumed(716.8, "no figure exists; taken as one HBM stack"),
        "sendrecv_gbps": assumed(368.0, "no figure exists; 16 engines at DMAB's sustained rate"),
        "efa_chip_gbps": published(25.0, "COLL: one 200 Gbps interface per chip"),
    }
)

TRN2U: Final = FrozenMap(
    {**FACTS, "instances_per_ultraserver": published(4, "HW: Trn2 UltraServer, 64 chips")}
)
