"""Facts of the generations: complete, sourced, consistent with each other, looked up by name."""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Mapping

import pytest

from nki_dist import arch as arches
from nki_dist.errors import LaunchError

NAMES = ("trn1", "trn1n", "inf2", "trn2", "trn2u", "trn3")
ENGINES = {"tensor", "vector", "scalar", "gpsimd", "sync"}
TRN2 = arches.get("trn2")


@pytest.fixture(params=NAMES)
def arch(request) -> arches.Arch:
    return arches.get(request.param)


def numeric_fields(arch: arches.Arch) -> dict[str, object]:
    return {
        f.name: getattr(arch, f.name)
        for f in dataclasses.fields(arch)
        if f.name not in ("name", "instance", "fabric", "facts")
    }


def test_every_numeric_field_has_a_source(arch):
    sources = arch.sources()
    for name in numeric_fields(arch):
        kind, _, text = sources[name].partition(": ")
        assert kind in ("published", "derived", "fitted", "assumed"), name
        assert len(text) > 1, name


def test_every_fact_is_the_value_of_its_field_or_entry(arch):
    for name, fact in arch.facts.items():
        owner, dot, key = name.partition(".")
        value = getattr(arch, owner)
        if dot:
            assert value[key] == fact.value
        elif isinstance(value, Mapping):
            assert {**value, **fact.value} == dict(value), name
        else:
            assert value == fact.value, name


def test_an_entry_nobody_publishes_does_not_hide_in_its_mapping(arch):
    assert "engine_clock_ghz.sync" in arch.assumptions()
    assert arch.sources()["engine_clock_ghz"].startswith("published: ")
    clocks = dict.fromkeys(ENGINES, 1.5)
    measured = arch.with_values("measured", engine_clock_ghz=clocks)
    assert dict(measured.engine_clock_ghz) == clocks
    assert "engine_clock_ghz.sync" not in measured.facts


def test_published_facts_name_a_known_document(arch):
    tags = {tag for tag, _ in arches.DOCUMENTS}
    for name, fact in arch.facts.items():
        if fact.kind == "published":
            words = set(re.findall(r"[A-Z]+\d*", fact.source))
            assert words & tags, f"{name}: {fact.source}"


def test_values_are_numbers_of_a_sensible_sign(arch):
    for name, value in numeric_fields(arch).items():
        entries = value.values() if isinstance(value, Mapping) else [value]
        for entry in entries:
            assert isinstance(entry, (int, float)) and entry >= 0, name


def test_unpublished_figures_are_listed_as_assumptions(arch):
    guesses = arch.assumptions()
    for name in ("core_barrier_ns", "sendrecv_gpsimd_ns", "link_hop_ns", "chip_fabric_gbps"):
        assert name in guesses
    assert not {"partitions", "sendrecv_ns", "range_select_passes"} & guesses.keys()


def test_memory_sizes_agree(arch):
    assert arch.psum_banks * arch.psum_bank_bytes == arch.psum_partition_bytes
    assert arch.sbuf_usable_bytes < arch.sbuf_partition_bytes
    assert arch.cores_per_stack * arch.stacks_per_chip == arch.cores_per_chip
    assert arch.max_lnc in (arch.cores_per_stack, 1)
    assert set(arch.engine_clock_ghz) == {*arch.dependent_latency, "scalar"} == ENGINES
    assert set(arch.link_gbps) == set(arch.links_per_chip)
    assert arch.dma_engines * arch.dma_partitions_per_engine == arch.partitions


@pytest.mark.parametrize(
    ("name", "generation", "usable", "chip_sbuf_mib", "instance_gib", "cores"),
    [
        ("trn1", 2, 180224, 48, 512, 32),
        ("inf2", 2, 180224, 48, 384, 24),
        ("trn2", 3, 212984, 224, 1536, 128),
        ("trn3", 4, 245752, 256, 2304, 128),
    ],
)
def test_totals_agree_with_the_instance_tables(
    name, generation, usable, chip_sbuf_mib, instance_gib, cores
):
    arch = arches.get(name)
    assert (arch.generation, arch.sbuf_usable_bytes) == (generation, usable)
    assert arch.sbuf_bytes * arch.cores_per_chip == chip_sbuf_mib << 20
    assert (
        arch.hbm_stack_bytes * arch.stacks_per_chip * arch.chips_per_instance == instance_gib << 30
    )
    assert arch.cores_per_instance == cores


