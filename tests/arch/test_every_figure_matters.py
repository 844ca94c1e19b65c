"""Whoever changes a figure of the architecture changes something: no figure is there for show."""

import sys
from pathlib import Path

import pytest

from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access
from tests.arch.platforms import PLATFORMS, changed, changes, facts
from tests.arch.probes import FEATURES, probes

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

from coverage_page import representative

FIGURES = [(name, figure) for name, arch in PLATFORMS.items() for figure in facts(arch)]
STARTS = ("min_issue_cycles", "gpsimd_start", "matmul_init_cycles", "register_cycles")
WITH_COST = [
    (name, engine)
    for name, spec in INSTRUCTIONS.items()
    for engine in spec.engines
    if engine in ("tensor", "vector", "scalar", "gpsimd", "sync")
    and name not in ("sendrecv", "topk")  # cost by bytes; documented as 4n + K, without a start
]


@pytest.mark.parametrize(("platform", "figure"), FIGURES)
def test_every_probe_sees_another_value_of_its_figure(platform, figure):
    base = PLATFORMS[platform].with_values(**FEATURES.get(figure, {}))
    found = probes(figure, base)
    assert found, f"nothing looks at {figure}"
    value = facts(base)[figure].value
    for number, probe in enumerate(found):
        before = probe(base)
        others = (changed(base, figure, other) for other in changes(value))
        assert any(probe(other) != before for other in others), f"probe {number} sees no difference"


def test_probes_are_of_figures_that_exist():
    assert FEATURES.keys() <= {figure for _, figure in FIGURES}


@pytest.mark.parametrize(("name", "engine"), WITH_COST)
def test_no_instruction_has_a_shortest_time_of_its_own(name, engine):
    arch = PLATFORMS["trn3"]
    slower = arch.with_values(**{figure: 2 * getattr(arch, figure) for figure in STARTS})
    spec = INSTRUCTIONS[name]
    i = representative(spec, engine)
    for parameter, a in i.args.items():
        if isinstance(a, Access):
            # Next to nothing to do, but for what Tensor loads: its shortest time is that of many.
            loaded = engine == "tensor" and parameter in ("stationary", "data")
            shape = (1, a.shape[1]) if loaded else (a.shape[0], 1)
            i.args[parameter] = Access(a.storage, 0, shape, a.strides, a.dtype)
    assert spec.cost_of(i, slower).cycles > spec.cost_of(i, arch).cycles


@pytest.mark.parametrize(
    "name", ["activate2", "activation", "activation_reduce", "tensor_scalar_reduce"]
)
def test_whoever_reads_an_accumulator_pays_for_it(name):
    arch, spec = PLATFORMS["trn3"], INSTRUCTIONS[name]
    slower = arch.with_values(accumulator_read_cycles=arch.accumulator_read_cycles + 5)
    i = representative(spec, spec.engines[0])
    assert spec.cost_of(i, slower).cycles == spec.cost_of(i, arch).cycles + 5
