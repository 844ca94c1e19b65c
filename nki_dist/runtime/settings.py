"""What launches take from the environment where the program doesn't say.

Read at every use: programs and test harnesses change these variables while they run.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from nki_dist.checks import DEFAULT, Checks, checks_of
from nki_dist.errors import LaunchError
from nki_dist.release import ANY, release_name

LNC_VARIABLE: Final = "NEURON_LOGICAL_NC_CONFIG"
HOST_VARIABLE: Final = "NKI_DIST_HOST"
SIMULATOR_VARIABLE: Final = "NKI_SIMULATOR"
CHECK_VARIABLE: Final = "NKI_DIST_CHECK"
RELEASE_VARIABLE: Final = "NKI_DIST_RELEASE"
FRONTEND_VARIABLE: Final = "NKI_COMPILER_FRONTEND"
TRANSPORT_VARIABLE: Final = "NKI_DIST_TRANSPORT"
TIMEOUT_VARIABLE: Final = "NKI_DIST_TIMEOUT"
OPTIONS_VARIABLE: Final = "NKI_DIST_ACTOR_OPTIONS"
THREADS_VARIABLE: Final = "NKI_DIST_THREADS"
IDLE_VARIABLE: Final = "NKI_DIST_IDLE"
START_VARIABLE: Final = "NKI_DIST_START_TIMEOUT"
CLUSTER_VARIABLE: Final = "NKI_DIST_CLUSTER"
STORE_VARIABLE: Final = "NKI_DIST_OBJECT_STORE_BYTES"
PRECISE_VARIABLE: Final = "NKI_PRECISE_FP"
TRACEBACK_VARIABLE: Final = "NKI_DIST_TRACEBACK"
SETTINGS_READ: Final = (  # by what chooses the host, the cores and the checks of a launch
    *(LNC_VARIABLE, HOST_VARIABLE, SIMULATOR_VARIABLE, OPTIONS_VARIABLE),
    *(CHECK_VARIABLE, RELEASE_VARIABLE, FRONTEND_VARIABLE),
)

HOSTS: Final = ("ray", "inprocess", "debug")
START_SECONDS: Final = 90.0  # Ray gives a process 60 s to come up, and then starts another
RESERVE_SECONDS: Final = 600.0  # an autoscaler has machines started, which take minutes
TRANSPORTS: Final = ("auto", "ring", "messages")


def default_lnc(limit: int) -> int:
    """Cores of a launch without a grid.

    Raises:
        LaunchError: the variable isn't a number from 1 to `limit`.
    """
    text = os.environ.get(LNC_VARIABLE, "1")
    if not text.isdigit() or not 1 <= int(text) <= limit:
        raise LaunchError(
            f"{LNC_VARIABLE}={text!r}; allowed: 1 to {limit}",
            code="setting-value",
            numbers={"got": text, "least": 1, "most": limit},
        )
    return int(text)


def default_host() -> str:
    """Where simulated cores run: "ray", "inprocess" or "debug".

    AWS's NKI_SIMULATOR=1 makes every launch what `nki.simulate` makes of it, so in this process.
    """
    if _choice(SIMULATOR_VARIABLE, ("0", "1")) == "1" and not os.environ.get(HOST_VARIABLE):
        return "inprocess"
    return _choice(HOST_VARIABLE, HOSTS)


def uses_pool() -> bool:
    """Whether a Ray that `nki-dist cluster` keeps may be used."""
    return _choice(CLUSTER_VARIABLE, ("auto", "off")) == "auto"


def object_store_bytes() -> int | None:
    """Of a Ray that is started here; None for Ray's default.

    Raises:
        LaunchError: the variable isn't a number.
    """
    text = os.environ.get(STORE_VARIABLE)
    if text is not None and not text.isdigit():
        raise LaunchError(
            f"{STORE_VARIABLE}={text!r}; must be a number of bytes", code="setting-value"
        )
    return None if text is None else int(text)


def default_check() -> Checks:
    """What kernels are checked against.

    Raises:
        LaunchError: a variable has a word that there isn't.
    """
    text = os.environ.get(CHECK_VARIABLE)
    return of_release(_checks(text) if text else DEFAULT)


def of_release(checks: Checks, release: Any = None) -> Checks:
    """A policy with the release of NKI that kernels are checked against.

    The program's word counts first, then the policy's, then the environment's. AWS's
    NKI_COMPILER_FRONTEND=custom asks for the specialization of 0.6.

    Raises:
        LaunchError: there is no such release.
    """
    if release is not None:
        return replace(checks, release=release_name(release, "release"))
    if checks.release != ANY:
        return checks
    text = os.environ.get(RELEASE_VARIABLE)
    if text:
        return checks.against_release(_release(text))
    return (
        checks.against_release("0.6") if os.environ.get(FRONTEND_VARIABLE) == "custom" else checks
    )


@lru_cache(maxsize=16)
def _release(text: str) -> str:
    try:
        return release_name(text, RELEASE_VARIABLE)
    except LaunchError as error:
        raise LaunchError(error.message, code="setting-value") from None


@lru_cache(maxsize=16)
def _checks(text: str) -> Checks:
    try:
        return checks_of(text)
    except LaunchError as error:
        error.message = f"{CHECK_VARIABLE}: {error.message}"
        raise


def default_transport() -> str:
    """How processes exchange messages: "auto", "ring" or "messages"."""
    return _choice(TRANSPORT_VARIABLE, TRANSPORTS)


def default_timeout() -> float | None:
    """Seconds after which a launch is given up, where its world doesn't say; None for never.

    For worlds that are made from now on: reading it costs a launch several percent.

    Raises:
        LaunchError: the variable isn't a positive number.
    """
    return _seconds(TIMEOUT_VARIABLE)


def default_threads() -> int | None:
    """Threads that carry out a launch in each process, where its world doesn't say; None for as
    many as there are processors left to it.

    Raises:
        LaunchError: the variable isn't a positive int.
    """
    text = os.environ.get(THREADS_VARIABLE)
    if not text:
        return None
    if not text.isdigit() or int(text) < 1:
        raise LaunchError(
            f"{THREADS_VARIABLE}={text!r}; must be a positive int",
            code="setting-value",
            numbers={"got": text, "least": 1},
        )
    return int(text)


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def start_timeout() -> float:
    """Seconds without another process coming up after which the start of a world is given up.

    Raises:
        LaunchError: the variable isn't a positive number.
    """
    return _seconds(START_VARIABLE) or START_SECONDS


def reserve_timeout() -> float:
    """Seconds after which a world no longer waits for what Ray is to reserve for it.

    Raises:
        LaunchError: the variable isn't a positive number.
    """
    return _seconds(START_VARIABLE) or RESERVE_SECONDS


def actor_options() -> Any:
    """What worlds ask Ray for that don't say; None for nothing.

    Raises:
        LaunchError: the variable isn't JSON.
    """
    text = os.environ.get(OPTIONS_VARIABLE)
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise LaunchError(
            f'{OPTIONS_VARIABLE}={text!r}; must be JSON, such as {{"num_cpus": 1}}: {error}',
            code="setting-value",
        ) from None


def idle_seconds() -> float | None:
    """Seconds after which processes of a world that nobody uses end, where something is said of it.

    Raises:
        LaunchError: the variable isn't a positive number.
    """
    return _seconds(IDLE_VARIABLE)


def precise_fp() -> bool:
    """Whether tensors hold their own type; with "0", those of low precision hold float32."""
    return _choice(PRECISE_VARIABLE, ("1", "0")) == "1"


def full_tracebacks() -> bool:
    """Whether tracebacks show this package's own frames; for those who look for a bug in it."""
    return os.environ.get(TRACEBACK_VARIABLE) == "full"


def _seconds(variable: str) -> float | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:  # nor NaN
        raise LaunchError(
            f"{variable}={text!r}; must be a positive number of seconds", code="setting-value"
        )
    return seconds


def _choice(variable: str, allowed: tuple[str, ...]) -> str:
    value = os.environ.get(variable) or allowed[0]
    if value not in allowed:
        raise LaunchError(
            f"{variable}={value!r}; allowed: {', '.join(allowed)}",
            code="setting-value",
            numbers={"got": value, "allowed": allowed},
        )
    return value
