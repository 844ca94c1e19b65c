"""Facts of NeuronCore-v2 (gen2): trn1, with the differences of trn1n and inf2.

Invariant: as `common.py`. Doesn't model inf2.24xlarge, which has 6 chips. Sources: A2, HW, PERF,
DMAO, LAYOUT; tags in `facts.DOCUMENTS`.
"""

from __future__ import annotations

from typing import Final

from nki_dist.arch.common import COMMON, GIB, KIB, matmul_tflops
from nki_dist.arch.facts import FrozenMap, assumed, derived, fitted, published

_BF16: Final = matmul_tflops(2.8)

FACTS: Final = FrozenMap(
    {
        **COMMON,
        "generation": published(2, "ISA nc_version"),
        "max_lnc": published(1, "LNC: not available on trn1 and inf2"),
        "default_lnc": published(1, "LNC"),
        "cores_per_chip": published(2, "HW"),
        "cores_per_stack": derived(1, "A2: 2 stacks, 2 cores; PERF profiles use 410 GB/s a core"),
        "stacks_per_chip": published(2, "A2"),
        "chips_per_instance": published(16, "HW trn1-arch"),
        "instances_per_ultraserver": published(1, "HW: no UltraServer"),
        "sbuf_partition_bytes": published(
            192 * KIB, "A2; EXP says 256 KiB without generation. Chosen: A2"
        ),
        "sbuf_usable_bytes": derived(
            180224, "size less 16 KiB, a third party's figure (low confidence)"
        ),
        "psum_banks_with_pe_transpose": published(8, "TS: the reserved bank is trn2 and later"),
        "hbm_stack_bytes": published(16 * GIB, "A2"),
        "hbm_stack_gbps": derived(410.0, "HW: 820 GB/s in 2 stacks; the profiler's denominator"),
        "vector_gpsimd_exclude_sbuf": published(True, "A2"),
        "vector_scalar_exclude_psum": published(True, "A2"),
        "matmul_tile_min": published(64, "ISA: tiles of 32 are gen3 and later"),
        "engine_clock_ghz": published(
            {"tensor": 2.8, "vector": 1.12, "scalar": 1.4, "gpsimd": 1.4}, "A2"
        ),
        "engine_clock_ghz.sync": assumed(1.4, "no figure exists; taken as scalar"),
        "dependent_latency.tensor": derived(
            351,
            "PROFILE: MATMUL of 128 rows takes 188, 195 and 219 ns, of which 46 are its rows and "
            "23 loading its stationary operand (matmul_exposed_cycles)",
        ),
        "matmul_init_cycles": published(64, "A2"),
        "matmul_exposed_cycles": fitted(
            64, "A2's start of a product, not hidden: PERF's and the tutorial's matmul, 85 % HFU"
        ),
        "tensor_ramp_ns": assumed(0.0, "EXP names trn2 and trn3 only: no ramp"),
        "tensor_ramp_fraction": assumed(1.0, "EXP names trn2 and trn3 only: no ramp"),
        "tensor_busy_fraction": assumed(0.0, "EXP names trn2 and trn3 only: no ramp"),
        "vector_width": published(1, "A2: 128 elements per cycle"),
        "vector_width_16bit": published(1, "A2: 128 elements per cycle"),
        "activate_latency_ns": derived(159.0, "PROFILE: ACTIVATE of one element"),
        "act_table_load_ns": derived(368.0, "PROFILE: a tiny exp kernel"),
        "peak_tflops": derived(
            {"bfloat16": _BF16, "float16": _BF16, "float32": _BF16 / 4, "float8": _BF16},
            "2 x 128 x 128 x clock; A2 rounds to 92, 23 and 92; HW gives 95 (190 per chip)",
        ),
        "dma_engine_gbps": fitted(
            17.0, "ROWS: a matmul that moves 5.4 GB; DMAB's sustained rate. DMAO's peak is 27.2"
        ),
        "dma_trigger_ns": assumed(8.0, "the figure of trn2; none exists for trn1"),
        "dma_element_ns": derived(7.0, "PERF: 4 bytes take about 7 ns on the engine"),
        "has_hwdge": published(False, "A3, DGE: from gen3"),
        "dma_issue_hwdge_ns": assumed(600.0, "unused, since has_hwdge is False; trn2's figure"),
        "dma_transpose_hbm_fraction": assumed(
            0.1,
            "no figure exists; PERF has elements at 1/7 of the useful rate and advises against it",
        ),
        "dma_transpose_sbuf_fraction": assumed(0.1, "as from HBM"),
        "gpsimd_dma_gbps": published(0.0, "A3: integrated DMA exists from gen3"),
        "fabric": published("torus", "HW: 4x4 torus; LS: device d at row d // 4, column d % 4"),
        "link_gbps": derived(
            {"xy": 48.0}, "HW: 384 GB/s per chip over 4 links, both directions summed (assumed)"
        ),
        "links_per_chip": published({"xy": 4}, "A2"),
        "collective_channel_gbps": derived(
            37.5, "NCT: permutation of trn2 ranks; two such channels fit trn1's all-reduce, too"
        ),
        "chip_fabric_gbps": assumed(410.0, "no figure exists; taken as one HBM stack"),
        "sendrecv_gbps": assumed(272.0, "sendrecv needs LNC=2, unused here; 16 engines, DMAB"),
        "efa_chip_gbps": derived(6.25, "HW: 800 Gbps per instance over 16 chips"),
    }
)

TRN1N: Final = FrozenMap(
    {
        **FACTS,
        "link_gbps": derived(
            {"xy": 96.0}, "HW: 768 GB/s per chip over 4 links, both directions summed (assumed)"
        ),
        "efa_chip_gbps": derived(12.5, "HW: 1600 Gbps per instance over 16 chips"),
    }
)

INF2: Final = FrozenMap(
    {
        **FACTS,
        "chips_per_instance": published(12, "HW inf2-arch: 48xlarge; 24xlarge has 6"),
        "mesh_link_share": derived(1.0, "LAYOUT: in a ring there is one shortest way to each chip"),
        "fabric": published("ring", "LAYOUT: neighbours d - 1 and d + 1 modulo 12"),
        "link_gbps": derived(
            {"xy": 96 * GIB / 1e9 / 2}, "HW: 96 GiB/s per link, both directions summed (assumed)"
        ),
        "links_per_chip": published({"xy": 2}, "A2"),
        "efa_chip_gbps": published(0.0, "HW: no EFA between instances"),
    }
)
