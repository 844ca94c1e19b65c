"""The arguments of worlds: which values there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nki_dist.errors import LaunchError
from nki_dist.runtime.settings import HOSTS, TRANSPORTS
from nki_dist.topology.topology import system


def whole(product: str, options: Mapping[str, Any], count: Any = 1) -> dict[str, Any]:
    """The options of a world of whole machines.

    Args:
        product: see `topology.system`.
        options: those that are asked for, and stay.
        count: of machines.

    Raises:
        LaunchError: there can't be as many, or the options say how many ranks there are.
    """
    if not _is_int(count) or count < 1:
        raise LaunchError(
            f"count={count!r}; must be a positive int",
            code="world-option",
            numbers={"got": count, "least": 1},
        )
    if count > 1 and "ranks" in options:
        raise LaunchError(
            f"count={count} and ranks={options['ranks']!r}; give one of them: count for whole "
            "UltraServers, ranks for any other number",
            code="world-option",
            numbers={"count": count, "ranks": options["ranks"]},
        )
    machine = system(product, lnc=options.get("lnc"))
    size = {"ranks": machine.ranks * count, "lnc": machine.lnc}
    return {**size, "platform": machine.arch.instance, **options}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_options(host: str, transport: str, timeout: Any, memory: Any, packing: Any) -> None:
    """Where and within which limits launches run.

    Raises:
        LaunchError: there is no such host, transport or packing, or a limit is none.
    """
    if packing != "auto" and (not _is_int(packing) or packing < 1):
        raise LaunchError(
            f"cores_per_actor={packing!r}; allowed: 'auto' or a positive int",
            code="world-option",
            numbers={"got": packing, "least": 1},
        )
    if host not in HOSTS:
        raise LaunchError(f"host={host!r}; allowed: {', '.join(HOSTS)}", code="world-option")
    if transport not in TRANSPORTS:
        raise LaunchError(
            f"transport={transport!r}; allowed: {', '.join(TRANSPORTS)}", code="world-option"
        )
    seconds = isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout > 0
    if timeout is not None and not seconds:
        raise LaunchError(
            f"timeout={timeout!r}; must be a positive number of seconds or None",
            code="world-option",
            numbers={"got": timeout},
        )
    if memory is not None and (not _is_int(memory) or memory < 1 or host != "inprocess"):
        raise LaunchError(
            f"memory={memory!r} with host={host!r}; must be a positive number of bytes, and "
            "host='inprocess', or None",
            code="world-option",
            numbers={"got": memory, "least": 1},
        )