@pytest.mark.parametrize(
    ("name", "bf16", "fp32", "rate"), [("trn1", 92, 23, 13.12), ("trn2", 79, 20, 46.4)]
)
def test_rates_agree_with_the_rounded_ones_of_the_tables(name, bf16, fp32, rate):
    arch = arches.get(name)
    assert round(arch.peak_tflops["bfloat16"]) == bf16
    assert round(arch.peak_tflops["float32"]) == fp32
    total = arch.hbm_stack_gbps * arch.stacks_per_chip * arch.chips_per_instance / 1000
    assert total == pytest.approx(rate, rel=0.02)


def test_float32_matmul_takes_as_long_as_published():
    # The published profile of a 128x128x512 float32 matmul on trn2 shows 858 ns.
    arch = arches.get("trn2")
    assert arch.cycles_to_ns(arch.matmul_fp32_passes * 512, "tensor") == pytest.approx(858, 0.01)


def test_moving_limit_depends_on_the_destination_only_from_gen4():
    assert arches.get("trn2").moving_free_limit("bfloat16") == 512
    gen4 = arches.get("gen4")
    assert (gen4.moving_free_limit(), gen4.moving_free_limit("bfloat16")) == (4096, 8192)
    assert gen4.moving_free_limit("float16") == 4096


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("TRN1N", "trn1"),
        ("Trn2", "trn2"),
        ("trn2u", "trn2"),
        ("GEN4", "trn3"),
    ],
)
def test_names_in_any_case(asked, name):
    assert arches.get(asked).name == name


def test_variants_differ_where_they_should():
    assert arches.get("trn1n").link_gbps["xy"] == 2 * arches.get("trn1").link_gbps["xy"]
    assert arches.get("inf2").fabric == "ring"
    assert arches.get("trn2u").instances_per_ultraserver == 4


@pytest.mark.parametrize("name", ["trn4", "", "cpu", None, 3])
def test_unknown_names_are_refused_with_what_is_allowed(name):
    with pytest.raises(LaunchError, match=r"unknown platform: got .*allowed: trn1, .*gen4"):
        arches.get(name)


def test_environment_decides_and_defaults_to_trn2(monkeypatch):
    assert arches.from_environment({}) is arches.get("trn2")
    assert arches.from_environment({arches.PLATFORM_VARIABLE: ""}).name == "trn2"
    assert arches.from_environment({arches.PLATFORM_VARIABLE: "gen4"}).name == "trn3"
    monkeypatch.setenv(arches.PLATFORM_VARIABLE, "inf2")
    assert arches.from_environment().instance == "inf2"
    with pytest.raises(LaunchError, match=r"NEURON_PLATFORM_TARGET_OVERRIDE.*'h100'"):
        arches.from_environment({arches.PLATFORM_VARIABLE: "h100"})


def test_frozen_hashable_and_picklable(arch):
    with pytest.raises(dataclasses.FrozenInstanceError):
        arch.partitions = 64
    with pytest.raises(TypeError):
        arch.engine_clock_ghz["tensor"] = 9.9
    copy = pickle.loads(pickle.dumps(arch))
    assert copy == arch and hash(copy) == hash(arch) and copy.sources() == arch.sources()


def test_values_can_be_replaced_by_measured_ones():
    base = arches.get("trn2")
    changed = base.with_values("measured", core_barrier_ns=250.0, link_gbps={"xy": 1.0, "z": 2.0})
    assert (changed.core_barrier_ns, changed.link_gbps["z"]) == (250.0, 2.0)
    assert changed.sources()["core_barrier_ns"] == "assumed: measured"
    assert changed != base and base.core_barrier_ns == 369
    with pytest.raises(
        LaunchError, match=r"no value named core_barier_ns; allowed: .*core_barrier"
    ):
        base.with_values(core_barier_ns=1.0)
    with pytest.raises(LaunchError, match="no value named name"):
        base.with_values(name="trn9")


@pytest.mark.parametrize(
    ("start", "count"),
    [(0, 128), (0, 65), (0, 64), (64, 64), (64, 33), (32, 32), (96, 32), (96, 1), (64, 7)],
)
def test_start_partitions_accepted(start, count):
    assert start in arches.allowed_start_partitions(count, TRN2)


@pytest.mark.parametrize(
    ("start", "count"),
    [(64, 65), (32, 33), (96, 33), (1, 1), (16, 16), (128, 1), (-32, 8), (0, 0), (0, 129)],
)
def test_start_partitions_refused(start, count):
    assert start not in arches.allowed_start_partitions(count, TRN2)


def test_allowed_starts_for_messages():
    assert arches.allowed_start_partitions(32, TRN2) == (0, 32, 64, 96)
    assert arches.allowed_start_partitions(33, TRN2) == (0, 64)
    assert arches.allowed_start_partitions(65, TRN2) == (0,)
    assert arches.allowed_start_partitions(129, TRN2) == ()
