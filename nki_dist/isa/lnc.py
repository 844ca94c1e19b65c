"""nisa.core_barrier and sendrecv: the cores of a logical core wait for each other, exchange tiles.

Their latencies aren't published; `Arch.assumptions()` says what was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nki_dist.errors import invalid
from nki_dist.isa.checks import same_dtype, same_tile
from nki_dist.isa.effects import EXCHANGED, NOTHING_ELSE, OPTIMISTIC, Effects, Exchange, Meets
from nki_dist.isa.enums import dma_engine, engine
from nki_dist.isa.operands import ANYWHERE, SBUF, Choice, Custom, Number, Tensor, read, write
from nki_dist.isa.spec import Arch, Cost, Kit, instruction, may_reject
from nki_dist.isa.timing_rules import fixed
from nki_dist.program import Access, Instruction, MemoryRegion, sbuf


def _cores(name, value):
    cores = list(value) if isinstance(value, Iterable) else [value]
    if not cores or any(not isinstance(c, int) or not 0 <= c <= 1 for c in cores):
        message = f"{name}={value!r}; allowed: cores 0 and 1 of the LNC"
        raise invalid(message, code="core-number", got=value, allowed=[0, 1])
    return cores


def _barrier_orders(i: Instruction, core: int) -> bool:
    return core in i["cores"] and len(i["cores"]) > 1


def _barrier_time(i: Instruction, core: int, cores: int, arch: Arch) -> Exchange:
    others: tuple[int, ...] = ()
    if core in i["cores"]:
        others = tuple(c for c in sorted(i["cores"]) if c < cores and c != core)
    busy = arch.cycles_to_ns(arch.min_issue_cycles, i.engine)
    return Exchange(i.opcode, others, others, busy, arch.core_barrier_ns)


def _hands(i: Instruction) -> Access | None:
    return i["data"] if i["data"].region is MemoryRegion.shared_hbm else None


@instruction(
    engines="gpsimd vector scalar tensor sync",
    effects=NOTHING_ELSE,
    table="",
    accumulates=False,
    chains=False,
    meets=Meets(
        _barrier_orders,
        _barrier_orders,
        lambda i: i.opcode,
        "core_barrier_ns",
        _barrier_time,
        _hands,
    ),
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
def _barrier_check(i: Instruction, arch: Arch) -> None:
    region = i["data"].region
    if region is sbuf:
        may_reject(
            f"data is in sbuf: {i['data'].storage.label}; the documentation asks for the tensor in "
            "shared_hbm that is handed over, while published kernels also name tensors in SBUF",
            code="barrier-memory",
            hint="name the shared tensor; which one makes no difference to the cores that wait",
        )
    elif region is not MemoryRegion.shared_hbm:
        raise invalid(
            f"data is in {region.value}: {i['data'].storage.label}; a barrier hands over a tensor "
            "in shared_hbm, which both cores see",
            code="memory-kind",
            hint="allocate it with buffer=nl.shared_hbm",
            got=region.value,
            allowed="shared_hbm",
        )
    if len(set(i["cores"])) != len(i["cores"]):
        raise invalid(f"cores={i['cores']} names a core twice", code="core-number", got=i["cores"])


@core_barrier.exchange
def _barrier_exchange(i: Instruction, kit: Kit):
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


_FIGURES = "gpsimd_dma_gbps sendrecv_gbps sendrecv_gpsimd_ns sendrecv_ns"


def _channel(i: Instruction) -> str:
    return f"sendrecv pipe_id {i['pipe_id']}"


def _sendrecv_orders(i: Instruction, core: int) -> bool:
    return {i["send_to_rank"], i["recv_from_rank"]} != {core}


def _waits(i: Instruction, core: int) -> bool:
    """For a message of the other core. It has sent as many only if it was in as many of these: who
    sends to the other more often must have received from itself, which it must have sent before.
    """
    return bool(i["recv_from_rank"] != core)


def _sendrecv_time(i: Instruction, core: int, cores: int, arch: Arch) -> Exchange:
    size = i["src"].nbytes
    if i["dma_engine"] is dma_engine.gpsimd_dma:
        busy = size / arch.gpsimd_dma_gbps if arch.gpsimd_dma_gbps else 0.0
        latency = arch.sendrecv_gpsimd_ns
    else:
        busy = size / arch.sendrecv_gbps
        latency = arch.sendrecv_ns
    to, source = (i["send_to_rank"],), (i["recv_from_rank"],)
    return Exchange(_channel(i), to, source, busy, busy + latency)


@instruction(
    engines="dma gpsimd",
    effects=Effects(OPTIMISTIC, partial=False, bits=EXCHANGED, state=None),
    default_engine=lambda i, arch: "gpsimd" if i["dma_engine"].name == "gpsimd_dma" else "dma",
    min_generation=3,
    meets=Meets(_sendrecv_orders, _waits, _channel, _FIGURES, _sendrecv_time),
    checks=[same_tile("src dst"), same_dtype("src dst", "sendrecv doesn't convert")],
)
def sendrecv(
    src=read(SBUF),
    dst=write(SBUF),
    send_to_rank=Number(integer=True),
    recv_from_rank=Number(integer=True),
    pipe_id=Number(integer=True),
    dma_engine=Choice(dma_engine).default(dma_engine.dma),
    name=None,
):
    """Send `src` to one core of the logical core and receive `dst` from one.

    Args:
        src, dst: SBUF tiles of the same dtype, partitions and elements per partition.
        send_to_rank, recv_from_rank: core numbers, 0 or 1.
        pipe_id: transfers of different pipes may be outstanding at the same time; within a pipe
            they are matched in program order.
        dma_engine: `dma`, or `gpsimd_dma` for small low-latency tiles.

    Raises:
        NkiValidationError: operands or ranks don't fit, or the other core sends another shape or
            dtype.
        DeadlockError: the other core never sends.
    """
    return locals()


@sendrecv.check
def _sendrecv_check(i: Instruction, arch: Arch) -> None:
    for name in ("send_to_rank", "recv_from_rank"):
        if i[name] not in (0, 1):
            message = f"{name}={i[name]}; allowed: 0 or 1, the cores of the LNC"
            raise invalid(message, code="core-number", got=i[name], allowed=[0, 1])
    if i["dma_engine"] is dma_engine.gpsimd_dma:
        size = i["src"].dtype.itemsize
        used, most = i["src"].free_size * size, arch.gpsimd_dma_max_elements * size
        if used > most:
            message = (
                f"gpsimd_dma with {used} bytes per partition; at most {most} for "
                f"{size}-byte elements"
            )
            raise invalid(message, code="sendrecv-size", got=used, most=most)


@sendrecv.exchange
def _sendrecv_exchange(i: Instruction, kit: Kit):
    src, dst = kit.raw(i["src"]), kit.raw(i["dst"])
    shape = (i["src"].shape[0], i["src"].free_size)
    channel = _channel(i)
    what = {"op": "sendrecv", "shape": shape, "dtype": i["src"].dtype.name}
    slot, wires = kit.slot, kit.wires
    for name in ("send_to_rank", "recv_from_rank"):
        if i[name] >= slot.cores:
            message = (
                f"{name}={i[name]}; the launch has core 0 only. sendrecv is for the two cores of "
                "an LNC: launch kernel[2], or make the world with lnc=2"
            )
            raise invalid(message, code="lnc-needed", got=1, allowed=2)
    to, source = slot.peer(i["send_to_rank"]), slot.peer(i["recv_from_rank"])

    def run():
        # A copy: the sender may overwrite its tile before the receiver looks.
        wires.send(to, channel, np.array(src, order="C"), what, i)
        payload = yield wires.receive(source, channel, what, i)
        np.copyto(dst, payload.reshape(dst.shape))

    return run


@sendrecv.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    return Cost(dma_bytes=i["src"].nbytes, dma_elements=i["src"].shape[0], known=False)
