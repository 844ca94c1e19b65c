"""`python -m bench.real_kernels library|docs|samples CHECKOUT`, then `... table FILE...`; or
`nkibench|autocomp CHECKOUT`, then `... scores FILE...` (`bench/real_kernels/evaluators.py`), or
`... device FILE...` (`bench/real_kernels/device.py`). `foreign NKI_REF` is the gate that is run
before a change is called done (`bench/real_kernels/foreign.py`).

The first three run what the checkout offers as tests and scripts, one process per file, and append
JSON lines to `--to`; `table` makes Markdown of them. They import packages that this project
doesn't: `requirements.txt` beside this file has them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from bench.real_kernels import device, evaluators, foreign, summary

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.real_kernels", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("library", "docs", "samples"):
        command = commands.add_parser(name, help=f"run {name}")
        command.add_argument("checkout", type=Path)
        command.add_argument("--to", type=Path, default=Path(f"{name}.jsonl"), metavar="FILE")
        command.add_argument("--sample", type=int, default=0, help="tests per file; 0: all")
        command.add_argument("--budget", type=float, default=0, help="seconds per file; 0: any")
        command.add_argument("--timeout", type=int, default=120, help="seconds per test")
        command.add_argument("--only", default="", help="part of the file's path")
        command.add_argument("--first", default="", help="skip files that sort before it")
        command.add_argument("--platform", default="trn2", help="of nki-library's tests")
        command.add_argument("--large", action="store_true", help="also those too large for it")
        command.add_argument("--scratch", type=Path, default=Path("real_kernels_scratch"))
    table = commands.add_parser("table", help="Markdown of recorded runs")
    table.add_argument("files", type=Path, nargs="+")
    table.add_argument("--kernels", type=Path, metavar="CHECKOUT", help="a table of its kernels")
    for name, folder in (("nkibench", "AccelOpt's NKIBench"), ("autocomp", "autocomp")):
        command = commands.add_parser(name, help=f"kernels that {folder} scores")
        command.add_argument("checkout", type=Path, help=f"where {folder} lies")
        command.add_argument("--to", type=Path, default=Path(f"{name}.jsonl"), metavar="FILE")
        command.add_argument("--timeout", type=int, default=120, help="seconds per kernel")
        command.add_argument("--budget", type=float, default=0, help="seconds in all; 0: any")
        command.add_argument("--only", default="", help="part of the kernel's name")
        command.add_argument("--scratch", type=Path, default=Path("real_kernels_scratch"))
        command.add_argument("--seed", type=int, default=0, help="of NKIBench's inputs")
        command.add_argument(
            "--candidates", type=Path, help="kda-for-trainium, whose kernels take their place"
        )
    scores = commands.add_parser("scores", help="Markdown of what nkibench and autocomp wrote")
    scores.add_argument("files", type=Path, nargs="+")
    errors = commands.add_parser("device", help="Markdown: errors here and on a device")
    errors.add_argument("files", type=Path, nargs="+", help="what nkibench wrote")
    errors.add_argument("--candidates", type=Path, required=True, help="kda-for-trainium")
    foreign.add_options(commands.add_parser("foreign", help=foreign.__doc__))
    options = parser.parse_args()
    if options.command == "foreign":
        sys.exit(foreign.run(options))
    if options.command == "device":
        print(device.table(evaluators.rows(options.files), options.candidates))
    elif options.command == "scores":
        print(evaluators.table(options.files))
    elif options.command in ("nkibench", "autocomp"):
        evaluators.run(options)
    elif options.command == "table":
        print(summary.tables(options.files, options.kernels))
    else:
        {"library": library, "docs": docs, "samples": samples}[options.command](options)


def library(options: argparse.Namespace) -> None:
    """nki-library's integration tests in its simulation mode, file by file, and larger worlds."""
    checkout = options.checkout.resolve()
    scratch = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    harness = ["--record-library", "-c", "test/pytest.ini", "--rootdir", "test"]
    harness += ["--test-mode", "simulation", "--force-local-cleanup"]
    harness += ["--platform-target", options.platform]
    if options.large:
        os.environ["NKILIB_SIMULATION_RUN_ALL"] = "1"
    harness += ["--output-directory", str(scratch / "out"), "-o", f"artifacts_dir={scratch}"]
    for file in sorted(checkout.glob("test/integration/**/test_*.py")):
        if str(file.relative_to(checkout)) < options.first:
            continue
        if "def test_" in file.read_text():
            _pytest(options, file, [checkout, checkout / "src"], harness)
    _checks(options, "collectives")


