"""The arguments of worlds: which values there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nki_dist.errors import LaunchError
from nki_dist.runtime.settings import HOSTS, TRANSPORTS
from nki_dist.topology.topology import is_int, system


def whole(product: str, options: Mapping[str, Any], count: Any = 1) -> dict[str, Any]:
    """The options of a world of whole machines.

    Args:
        product: see `topology.system`.
        options: those that are asked for, and stay.
        count: of machines.

    Raises:
        LaunchError: there can't be as many, or the options say how many ranks there are.
    """
    _demand(
        is_int(count) and count >= 1,
        f"count={count!r}; must be a positive int",
        got=count,
        least=1,
    )
    if count > 1:
        _demand(
            "ranks" not in options,
            f"count={count} and ranks={options.get('ranks')!r}; give one of them: count for whole "
            "UltraServers, ranks for any other number",
            count=count,
        )
    machine = system(product, lnc=options.get("lnc"))
    size = {"ranks": machine.ranks * count, "lnc": machine.lnc}
    return {**size, "platform": machine.arch.instance, **options}


def check_options(
    host: str,
    transport: str,
    timeout: Any,
    memory: Any,
    packing: Any,
    threads: Any,
    retries: Any,
) -> None:
    """Where and within which limits launches run.

    Raises:
        LaunchError: there is no such host, transport or packing, or a limit is none.
    """
    _demand(is_int(retries) and retries >= 0, f"retries={retries!r}; must be an int, 0 or more")
    _demand(
        packing == "auto" or (is_int(packing) and packing >= 1),
        f"cores_per_actor={packing!r}; allowed: 'auto' or a positive int",
        got=packing,
        least=1,
    )
    for name, value, allowed in (("host", host, HOSTS), ("transport", transport, TRANSPORTS)):
        _demand(value in allowed, f"{name}={value!r}; allowed: {', '.join(allowed)}")
    _demand(
        threads is None or (is_int(threads) and threads >= 1),
        f"threads={threads!r}; must be a positive int, or None for what NKI_DIST_THREADS says, or "
        "the processors that are left to the world",
        got=threads,
        least=1,
    )
    seconds = isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout > 0
    _demand(
        timeout is None or seconds,
        f"timeout={timeout!r}; must be a positive number of seconds or None",
        got=timeout,
    )
    _demand(
        memory is None or (is_int(memory) and memory >= 1 and host == "inprocess"),
        f"memory={memory!r} with host={host!r}; must be a positive number of bytes, and "
        "host='inprocess', or None",
        got=memory,
        least=1,
    )


def _demand(holds: bool, rule: str, **numbers: Any) -> None:
    if not holds:
        raise LaunchError(rule, code="world-option", numbers=numbers)
