"""Runs the jobs of all corpora with launches that are only traced; rows of what was found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.real_kernels import rules
from bench.real_kernels.corpora import Corpus, Job, Options
from bench.real_kernels.tracing import PLACES_VARIABLE, TRACE_VARIABLE

NO_TESTS = 5  # pytest's exit status
ROOT = Path(__file__).parents[2]


def traced(
    corpora: Iterable[Corpus], reference: Path, options: Options, only: str, to: Path, jobs: int
) -> Iterator[dict[str, Any]]:
    """A row per job, with its launches; each is also appended to a file."""
    work = [
        (corpus, job)
        for corpus in corpora
        if (reference / corpus.name).is_dir()
        for job in corpus.jobs((reference / corpus.name).resolve(), options)
        if only in f"{corpus.name}/{job.name}"
    ]
    judged = options.scratch / "places.json"
    judged.write_text(json.dumps(sorted({place for _, place in rules.places().values()})))
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(lambda each: _tried(*each, judged), work):
            with to.open("a") as file:
                file.write(json.dumps(row) + "\n")
            yield row


def _tried(corpus: Corpus, job: Job, judged: Path) -> dict[str, Any]:
    row = _run(corpus, job, judged)
    if row["status"] == f"status {NO_TESTS}" and job.larger:
        row = _run(corpus, replace(job, env={**job.env, **job.larger}), judged)
    return row


def _run(corpus: Corpus, job: Job, judged: Path) -> dict[str, Any]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "launches.jsonl"
        log = Path(folder) / "log"
        with log.open("w") as out:
            process = subprocess.Popen(
                job.command,
                cwd=job.cwd,
                env={**_environment(job, trace), PLACES_VARIABLE: str(judged.resolve())},
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                status = f"status {process.wait(job.timeout)}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = "out of time"
        launches = []
        if trace.exists():
            launches = [json.loads(line) for line in trace.read_text().splitlines()]
        said = log.read_text(errors="replace")[-2000:]
    seconds = round(time.monotonic() - began, 1)
    row = {"corpus": corpus.name, "program": job.name, "status": status, "seconds": seconds}
    return row | {"said": said, "launches": launches}


def _environment(job: Job, trace: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *job.path])),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "NKI_DIST_HOST": "inprocess",
        "NKI_DIST_CHECK": "refusals=all",  # what evidence makes silent is looked for, too
        "NEURON_PYTHONHASHSEED": "0",  # nki-library's seed of what it draws at random
        "REAL_KERNELS_FILE": job.name,
        TRACE_VARIABLE: str(trace),
        **job.env,
    }
