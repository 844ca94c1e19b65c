"""The checkouts, what of them `foreign` runs, and whether it ran on a device.

A job is one process. `ran` says how one knows that a file's kernels ran on a Trainium; where nobody
knows, it is empty, and what such kernels do contradicts no rule.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.real_kernels import evaluators

PYTHON = sys.executable
PYTEST = [PYTHON, "-m", "pytest", "-q", "-x", "--maxfail=1000000", "-p", "no:cacheprovider"]
PYTEST += ["-p", "nki_dist.pytest_plugin", "-p", "bench.real_kernels.record"]
PYTEST += ["--timeout-method", "signal"]


BATCH = 25  # test files of one process, where they are small


@dataclass(frozen=True)
class Options:
    """What is chosen of all there is.

    Attributes:
        scratch: a folder for what programs write.
        sample: tests of each file of nki-library.
        budget: seconds for the tests of one file.
        candidates: of kda-for-trainium for one problem; 0: all.
    """

    scratch: Path
    sample: int = 10
    budget: float = 20
    candidates: int = 4


@dataclass(frozen=True)
class Job:
    """A process that launches kernels.

    Attributes:
        name: of the program, relative to the checkout.
        command: of the process.
        cwd: its directory.
        path: folders for PYTHONPATH.
        env: further variables.
        larger: variables for a second try, if pytest found no test that is small enough.
        timeout: seconds.
    """

    name: str
    command: list[str]
    cwd: Path
    path: tuple[Path, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    larger: dict[str, str] = field(default_factory=dict)
    timeout: float = 120


Ran = Callable[[Path, str], str]


@dataclass(frozen=True)
class Corpus:
    """A checkout.

    Attributes:
        name: also of its folder below NKI_REF.
        ran: of the checkout and a file in it: how one knows that its kernels ran, or "".
        jobs: what is run of it.
        kernels: patterns of the files that hold its kernels, for what is read and not traced.
        beta1: part of the paths of files that are of Beta 1 and don't say so by an import.
    """

    name: str
    ran: Ran
    jobs: Callable[[Path, Options], Iterator[Job]]
    kernels: tuple[str, ...] = ("**/*.py",)
    beta1: str = "neuronxcc"


def below(**folders: str) -> Ran:
    """Files ran if their path begins so (`__` for `/`, "" for any)."""
    ways = {name.replace("__", "/").strip("/"): how for name, how in folders.items()}

    def ran(checkout: Path, file: str) -> str:
        return next((how for start, how in ways.items() if file.startswith(start)), "")

    return ran


def _measured(checkout: Path, file: str) -> str:
    """kda-for-trainium's candidates with a latency, in the record of their problem."""
    path = Path(file)
    record = checkout / path.parents[1] / "candidates.jsonl"
    if path.parent.name != "runs" or not record.exists():
        return ""
    for line in record.read_text().splitlines():
        row = json.loads(line) if line.strip() else {}
        named = Path(str(row.get("candidate", ""))).name == path.name
        if named and row.get("passed") and row.get("latency_ms"):
            return f"{record.relative_to(checkout)}: passed on trn2, {row['latency_ms']} ms"
    return ""


def _library(checkout: Path, options: Options) -> Iterator[Job]:
    for file in sorted(checkout.glob("test/integration/**/test_*.py")):
        text = file.read_text()
        if "def test_" not in text:
            continue
        name = str(file.relative_to(checkout))
        for platform in ("trn2", "trn3"):
            if platform == "trn3" and not ("mx" in name or "mx" in text or "TRN3" in text):
                continue
            scratch = options.scratch / f"{platform}-{file.stem}"
            command = [*PYTEST, "--record-library", "-c", "test/pytest.ini", "--rootdir", "test"]
            command += ["--test-mode", "simulation", "--force-local-cleanup"]
            command += ["--platform-target", platform, "--record-sample", str(options.sample)]
            command += ["--record-varied"]
            command += ["--record-budget", str(options.budget), "--timeout", "120"]
            command += ["--output-directory", str(scratch), "-o", f"artifacts_dir={scratch}", name]
            path = (checkout, checkout / "src")
            env = {"REAL_KERNELS_ONE": "1"}
            larger = {"NKILIB_SIMULATION_RUN_ALL": "1"} if platform == "trn2" else {}
            limit = options.budget + 200  # collecting takes minutes where parameters are combined
            yield Job(f"{name} {platform}", command, checkout, path, env, larger, limit)


def _sdk(checkout: Path, options: Options) -> Iterator[Job]:
    files = [str(f.relative_to(checkout)) for f in sorted(checkout.glob("nki/test/test_*.py"))]
    for n in range(0, len(files), BATCH):
        command = [*PYTEST, "--timeout", "60", *files[n : n + BATCH]]
        yield Job(f"nki/test {n // BATCH + 1}", command, checkout, timeout=600)
    for folder in ("nki/examples", "nki/deep-dives"):
        for file in sorted(checkout.glob(f"{folder}/**/*.py")):
            yield _script(checkout, file)
    yield _checks(checkout, "pages")


def _samples(checkout: Path, options: Options) -> Iterator[Job]:
    for folder in ("src", "contributed"):
        for file in sorted(checkout.glob(f"{folder}/**/*.py")):
            if "__main__" in file.read_text() or folder == "contributed":
                yield _script(checkout, file)
    yield _checks(checkout, "checks")


