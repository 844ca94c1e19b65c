"""`python -m bench.mutants`: change the package in small ways, and see whether the tests notice.

Results are kept as JSON lines: the same command goes on where an earlier one was stopped, as long
as the package and its tests are the same. After a change of tests, `--again` tries only survivors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import sys
from pathlib import Path

from bench.mutants import report
from bench.mutants.areas import AREAS
from bench.mutants.sample import Changes, Mutant
from bench.mutants.trials import SURVIVED, Trial, Trials, files

ROOT = Path(__file__).parents[2]
MEMORY = 8 << 30  # bytes of a process, without shared maps: a changed size may ask for all there is


def main() -> None:
    names = [area.name for area in AREAS]
    parser = argparse.ArgumentParser(prog="python -m bench.mutants", description=__doc__)
    parser.add_argument("--size", type=int, default=324, help="mutants in all")
    parser.add_argument("--seed", type=int, default=1, help="of the choice")
    parser.add_argument("--area", choices=names, action="append", help="these areas only")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--again", action="store_true", help="keep what was killed earlier")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    areas = [area for area in AREAS if area.name in (options.area or names)]
    changes = Changes(ROOT)
    chosen = changes.choose(options.size, options.seed, areas)
    options.folder.mkdir(parents=True, exist_ok=True)
    trials = _tried(chosen, changes, options)
    print(f"Seed {options.seed}.\n\n{report.table(trials)}\n\n{report.survivors(trials)}")


def _tried(chosen: list[Mutant], changes: Changes, options: argparse.Namespace) -> list[Trial]:
    """A trial of each mutant, in the order of `chosen`: those on record, and the rest now."""
    record = options.folder / "trials.jsonl"
    tree = _digest()
    known = _on_record(record, tree, options.again)
    waiting = [mutant for mutant in chosen if mutant not in known]
    if waiting:
        trials = Trials(changes, ROOT, options.folder, options.jobs)
        with record.open("a") as lines:
            for count, trial in enumerate(trials.run(waiting), 1):
                known[trial.mutant] = trial
                print(json.dumps([tree, *trial]), file=lines, flush=True)
                m = trial.mutant
                where = f"{count}/{len(waiting)} {m.path}:{m.line}"
                print(f"{where} {trial.outcome} {trial.by}", file=sys.stderr)
    return [known[mutant] for mutant in chosen]


def _on_record(record: Path, tree: str, again: bool) -> dict[Mutant, Trial]:
    """Earlier trials on this tree; with `again`, those of killed mutants on any."""
    known = {}
    for line in record.read_text().splitlines() if record.exists() else ():
        where, mutant, outcome, *rest = json.loads(line)
        if where == tree or (again and outcome != SURVIVED):
            known[Mutant(*mutant)] = Trial(Mutant(*mutant), outcome, *rest)
    return known


def _digest() -> str:
    """Of the package and its tests."""
    digest = hashlib.sha256()
    for path in sorted(files(ROOT)):
        if path.parts[0] in ("nki_dist", "tests"):
            digest.update(f"{path} ".encode() + (ROOT / path).read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
