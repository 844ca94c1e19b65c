"""`python -m bench.real_kernels nkibench|autocomp ...`: kernels that others' evaluators score.

NKIBench's kernels (AccelOpt) and candidates for its problems (kda-for-trainium) are compared with
NKIBench's NumPy references, on one of its seeds, by its rule: the relative L2 error of each output
is below 2e-5, for mamba 3e-5. autocomp's harnesses compare two kernels themselves; here a published
solution is put where they say "SUBSTITUTE HERE", as autocomp does, and the script is run as it is.

Each kernel has a process of its own, started by the command below, and a time limit. It prints
"compiled" once the kernel has passed all checks; so "out of time" behind that is the host's fault.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from bench.harness import table as markdown
from bench.real_kernels import tracing

LIMITS = {"mamba": 3e-5}
LIMIT = 2e-5
KERNEL: Final = re.compile(r"^def (?:kernel|optimized_kernel)\(", re.MULTILINE)


def main() -> None:
    """Judge one kernel of NKIBench; the last line of stdout is its row as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--problem", default="")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        limit = LIMITS.get(options.problem, LIMIT)
        row = judged(options.kernel, options.reference, limit, options.seed)
    row["warnings"] = sorted({getattr(w.message, "code", "") for w in seen} - {""})
    print(json.dumps(row))


def judged(kernel: Path, reference: Path, limit: float, seed: int) -> dict[str, Any]:
    """What came of one kernel: outcome, why, its error and the share of elements without any."""
    from nki_dist import World, compat, errors

    compat.install()
    traced = tracing.install()
    try:
        task = _module(reference, "reference")
        np.random.seed(seed)
        inputs = task.get_inputs()
        given = task.transform_to_nki_inputs(inputs)
        module = _module(kernel, "candidate")
        function = getattr(module, "kernel", None) or getattr(module, "optimized_kernel", None)
        if function is None:
            return {"outcome": "no kernel", "reason": "defines neither kernel nor optimized_kernel"}
        with World(host="inprocess") as world:
            if not traced:
                world.compile(function, *given)
                print("compiled", flush=True)
            got = world.run(function, *given)[0]
    except errors.NkiError as error:
        return {"outcome": "refused", "reason": error.code, "text": str(error)[:500]}
    except Exception as error:
        traceback.print_exc()
        return {"outcome": "error", "reason": type(error).__name__, "text": str(error)[:500]}
    wanted = task.forward(*inputs)
    worst, equal = compared(task.transform_nki_outputs(got, wanted), wanted)
    outcome = "right" if worst < limit else "wrong"
    reason = f"error {worst:.1e}, limit {limit:.0e}"
    return {"outcome": outcome, "reason": reason, "error": worst, "equal": equal}


def compared(got: Any, wanted: Any) -> tuple[float, float]:
    """The greatest relative L2 error of the outputs, and the least share of equal elements.

    Infinite and 0 where shapes differ, or an element is no finite number.
    """
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    if len(got) != len(wanted):
        return float("inf"), 0.0
    worst, equal = 0.0, 1.0
    for mine, theirs in zip(got, wanted):
        a, b = np.asarray(mine, np.float64), np.asarray(theirs, np.float64)
        if a.shape != b.shape or not np.isfinite(a).all():
            return float("inf"), 0.0
        worst = max(worst, float(np.linalg.norm(a - b) / np.linalg.norm(b)))
        equal = min(equal, float(np.mean(a == b)))
    return worst, equal


def _module(path: Path, name: str) -> ModuleType:
    sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def nkibench_jobs(
    nkibench: Path, candidates: Path | None, seed: int
) -> list[tuple[str, list[str]]]:
    """NKIBench's kernels, or the candidates of a checkout of kda-for-trainium: (name, arguments).

    Args:
        nkibench: folder `NKIBench` of AccelOpt.
        candidates: that checkout; of the files beside its kernels, those without one are left out.
        seed: of the inputs.
    """
    jobs = []
    for problem, described in json.loads((nkibench / "summary.json").read_text()).items():
        for case in described["cases"].values():
            for made in case["impls"]:
                kernels = [nkibench / made["kernel"]]
                if candidates is not None:
                    files = sorted(candidates.glob(f"workspaces/{problem}/runs/*.py"))
                    kernels = [file for file in files if KERNEL.search(file.read_text())]
                reference = str((nkibench / made["task"]).resolve())
                for kernel in kernels:
                    more = [str(kernel.resolve()), reference, "--problem", problem]
                    more += ["--seed", str(seed)]
                    jobs.append((f"{problem}/{kernel.stem}", more))
    return jobs