def _script(checkout: Path, file: Path) -> Job:
    name = str(file.relative_to(checkout))
    env = {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"} if "mxfp" in name else {}
    command = [PYTHON, "-m", "bench.real_kernels.script", str(file)]
    return Job(name, command, file.parent, env=env)


def _checks(checkout: Path, program: str) -> Job:
    command = [PYTHON, "-m", f"bench.real_kernels.{program}", str(checkout)]
    return Job(f"bench.real_kernels.{program}", command, checkout)


def _nkibench(checkout: Path, options: Options) -> Iterator[Job]:
    yield from _judged(checkout, evaluators.nkibench_jobs(checkout / "NKIBench", None, 0))


def _kda(checkout: Path, options: Options) -> Iterator[Job]:
    nkibench = checkout.parent / "accelopt" / "NKIBench"
    jobs = evaluators.nkibench_jobs(nkibench, checkout, 0)
    taken: dict[str, int] = {}
    for job in jobs:
        problem = job[0].partition("/")[0]
        taken[problem] = taken.get(problem, 0) + 1
        if not options.candidates or taken[problem] <= options.candidates:
            yield from _judged(checkout, [job])


def _judged(checkout: Path, jobs: list[tuple[str, list[str]]]) -> Iterator[Job]:
    start = [PYTHON, "-m", "bench.real_kernels.evaluators"]
    for name, arguments in jobs:
        yield Job(name, [*start, *arguments], checkout, env={"REAL_KERNELS_ONE": "1"})


def _autocomp(checkout: Path, options: Options) -> Iterator[Job]:
    start = [PYTHON, "-m", "bench.real_kernels.script"]
    for name, arguments in evaluators.autocomp_jobs(checkout, options.scratch):
        yield Job(name, [*start, *arguments], options.scratch)


def _autotune(checkout: Path, options: Options) -> Iterator[Job]:
    path = (checkout, checkout / "nkigym" / "src", checkout / "autotune" / "src")
    for file in sorted(checkout.glob("kernel_library/**/*.py")):
        yield _own(checkout, file)
    yield Job(
        "kernel_transforms.py",
        [PYTHON, "-m", "bench.real_kernels.script", str(checkout / "kernel_transforms.py")],
        options.scratch,
        path,
    )
    for file in sorted(checkout.glob("test/**/test_*.py")):
        if "simulate" in file.read_text():
            name = str(file.relative_to(checkout))
            yield Job(name, [*PYTEST, "--timeout", "60", name], checkout, path)


def _nkipy(checkout: Path, options: Options) -> Iterator[Job]:
    for name in (
        "examples/models/gpt_oss/kernels/nki/rmsnorm.py",
        "examples/models/qwen3/kernels/sampling.py",
        "examples/playground/simple_nki_kernel.py",
    ):
        yield _own(checkout, checkout / name)


def _viz(checkout: Path, options: Options) -> Iterator[Job]:
    for file in sorted(checkout.glob("examples/nki*/*.py")):
        if "__main__" in file.read_text():
            yield _own(checkout, file)


def _own(checkout: Path, file: Path) -> Job:
    command = [PYTHON, "-m", "bench.real_kernels.launches", str(file)]
    return Job(str(file.relative_to(checkout)), command, file.parent)


LIBRARY = "its tests compile it and run it on hardware (test/README.md); neuronx-cc ships it"
LATENCIES = "its unit tests ask latencies of a device"
PAGES = "bench.real_kernels.pages (kernel-optimization"
PROFILED = "nki/guides/tutorials/kernel-optimization.rst: its profiles, Tensor 87.28 % busy"
MFU = "kernel_library/README.md: measured on trn2 at 91 % and 89 % of its peak"
SPEEDUPS = "README.md: profiled on trn1.32xlarge"
BASELINES = "README.md: baselines of published speed-ups on trn1"

CORPORA = (
    Corpus("nki-library", lambda *_: LIBRARY, _library, ("src/**/*.py", "test/**/*.py")),
    Corpus("aws-neuron-sdk", below(**{PAGES: PROFILED}), _sdk, ("nki/**/*.py",)),
    Corpus("nki-samples", lambda *_: LATENCIES, _samples, ("src/**/*.py", "contributed/**/*.py")),
    Corpus(
        "nki-autotune",
        below(kernel_library__matmul=MFU),
        _autotune,
        ("kernel_library/**/*.py", "kernel_transforms.py"),
    ),
    Corpus("accelopt", below(NKIBench__kernels=SPEEDUPS), _nkibench, ("NKIBench/kernels/*.py",)),
    Corpus("kda-for-trainium", _measured, _kda, ("workspaces/**/*.py",)),
    Corpus(
        "autocomp",
        below(**{"sols__trn-tutorial-nki1": BASELINES, "sols__trn-advanced-nki1": BASELINES}),
        _autocomp,
        ("sols/trn*/*.py",),
        beta1="nki1",
    ),
    Corpus("nkipy", lambda *_: "", _nkipy, ("examples/**/*.py",)),
    Corpus("triton-viz", lambda *_: "", _viz, ("examples/nki*/*.py",)),
)
