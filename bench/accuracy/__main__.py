"""`python -m bench.accuracy`: docs/accuracy.md and its plot from stored results, and the bars.

--run          first simulate rows; reads kernels from checkouts below $NKI_REF
--fit          print the widths of the band that the results give
--leave-out    first fit figures without some of the rows; the same checkouts, and long
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.accuracy import leave_out, widths
from bench.accuracy.page import LEFT_OUT, PLOT, RESULTS, Found, bars_table, families_table, page
from bench.accuracy.plot import scatter
from bench.accuracy.rows import DATA, all_rows, chosen, read_results, write_results
from bench.accuracy.simulate import Limits, estimate

DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    options = _options()
    data, limits = options.data, Limits(options.timeout, options.memory)
    families = options.source.split(",") if options.source else []
    if options.run:
        _run(options, families, limits)
    if options.leave_out:
        rows = chosen(all_rows(), families, options.id)
        results = read_results(data / RESULTS)
        some = leave_out.sample(rows, results, options.sample)
        quick = leave_out.quick(rows, results)
        found = leave_out.measure(some, quick, options.jobs, limits, _say)
        leave_out.write(data / LEFT_OUT, found)
    found = Found.read(data)
    if not found.points:
        raise SystemExit(f"{data / RESULTS} has no results: run python -m bench.accuracy --run")
    if options.fit:
        table = widths.fitted(found.points)
        print("WIDTHS", json.dumps(dict(table.by_bound), indent=4))
        print("ASSUMED", table.assumed)
        print("FREEDOM", table.freedom)
        print("COVERED", widths.covered(found.points))
    if options.json:
        print(json.dumps([bar.__dict__ for bar in found.bars()], indent=1))
    else:
        print(f"{families_table(found.points)}\n\n{bars_table(found.bars())}")
    if data == DATA and not options.no_page:
        (DOCS / "accuracy.md").write_text(page(found))
        (DOCS / PLOT).write_text(scatter(found.points))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--run", action="store_true", help="simulate rows")
    parser.add_argument("--fit", action="store_true", help="print the band's widths")
    parser.add_argument("--leave-out", action="store_true", help="errors of rows left out")
    parser.add_argument("--json", action="store_true", help="bars as JSON")
    parser.add_argument("--source", default="", metavar="A,B", help="families to run; all")
    parser.add_argument("--id", default="", metavar="PART", help="of the ids of rows to run")
    parser.add_argument("--missing", action="store_true", help="run rows without a result only")
    parser.add_argument("--jobs", type=int, default=1, help="rows at the same time")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds of a row")
    parser.add_argument("--memory", type=int, default=10, help="GiB of a row")
    parser.add_argument(
        "--sample", type=int, default=leave_out.SAMPLE, help="rows of each family to fit to"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the results")
    parser.add_argument("--no-page", action="store_true", help="leave docs/accuracy.md as it is")
    return parser.parse_args()


def _run(options: argparse.Namespace, families: list[str], limits: Limits) -> None:
    """Simulate rows and keep what comes as it comes, so that a run can be taken up again."""
    path, rows = options.data / RESULTS, all_rows()
    results = read_results(path)
    todo = chosen(rows, families, options.id)
    if options.missing:
        todo = [row for row in todo if not (row.id in results and results[row.id].device_us)]
    todo.sort(key=lambda row: row.measured_us)  # the longest ones last
    for row, result in estimate(todo, options.jobs, limits):
        results[row.id] = result
        write_results(path, results, rows)
        said = result.error or f"{result.device_us:.1f} us, {result.seconds:.1f} s"
        _say(f"{row.id}: measured {row.measured_us:.1f} us, simulated {said}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
