"""Answers of `nki-dist mcp`: what commands wrote, as data, and what it means that they didn't."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from nki_dist.cli.mcp.calls import Ended
from nki_dist.errors import LaunchError

_LINES: Final = 10  # kernel lines of a report, the costliest


def _loaded(text: str) -> Any:
    """JSON, with texts that UTF-8 can write; None if it isn't JSON."""
    try:
        found = json.loads(text)
        return json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _data(ended: Ended, *kinds: type) -> Any:
    """What a command wrote; None if that isn't of a kind that it writes."""
    found = _loaded(ended.answer)
    return found if isinstance(found, kinds) else None


def report(ended: Ended) -> dict[str, Any]:
    found = _data(ended, dict, list)
    if found is None:
        return _unanswered(ended)
    return {"ok": ended.status == 0, "status": ended.status, "report": found, "stderr": ended.said}


def _unanswered(ended: Ended) -> dict[str, Any]:
    """No report is no answer, whatever the status says; stderr often has the reason."""
    error = LaunchError(
        f"the call ended with status {ended.status} before there was an answer; stderr has what it "
        "said, if anything",
        code="program-ended",
        numbers={"status": ended.status},
    )
    told = {"status": ended.status, "report": None, "stderr": ended.said}
    return {"ok": False, **told, "error": error.to_dict()}


def ran(ended: Ended) -> dict[str, Any]:
    diagnostics, rest = _split(ended.said)
    return {
        "ok": ended.status == 0,
        "status": ended.status,
        "diagnostics": diagnostics,
        "stdout": ended.answer[-16_384:],
        "stderr": rest,
    }


def _split(said: str) -> tuple[list[dict[str, Any]], str]:
    """Diagnostics, which are lines of JSON, and the other lines."""
    diagnostics, rest = [], []
    for line in said.splitlines(keepends=True):
        found = _loaded(line) if line.startswith("{") else None
        if isinstance(found, dict) and {"code", "severity", "hint"} <= set(found):
            diagnostics.append(found)
        else:
            rest.append(line)
    return diagnostics, "".join(rest)


def estimated(ended: Ended) -> dict[str, Any]:
    found = _data(ended, dict)
    if found is None:
        return _unanswered(ended)
    kernels, diagnostics = found["kernels"], found["diagnostics"]
    ok = bool(kernels) and not diagnostics
    return {"ok": ok, "kernels": kernels, "diagnostics": diagnostics, "stderr": ended.said}


def profiled(ended: Ended) -> dict[str, Any]:
    found = _data(ended, list)
    if found is None:
        return _unanswered(ended)
    kernels = [_shortened(kernel) for kernel in found]
    return {"ok": ended.status == 0, "kernels": kernels, "stderr": ended.said}


def _shortened(kernel: Mapping[str, Any]) -> dict[str, Any]:
    return {**kernel, "lines": kernel["lines"][:_LINES]}
