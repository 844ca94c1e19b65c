"""What to do where Ray asks for a token, or a cluster takes no connection for want of one.

Since Ray 2.59, a Ray that a program starts for itself asks for a token, which Ray makes and keeps
in ~/.ray/auth_token; `ray start` does so where it finds one. But a program that joins a cluster
sends a token only if RAY_AUTH_MODE says so, and is told nothing but that it can't connect. Facts
are from Ray's page on token authentication and from trying each case with Ray 2.60.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import ray._raylet
import ray.exceptions

MODE: Final = "RAY_AUTH_MODE"
TOKEN: Final = "RAY_AUTH_TOKEN"
PATH: Final = "RAY_AUTH_TOKEN_PATH"
DEFAULT: Final = ".ray/auth_token"  # in the home directory


def is_about_tokens(error: BaseException) -> bool:
    """Whether Ray itself says so."""
    kind = getattr(ray.exceptions, "AuthenticationError", None)  # not in every version
    return kind is not None and isinstance(error, kind)


def found() -> str | None:
    """Where Ray would take a token from, as messages call it; None if there is none."""
    if os.environ.get(TOKEN):
        return TOKEN
    if path := os.environ.get(PATH):
        return f"{path} ({PATH})"
    default = Path.home() / DEFAULT
    return f"~/{DEFAULT}" if default.is_file() else None


def to_join() -> str:
    """What to do where a cluster is there and takes no connection."""
    where = found()
    if os.environ.get(MODE, "").lower() == "token":
        if where is None:
            return (
                f"{MODE}=token, but there is no token here: copy the one that `ray get-auth-token` "
                f"prints on the cluster's head to ~/{DEFAULT}, or unset {MODE} for a cluster "
                "without one"
            )
        return (
            f"the token in {where} may not be the cluster's: compare it with what "
            f"`ray get-auth-token` prints on the head, or unset {MODE} for a cluster without one"
        )
    if where is None:
        has = "there is none here: copy what `ray get-auth-token` prints on the head to "
        has += f"~/{DEFAULT}, and set {MODE}=token"
    else:
        has = f"the one in {where} isn't sent: set {MODE}=token"
    return (
        f"if the cluster asks for a token, {has}, before Python starts. Clusters of Ray 2.59 and "
        "later do ask where a token file was found when they started"
    )


def to_start(error: BaseException) -> str | None:
    """What to do where a Ray of this program's own doesn't start for want of a token.

    Args:
        error: that Ray raised.
    """
    disable = f"a Ray of your own on a machine that nobody else uses needs none: {MODE}=disabled"
    if path := os.environ.get(PATH):
        if is_about_tokens(error):
            return f"unset {PATH}={path}, or put a token into that file; {disable}"
    elif is_about_tokens(error):
        return f"`ray get-auth-token --generate` makes one; {disable}"
    elif isinstance(error, OSError) and str(Path.home()) in str(error):
        return f"Ray keeps a token in ~/{DEFAULT}, and can't write there: set HOME; {disable}"
    return None


def send_token() -> None:
    """Have this process send its token from here on, unless RAY_AUTH_MODE says otherwise.

    It is what Ray does by itself where a program starts one, and where RAY_ADDRESS=auto finds one.
    """
    if MODE not in os.environ:
        os.environ[MODE] = "token"
        # Ray has read the variable when it was imported.
        ray._raylet.Config.initialize("")  # type: ignore[attr-defined]