def docs(options: argparse.Namespace) -> None:
    """The documentation's tests of Beta 1 instructions, and its example scripts."""
    checkout = options.checkout.resolve()
    for file in sorted(checkout.glob("nki/test/test_*.py")):
        _pytest(options, file, [], [])
    for folder in ("nki/examples", "nki/deep-dives"):
        for file in sorted(checkout.glob(f"{folder}/**/*.py")):
            _script(options, file)
    _checks(options, "pages")


def samples(options: argparse.Namespace) -> None:
    """nki-samples' scripts, and what they leave out. Its unit tests import what it doesn't have."""
    checkout = options.checkout.resolve()
    for folder in ("src", "contributed"):
        for file in sorted(checkout.glob(f"{folder}/**/*.py")):
            if "__main__" in file.read_text() or folder == "contributed":
                _script(options, file)
    _checks(options, "checks")


def _pytest(options: argparse.Namespace, file: Path, path: list[Path], more: list[str]) -> None:
    """One test file in a process of its own, from the checkout's directory."""
    checkout = options.checkout.resolve()
    relative = str(file.relative_to(checkout))
    if options.only not in relative:
        return
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "nki_dist.pytest_plugin", "-p", "bench.real_kernels.record"]
    command += ["--record-to", str(options.to.resolve()), "--record-sample", str(options.sample)]
    command += ["--record-budget", str(options.budget), "--timeout", str(options.timeout)]
    command += ["--timeout-method", "signal", *more, relative]
    environment = _environment(relative, *path)
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    lines = (done.stdout.strip() or done.stderr.strip() or "no output").splitlines()
    print(f"{relative}: {lines[-1]}", flush=True)
    if done.returncode not in (0, 1, 2, 5):
        print("\n".join(lines[-15:]), file=sys.stderr, flush=True)


def _script(options: argparse.Namespace, file: Path) -> None:
    """One script, from its own folder."""
    relative = str(file.relative_to(options.checkout.resolve()))
    if options.only not in relative:
        return
    environment = _environment(relative)
    if "mxfp" in relative:
        environment["NEURON_PLATFORM_TARGET_OVERRIDE"] = "trn3"
    command = [sys.executable, "-m", "bench.real_kernels.script", str(file)]
    row = {"file": relative, "test": file.name, "outcome": "timeout", "kernels": []}
    try:
        done = subprocess.run(
            command,
            cwd=file.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=options.timeout,
        )
        row = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        row |= {"reason": f"more than {options.timeout} s", "seconds": options.timeout}
    print(f"{relative}: {row['outcome']} {row['reason']}", flush=True)
    with options.to.open("a") as record:
        record.write(json.dumps(row) + "\n")


def _checks(options: argparse.Namespace, program: str) -> None:
    """Kernels that no test of the checkout covers."""
    command = [sys.executable, "-m", f"bench.real_kernels.{program}", str(options.checkout)]
    if not options.only:
        with options.to.open("a") as record:
            subprocess.run(command, env=_environment(""), stdout=record, check=True)


def _environment(file: str, *path: Path) -> dict[str, str]:
    """For a process of a checkout's tests: it leaves no files there, and computes in one thread."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *path])),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "NKI_DIST_HOST": "inprocess",
        "NEURON_PYTHONHASHSEED": "0",  # nki-library's seed of what it draws at random
        "REAL_KERNELS_FILE": file,
    }


if __name__ == "__main__":
    main()
