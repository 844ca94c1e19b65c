"""nisa.core_barrier: the cores of a logical core wait for each other.

Its latency isn't published; `Arch.assumptions()` says what was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa.effects import CLEAN, Effects, Exchange, Meets
from nki_dist.isa.enums import engine
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import ANYWHERE, Custom, Tensor
from nki_dist.isa.spec import instruction, may_reject
from nki_dist.isa.timing_rules import fixed
from nki_dist.program import Access, Instruction, MemoryRegion, sbuf


def _cores(name, value):
    cores = list(value) if isinstance(value, Iterable) else [value]
    if not cores or any(not isinstance(c, int) or not 0 <= c <= 1 for c in cores):
        raise NkiValidationError(
            f"{name}={value!r}; allowed: cores 0 and 1 of the LNC",
            code="core-number",
            numbers={"got": value, "allowed": [0, 1]},
        )
    return cores


def _orders(i: Instruction, core: int) -> bool:
    return core in i["cores"] and len(i["cores"]) > 1


def _time(i: Instruction, core: int, cores: int, arch: Arch) -> Exchange:
    others: tuple[int, ...] = ()
    if core in i["cores"]:
        others = tuple(c for c in sorted(i["cores"]) if c < cores and c != core)
    busy = arch.cycles_to_ns(arch.min_issue_cycles, i.engine)
    return Exchange(i.opcode, others, others, busy, arch.core_barrier_ns)


def _hands(i: Instruction) -> Access | None:
    return i["data"] if i["data"].region is MemoryRegion.shared_hbm else None


@instruction(
    engines="gpsimd vector scalar tensor sync",
    effects=Effects(CLEAN, partial=False, bits=None, state=None),
    table="",
    accumulates=False,
    chains=False,
    meets=Meets(_orders, _orders, lambda i: i.opcode, "core_barrier_ns", _time, _hands),
    cost=fixed("min_issue_cycles"),
)
def core_barrier(
    data=Tensor("", ANYWHERE),  # named for ordering only: its bytes aren't read here
    cores=Custom(_cores),
    engine=engine.gpsimd,
    name=None,
):
    """Wait until every listed core has arrived; orders their accesses to `data`.

    Accesses to other shared tensors aren't ordered (AWS's page: the cores synchronize on `data`).

    Args:
        data: the tensor in shared_hbm that is handed over. Published kernels also name tensors in
            SBUF, which is a CompilerMayRejectWarning: the cores wait all the same, and all accesses
            are ordered.
        cores: core numbers. Cores that the launch doesn't have are ignored, so at LNC=1 the
            barrier does nothing.
        engine: the engine that waits; the others run on.

    Raises:
        DeadlockError: a listed core never arrives.
    """
    return locals()


@core_barrier.check
def _check(i: Instruction, arch: Arch) -> None:
    region = i["data"].region
    if region is sbuf:
        may_reject(
            f"data is in sbuf: {i['data'].storage.label}; the documentation asks for the tensor in "
            "shared_hbm that is handed over, while published kernels also name tensors in SBUF",
            code="barrier-memory",
            hint="name the shared tensor; which one makes no difference to the cores that wait",
        )
    elif region is not MemoryRegion.shared_hbm:
        raise NkiValidationError(
            f"data is in {region.value}: {i['data'].storage.label}; a barrier hands over a tensor "
            "in shared_hbm, which both cores see",
            code="memory-kind",
            hint="allocate it with buffer=nl.shared_hbm",
            numbers={"got": region.value, "allowed": "shared_hbm"},
        )
    if len(set(i["cores"])) != len(i["cores"]):
        message = f"cores={i['cores']} names a core twice"
        raise NkiValidationError(message, code="core-number", numbers={"got": i["cores"]})


@core_barrier.exchange
def _exchange(i: Instruction, kit: Kit):
    slot, wires = kit.slot, kit.wires
    present = [c for c in i["cores"] if c < slot.cores]
    others = [slot.peer(c) for c in present if c != slot.lnc_core]
    what = {"op": "core_barrier", "cores": tuple(sorted(present))}

    def run():
        if slot.lnc_core not in present:
            return
        for core in others:
            wires.send(core, "core_barrier", None, what, i)
        for core in others:
            yield wires.receive(core, "core_barrier", what, i)

    return run