def autocomp_jobs(checkout: Path, scratch: Path) -> list[tuple[str, list[str]]]:
    """autocomp's harnesses with a published solution in each, written to `scratch`."""
    jobs = []
    for harness in sorted(checkout.glob("harnesses/trn-*/*.py")):
        suite, stem = harness.parent.name, harness.stem.removesuffix("_test")
        text = harness.read_text()
        for solution in sorted(checkout.glob(f"sols/{suite}/*.py")):
            if solution.stem.replace(".", "_") not in (stem, f"{stem}_ref"):  # one is x.nki.py
                continue
            if "# SUBSTITUTE HERE" not in text:
                continue
            code = re.sub(r"\bdef test\(", "def solution(", solution.read_text())
            program = scratch / f"{suite}_{stem}.py"
            program.write_text(text.replace("# SUBSTITUTE HERE", code))
            jobs.append((f"{suite}/{stem}", [str(program.resolve())]))
    return jobs


def run(options: argparse.Namespace) -> None:
    """Run the jobs that `options.command` names, one process each, and append a row per job.

    Kernels that have a row in `options.to` already aren't run again.
    """
    root = Path(__file__).parents[2]
    done = {row["test"] for row in rows([options.to])} if options.to.exists() else set()
    if options.command == "nkibench":
        jobs = nkibench_jobs(options.checkout, options.candidates, options.seed)
        start = [sys.executable, "-m", "bench.real_kernels.evaluators"]
    else:
        options.scratch.mkdir(parents=True, exist_ok=True)
        jobs = autocomp_jobs(options.checkout, options.scratch)
        start = [sys.executable, "-m", "nki_dist", "run", "--host", "inprocess"]
    environment = {**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    began = time.monotonic()
    for name, arguments in jobs:
        if options.only not in name or name in done:
            continue
        if options.budget and time.monotonic() - began > options.budget:
            break
        begin = time.monotonic()
        row = outcome_of([*start, *arguments], environment, options.timeout)
        row = {"file": options.command, "test": name, **row}
        row["seconds"] = round(time.monotonic() - begin, 1)
        print(f"{name}: {row['outcome']} {row['reason']} {row['seconds']} s", flush=True)
        with options.to.open("a") as file:
            file.write(json.dumps(row) + "\n")


def outcome_of(command: list[str], environment: dict[str, str], timeout: float) -> dict[str, Any]:
    """What one process came to, from its last line or, of autocomp's harnesses, its words."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as late:
        seen = (late.stdout or b"").decode()
        passed = "compiled" in seen or "Test passed" in seen
        return {"outcome": "out of time", "reason": "after its checks" if passed else "in them"}
    lines = done.stdout.strip().splitlines()
    if lines and lines[-1].startswith("{"):
        found: dict[str, Any] = json.loads(lines[-1])
        return found
    if "Test failed" in done.stdout:
        return {"outcome": "wrong", "reason": "its own comparison"}
    measured = "Latency:" in done.stdout  # some harnesses print nothing else
    if done.returncode == 0 and (measured or "Test passed" in done.stdout):
        return {"outcome": "right", "reason": "" if measured else "prints no latency"}
    text = done.stderr.strip()[-500:]
    _, _, traceback_ = done.stderr.rpartition("Traceback (most recent call last)")
    codes = re.findall(r"\[([a-z0-9-]+)\]", traceback_)
    if codes and "nki_dist.errors." in traceback_:
        return {"outcome": "refused", "reason": codes[-1], "text": text}
    last = (text.splitlines() or [f"status {done.returncode}"])[-1]
    return {"outcome": "error", "reason": last[:80], "text": text}


OUTCOMES: Final = ("right", "wrong", "refused", "out of time", "error", "no kernel")


def rows(files: Iterable[Path]) -> list[dict[str, Any]]:
    """The last row of each kernel."""
    found = {}
    for path in files:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["test"]] = row
    return list(found.values())


def table(files: Iterable[Path]) -> str:
    """Counts by problem or suite as Markdown, and whatever isn't right with its reason."""
    counts: dict[str, Counter[str]] = {}
    others = []
    for row in rows(files):
        group = row["test"].partition("/")[0]
        counts.setdefault(group, Counter())[row["outcome"]] += 1
        if row["outcome"] != "right":
            others.append(f"- {row['test']}: {row['outcome']}, {row['reason']}")
    counts["all"] = sum(counts.values(), Counter())
    cells = ([group, *(count[o] for o in OUTCOMES)] for group, count in counts.items())
    return "\n".join([*markdown(("", *OUTCOMES), cells), "", *others])


if __name__ == "__main__":
    main()
