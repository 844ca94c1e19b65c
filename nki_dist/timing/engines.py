"""How long one instruction occupies a compute engine, and when its result can be used.

Occupancy is the instruction's own cost at the engine's clock (at least `dynamic_address_cycles` if
its address comes from a register). A dependent instruction also waits for the pipeline to drain:
`dependent_latency` cycles, on Scalar what an ACTIVATE takes beyond its issue interval. Back-to-back
matmuls into the same PSUM don't wait for each other. Scalar loads tables when an activation
function needs others than are there, after its operands have come (as in DMAO's profile).

Tensor's clock: slower for the first `tensor_ramp_ns`, and again when it was busy less than
`tensor_busy_fraction` of a window of that length. Doesn't model: tables that the compiler loads
ahead of their use, power caps. Follows: A2, A3, EXP "dI/dt".
"""

from __future__ import annotations

from collections.abc import Sequence

from nki_dist.arch import Arch
from nki_dist.isa.activations import table
from nki_dist.isa.spec import Cost, Spec
from nki_dist.program import Access, Instruction


def occupancy_ns(i: Instruction, cost: Cost, accesses: Sequence[Access], arch: Arch) -> float:
    """Time an instruction keeps its engine from issuing the next one."""
    cycles = cost.cycles
    if i.engine != "sync" and any(_addressed(a) for a in accesses):
        cycles = max(cycles, arch.dynamic_address_cycles)
    clock = arch.engine_clock_ghz.get(i.engine, arch.engine_clock_ghz["sync"])
    gpsimd_dma = cost.dma_bytes / arch.gpsimd_dma_gbps if arch.gpsimd_dma_gbps else 0.0
    return max(cycles / clock, gpsimd_dma)


def _addressed(a: Access) -> bool:
    return a.dynamic is not None and a.dynamic.kind == "scalar"


def drain_ns(engine: str, arch: Arch) -> float:
    """From the end of an instruction's occupancy to its result."""
    if engine == "scalar":
        issue = arch.access_cycles / arch.engine_clock_ghz["scalar"]
        return max(0.0, arch.activate_latency_ns - issue)
    cycles = arch.dependent_latency.get(engine, 0)
    return cycles / arch.engine_clock_ghz.get(engine, arch.engine_clock_ghz["sync"])


def table_of(i: Instruction, spec: Spec) -> tuple[str, str]:
    """The activation function of an instruction and the set of tables it needs; "" for none."""
    function = i.args[spec.table] if spec.table else ""
    return function, table(function) if function else ""


def locks_of(i: Instruction, accesses: Sequence[Access], arch: Arch) -> tuple[str, ...]:
    """Memory ports that an instruction has for itself while it runs (NeuronCore-v2)."""
    regions = {a.region.value for a in accesses}
    locks = []
    if arch.vector_gpsimd_exclude_sbuf and i.engine in ("vector", "gpsimd") and "sbuf" in regions:
        locks.append("sbuf")
    if arch.vector_scalar_exclude_psum and i.engine in ("vector", "scalar") and "psum" in regions:
        locks.append("psum")
    return tuple(locks)


class TensorClock:
    """The Tensor engine's speed, which depends on how busy it has been."""

    def __init__(self, arch: Arch) -> None:
        self.window = arch.tensor_ramp_ns
        self.slow = arch.tensor_ramp_fraction
        self.least = arch.tensor_busy_fraction
        self.opened = 0.0
        self.busy = 0.0
        self.cold_until = 0.0
        self.used = False

    def run(self, start: float, work: float, activity: float = 1.0) -> float:
        """When `work` ns of full speed, begun at `start`, are done; a share of the array works."""
        if self.window <= 0 or self.slow >= 1:
            return start + work
        self._look(start)
        now, left = start, work
        while now < self.cold_until and left > 0:
            slow = min(self.cold_until - now, left / self.slow)
            self.busy += slow * activity
            now += slow
            left -= slow * self.slow
            self._look(now)
        self.busy += left * activity
        return now + left

    def _look(self, now: float) -> None:
        """Close the window if it is over; an idle one slows the clock down from now on."""
        if not self.used:
            self.used = True
            self.opened, self.cold_until = now, now + self.window
        elif now - self.opened >= self.window:
            if self.busy < (now - self.opened) * self.least:
                self.cold_until = now + self.window
            self.opened, self.busy = now, 0.0
