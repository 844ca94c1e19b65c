"""ncc.all_to_all_v and all_gather_v in two calls: prepare reads the metadata, trigger exchanges.

What prepare reads is what counts: it is copied, and trigger works with the copy. Counts received
are written to the metadata tensor by trigger, as by the undivided operation; that prepare could
write them isn't said, and it doesn't know them. Prepare is recorded as the DMA that copies, so in
simulated time it takes what that takes; AWS publishes no figure.

Follows: nki.collectives.all_to_all_v_prepare, all_to_all_v_trigger, all_gather_v_prepare and
all_gather_v_trigger of SDK 2.33.
"""

from __future__ import annotations

from typing import Any

from nki_dist.errors import CompileError, NkiError, invalid
from nki_dist.isa.collectives.variable import all_gather_v, all_to_all_v, rows_read, rows_written
from nki_dist.isa.dma_copy import dma_copy
from nki_dist.isa.handle import NkiInstruction
from nki_dist.isa.spec import Access, Instruction, Spec, current_tracer, released


class Prepared(NkiInstruction):
    """What prepare returns, and trigger takes once."""

    __slots__ = ("arguments", "loop", "results", "spec")

    arguments: dict[str, Any]  # with the metadata as it was
    loop: Any  # the dynamic loop it stands in, None outside
    results: list[tuple[Access, Access]]  # rows of the metadata, and of its copy, that become them
    spec: Spec


def all_to_all_v_prepare(
    srcs,
    dsts,
    replica_group,
    metadata_tensor,
    recv_counts_known=False,
    has_rdispls=False,
    priority=None,
    name=None,
):
    """Begin an `all_to_all_v` whose trigger follows; srcs and dsts aren't looked at yet.

    Args:
        srcs, dsts, replica_group, recv_counts_known, has_rdispls, priority: as of `all_to_all_v`.
        metadata_tensor: as there; holds its rows by now, and they count as they are now.

    Returns:
        What the trigger takes.

    Raises:
        NkiError: as of `all_to_all_v`; the platform has NeuronSwitch; another prepare has had no
            trigger yet; the kernel is checked against NKI 0.6.
    """
    return _prepare(all_to_all_v, locals())


def all_to_all_v_trigger(prepare_instr, name=None):
    """Carry out a prepared `all_to_all_v`: reads its srcs, writes its dsts.

    Args:
        prepare_instr: what `all_to_all_v_prepare` returned.

    Raises:
        CompileError: it isn't that, has been triggered, or stands in another dynamic loop.
    """
    return _trigger(all_to_all_v, prepare_instr, name)


def all_gather_v_prepare(
    srcs,
    dsts,
    replica_group,
    metadata_tensor,
    recv_counts_known=False,
    has_rdispls=False,
    priority=None,
    name=None,
):
    """Begin an `all_gather_v` whose trigger follows; srcs and dsts aren't looked at yet.

    Args, Returns, Raises: as of `all_to_all_v_prepare`, for `all_gather_v`.
    """
    return _prepare(all_gather_v, locals())


def all_gather_v_trigger(prepare_instr, name=None):
    """Carry out a prepared `all_gather_v`: reads its srcs, writes its dsts.

    Args, Raises: as of `all_to_all_v_trigger`.
    """
    return _trigger(all_gather_v, prepare_instr, name)


def _prepare(spec: Spec, arguments: dict[str, Any]) -> Any:
    what = f"{spec.name}_prepare"
    tracer = current_tracer()
    label = arguments.pop("name")
    released(f"ncc.{what}")
    try:
        i = _checked(spec, arguments, tracer)
        if tracer.prepared is not None:
            raise CompileError(
                f"another prepare ({tracer.prepared.spec.name}_prepare) has had no trigger yet; "
                "each is followed by its own before the next",
                code="collective-prepare",
            )
        metadata, named = arguments["metadata_tensor"], f"{what} metadata"
        copy = tracer.allocate(metadata.shape, metadata.dtype, metadata.buffer, named, None)
    except NkiError as error:
        raise error.at(instruction=f"ncc.{what}") from None
    copied = i.with_args({**i.args, "metadata_tensor": copy})
    for n, pair in enumerate(zip(rows_read(copied), rows_read(i), strict=True)):
        done = dma_copy(*pair, name=None if n else label)
    prepared = Prepared(done.instruction, done.depth)
    prepared.spec, prepared.arguments = spec, {**arguments, "metadata_tensor": copy}
    prepared.results = [*zip(rows_written(i), rows_written(copied), strict=True)]
    prepared.loop = tracer.innermost_loop()
    tracer.prepared = prepared
    return prepared


def _trigger(spec: Spec, prepared: Any, name: Any) -> Any:
    tracer = current_tracer()
    what = f"ncc.{spec.name}_trigger"
    if not isinstance(prepared, Prepared) or prepared.spec is not spec:
        problem = f"{prepared!r} isn't what ncc.{spec.name}_prepare returned"
    elif prepared is not tracer.prepared:
        problem = "this prepare has been triggered already, or belongs to another launch"
    elif prepared.loop is not tracer.innermost_loop():
        problem = "prepare and trigger stand in different dynamic loops, or only one in a loop"
    else:
        tracer.prepared = None
        done = spec(**prepared.arguments, name=name)
        for target, source in prepared.results:
            dma_copy(target, source)
        return done
    message = f"{problem}; each prepare is followed by exactly one trigger of its kind"
    raise CompileError(message, instruction=what, code="collective-prepare")


def _checked(spec: Spec, arguments: dict[str, Any], tracer: Any) -> Instruction:
    """The undivided operation, after everything that it checks."""
    if tracer.arch.fabric == "switch":
        message = (
            f"prepare and trigger on {tracer.arch.name}, which has NeuronSwitch; allowed: "
            f"ncc.{spec.name}"
        )
        raise invalid(message, code="collective-prepare")
    accepted = {name: role.accept(name, arguments[name]) for name, role in spec.roles.items()}
    i = Instruction(spec.name, accepted, "cc", -1, -1)
    spec.verify(i, tracer.arch)
    return i
