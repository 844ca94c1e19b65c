"""Files that stand for a compiled kernel (NEFF) and a captured trace (NTFF).

`save_neff_name` and `save_trace_name` of Beta 1's decorators name such files, and evaluators hand
them to `neuron-profile` for times. Both hold the same here: the summary of one simulated launch,
as JSON, since there is neither machine code nor a device's trace.
"""

from __future__ import annotations

import json
from os import PathLike
from typing import Any

from nki_dist.errors import LaunchError

_KIND = "nki_dist measurement"


def write_measurement(path: str | PathLike[str], profile: Any) -> None:
    """Write what `profile` says under the names of Neuron Explorer's summary."""
    found = {"kind": _KIND, "kernel": profile.kernel, "summary": profile.summary()}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


def read_measurement(path: str | PathLike[str]) -> dict[str, Any]:
    """The summary in a file of `write_measurement`: for each rank, numbers by name.

    Raises:
        LaunchError: there is no such file, or it is another kind.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise LaunchError(f"{path}: {error.strerror}", code="not-measured") from None
    except ValueError:  # not JSON, or not text: a file of AWS's tools
        found = None
    if not isinstance(found, dict) or found.get("kind") != _KIND:
        raise LaunchError(
            f"{path} wasn't written by the simulator: it has no measurement. Run the kernel with "
            "save_neff_name or save_trace_name (or CompileKernel with artifacts_dir) first",
            code="not-measured",
        )
    summary: dict[str, Any] = found["summary"]
    return summary
