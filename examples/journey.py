"""One kernel through all rooms of the package, each printing what it made of it.

    python examples/journey.py

Each function below is a room, which docs/architecture.md explains, and takes what the rooms before
it have made. What they call is the package's inside, which isn't public and may change.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.checks import DEFAULT
from nki_dist.compiler.compile import check_core, check_launch, trace_core
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.decode import decode
from nki_dist.compiler.disasm import called, instruction_text
from nki_dist.compiler.encode import encode
from nki_dist.compiler.trace import Trace
from nki_dist.core_actor.placement import pack
from nki_dist.hbm.layout import Layout, fill_stack, lay_out
from nki_dist.isa import INSTRUCTIONS
from nki_dist.launcher.binding import BoundArguments, bind_arguments, collect_outputs
from nki_dist.launcher.cachekey import Fingerprinter
from nki_dist.launcher.grid import make_grid
from nki_dist.launcher.results import read_outputs
from nki_dist.linking.link import link
from nki_dist.linking.linked import Linked
from nki_dist.linking.lowering import Lowering
from nki_dist.linking.placing import Placed
from nki_dist.linking.printing import operation_text
from nki_dist.ops.alignment import aligned
from nki_dist.program import Program, instructions
from nki_dist.runtime.executor import Coroutine, Executor
from nki_dist.runtime.group import ready
from nki_dist.runtime.hosts import slots
from nki_dist.runtime.memory import Memory
from nki_dist.runtime.scheduler import Scheduler
from nki_dist.timing import Profile

TRN2 = arch.get("trn2")


@nki.jit
def split(a, b, rows):
    """a.T @ b by two cores: each multiplies half of K, and adds up half of the result's rows."""
    me = nl.program_id(0)
    other = 1 - me
    tiles = []
    for k in range(2 * me, 2 * me + 2):
        left, right = nl.load(a[128 * k : 128 * k + 128]), nl.load(b[128 * k : 128 * k + 128])
        tiles.append((left, right))
    sums = []
    for half in range(2):
        acc = nl.ndarray((rows, b.shape[1]), nl.float32, buffer=nl.psum)
        for tile in tiles:
            left, right = tile
            part = left[:, half * rows : half * rows + rows]
            nisa.nc_matmul(dst=acc, stationary=part, moving=right)
        total = nl.ndarray(acc.shape, nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=total, src=acc)
        sums.append(total)
    theirs = nl.ndarray(acc.shape, nl.float32, buffer=nl.sbuf)
    nisa.sendrecv(sums[other], theirs, send_to_rank=other, recv_from_rank=other, pipe_id=0)
    nisa.tensor_tensor(dst=sums[me], data1=sums[me], data2=theirs, op=nl.add)
    out = nl.ndarray((2 * rows, b.shape[1]), nl.float32, buffer=nl.shared_hbm)
    nl.store(out[me * rows : me * rows + rows], sums[me])
    return out


def arguments() -> tuple[Any, ...]:
    """a (512, 64) and b (512, 32) bfloat16, and the rows of the result that a core adds up.

    They are small integers, so that sums are exact, and what is printed the same on any machine.
    """
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-4, 5, (512, n)).astype(ml_dtypes.bfloat16) for n in (64, 32))
    return a, b, 32


def room(name: str) -> None:
    print(f"\n== {name}")


def launcher(args: tuple[Any, ...]) -> BoundArguments:
    room("launcher: arguments")
    bound = bind_arguments(split.fn, args, {})
    for s in bound.signatures:
        print(f"tensor {s.index}: {s.name} {s.shape} {s.dtype}")
    print("compile-time values:", bound.args[2:])
    return bound


def cachekey(bound: BoundArguments) -> None:
    room("cachekey")
    keys = Fingerprinter()
    first = keys.fingerprint(split.fn, bound.args)
    for what, values in (("again", bound.args), ("other rows", (*bound.args[:2], 16))):
        print(f"{what}: {'found' if keys.fingerprint(split.fn, values) == first else 'traced'}")


def tracing(bound: BoundArguments) -> list[Program]:
    room("compiler: tracing")
    grid = make_grid(2, TRN2, 1)
    programs = []
    for core in range(grid.cores):
        trace = Trace("split", TRN2, core, grid.cores, DEFAULT)
        args, kwargs = bound.bind(trace)
        programs.append(trace_core(split.fn, grid, trace, args, kwargs, collect_outputs(split.fn)))
    for i in instructions(programs[0].body):
        print(f"{i.ordinal}: {instruction_text(i)}")
    return programs


def passes(programs: list[Program]) -> Compiled:
    room("compiler: passes")
    for program in programs:
        check_core(program, TRN2, DEFAULT)
    check_launch(programs, TRN2, DEFAULT, precise=True)
    first = programs[0]
    print("matmuls:", [i.accumulation for i in instructions(first.body) if i.accumulation])
    for s in first.storages:
        if s.address is not None:
            partition, at = s.address
            print(
                f"{called(s):<9} {s.region.value}  partition {partition} byte {at}  "
                f"used from {s.first} to {s.last}"
            )
    for name in ("peak_sbuf", "uninitialised_reads", "watched"):
        print(f"{name} = {first.facts[name]}")
    return Compiled(programs, [])


def encoding(compiled: Compiled) -> None:
    room("compiler: codec")
    data = encode(compiled.programs[0])
    print(data[:4], "equal when decoded:", encode(decode(data)) == data)


def layout(compiled: Compiled, bound: BoundArguments) -> tuple[Layout, np.ndarray]:
    room("hbm")
    compiled.inputs = bound.signatures
    made = lay_out(compiled)
    for (role, index), at in made.offsets.items():
        print(f"{role} {index} from byte {at}")
    stack = aligned(made.stack_bytes)
    fill_stack(made, stack, bound.arrays)
    return made, stack


def meanings(compiled: Compiled) -> None:
    room("isa, ops")
    for ordinal in (4, 11):
        i = list(instructions(compiled.programs[0].body))[ordinal]
        print(f"{ordinal}: {INSTRUCTIONS[i.opcode].title}")
        for o in INSTRUCTIONS[i.opcode].lower(i, Lowering(TRN2)):
            print(f"  {operation_text(o)}")


def linking(compiled: Compiled) -> list[Linked]:
    room("linking")
    for without in ("panels",), ():
        linked = [link(program, TRN2, without) for program in compiled.programs]
        print(f"without {', '.join(without)}" if without else "with all passes")
        matmuls = [run for run in linked[0].runs if _multiplies(linked[0], run)]
        for run in matmuls:
            for o in linked[0].kinds[run.kind].operations:
                print(f"  {operation_text(o)}")
        print(f"  {len(linked[0].kinds)} kinds of {len(compiled.programs[0])} instructions")
    return linked


def _multiplies(linked: Linked, run: Any) -> bool:
    return any("matmul" in o.function.name for o in linked.kinds[run.kind].operations)


def binding(linked: list[Linked], made: Layout, stack: np.ndarray) -> list[Executor]:
    room("runtime: binding")
    placed = [Placed(program, TRN2) for program in linked]
    executors = []
    for slot in slots(ranks=1, lnc=2):
        of = placed[slot.lnc_core]
        memory = Memory(of.linked.program, of.places, stack, made.offsets)
        executors.append(ready(of, slot, memory)[0])
        print(f"core {slot.core}: {len(of.steps)} steps, {len(of.arguments)} arguments")
        store = executors[-1].linked[-1].steps[-1]  # a call without arguments
        out = store.func.__self__
        at = out.ctypes.data - stack.ctypes.data
        print(f"  the last assigns to {out.shape} {out.dtype} from byte {at} of the stack")
    return executors


def scheduling(executors: list[Executor]) -> None:
    room("runtime: scheduler")
    scheduler = Scheduler()
    for executor in executors:
        run = scheduler.add(executor)
        run.coroutine = told(run.coroutine)
    scheduler.run()
    for run in scheduler.cores.values():
        print(f"core {run.core}: {run.executor.done} instructions, {run.message_bytes} bytes sent")


def told(coroutine: Coroutine) -> Coroutine:
    """A core's coroutine that tells what it waits for."""
    payload = None
    while True:
        try:
            wait = coroutine.send(payload)
        except StopIteration:
            return
        print(f"core {wait.core} needs a message of core {wait.source}: {wait.channel}")
        payload = yield wait
        print(f"core {wait.core} goes on with {payload.shape} {payload.dtype}")


def processes() -> None:
    room("core_actor")
    for ranks in (1, 64):
        packs = pack(slots(ranks, lnc=2), 2, "auto", processors=4)
        print(f"{2 * ranks} cores, 4 processors: {len(packs)} actors of {len(packs[0])}")


def results(args: Any, compiled: Compiled, made: Layout, stack: Any, bound: BoundArguments) -> None:
    room("launcher: results")
    out = read_outputs(compiled, made, stack, bound)
    print("out", out.shape, out.dtype)
    a, b = (x.astype(np.float64) for x in args[:2])
    print("equal to NumPy's in float64:", np.array_equal(out, a.T @ b))
    print("equal to split[2](a, b, 32):", np.array_equal(out, split[2](*args)))
    print("equal under nki.debug:", np.array_equal(out, nki.debug(split[2])(*args)))


def insight(args: tuple[Any, ...]) -> None:
    room("insight")
    record = nki.record(split[2])(*args)
    print("\n".join(str(record.origin("out", (3, 5))).splitlines()[:6]))


def timing(args: tuple[Any, ...]) -> Profile:
    room("timing")
    profile = nki.profile(split[2])(*args).profile
    core = profile.timeline.cores[0]
    print("8 follows", core.graph.data[8], "for data,", core.graph.reuse[8], "for reuse")
    for n, i in enumerate(core.graph.executed):
        if n not in core.dropped:
            times = f"{core.start[n]:>7.0f} {core.end[n]:>7.0f} ns"
            queue = core.queues[core.queue[n]]
            print(f"{n:>3}  {queue:<10} {times}  {i.opcode}, {core.reason[n]}")
    return profile


def report(profile: Profile) -> None:
    room("report")
    print(str(profile).split("\n\n")[2])
    with tempfile.TemporaryDirectory() as folder:
        profile.write_report(Path(folder) / "split.html")
        page = (Path(folder) / "split.html").read_text()
    print("the page:", ", ".join(re.findall("<h2>(.*?)</h2>", page)))


def main() -> None:
    print(inspect.getsource(split.fn))
    args = arguments()
    bound = launcher(args)
    cachekey(bound)
    compiled = passes(tracing(bound))
    encoding(compiled)
    made, stack = layout(compiled, bound)
    meanings(compiled)
    linked = linking(compiled)
    executors = binding(linked, made, stack)
    scheduling(executors)
    processes()
    results(args, compiled, made, stack, bound)
    insight(args)
    report(timing(args))


if __name__ == "__main__":
    main()
