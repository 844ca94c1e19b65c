"""`schedule=` wherever time is asked for, and what a profile says of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.cli import main
from nki_dist.errors import LaunchError
from nki_dist.timing import SCHEDULES, profile_launch
from nki_dist.timing.compiled import Change
from tests.timing.build import compiled, replay
from tests.timing.test_table import NOTHING

X = np.ones((96, 64), np.float32)


@nki.jit
def gram(x):
    tile = nl.load(x)
    total = nl.ndarray((64, 64), nl.float32, buffer=nl.psum)
    nisa.memset(dst=total, value=0)
    nisa.nc_matmul(dst=total, stationary=tile, moving=tile)
    result = nl.ndarray((64, 64), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    out = nl.ndarray((64, 64), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, result)
    return out


def in_world(method, find=lambda result: result, **always):
    def ask(**options):
        with nki.World(ranks=2, host="inprocess", platform="trn2") as world:
            return find(getattr(world, method)(gram, X, **always, **options))

    return ask


def alone(wrap, find=lambda result: result, **always):
    return lambda **options: find(wrap(gram, **always, **options)(X))


def replayed(**options):
    programs, machine = compiled(gram.fn, [X.shape])
    return profile_launch(programs, [[]], machine, "gram", **options)


WAYS = {
    "nki.profile": alone(nki.profile, lambda run: run.profile, host="inprocess"),
    "nki.benchmark": alone(nki.benchmark, lambda run: run.profile, host="inprocess"),
    "nki.estimate": alone(nki.estimate),
    "World.run": in_world("run", lambda run: run.profile, profile=True),
    "World.dry_run": in_world("dry_run", lambda report: report.profile, profile=True),
    "World.estimate": in_world("estimate"),
    "profile_launch": replayed,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_takes_both_and_compiled_by_default(way):
    found = {s: WAYS[way](schedule=s) for s in SCHEDULES}
    for schedule, p in found.items():
        assert p.schedule == schedule == p.to_dict()["schedule"]
        assert bool(p.changes) == (schedule == "compiled")
    assert WAYS[way]() == found["compiled"]
    assert found["compiled"].changes[0].count == found["compiled"].cores  # summed over cores


@pytest.mark.parametrize("wrong", ["program order", "COMPILED", "", None, 1, X])
@pytest.mark.parametrize("way", WAYS)
def test_another_schedule_is_refused(way, wrong):
    if wrong is X and way in ("nki.profile", "nki.benchmark", "nki.estimate"):
        pytest.skip("an array beside the kernel has a message of its own where it is likely")
    with pytest.raises(LaunchError, match=r"allowed: 'compiled' .* and 'program'") as caught:
        WAYS[way](schedule=wrong)
    assert caught.value.code == "profile-schedule"
    if way.startswith("nki."):
        assert caught.value.location.startswith(__file__)


def test_an_array_in_its_place_is_an_argument_of_the_kernel():
    with pytest.raises(LaunchError, match=r"nki.estimate\(kernel\)\(x, ...\)"):
        nki.estimate(gram, X)
    with pytest.raises(LaunchError, match=r"nki.profile\(kernel\)\(x, ...\)"):
        nki.profile(gram, "inprocess", X)


def test_a_refused_schedule_runs_nothing():
    out = np.zeros((2, 2), np.float32)

    def kernel(x):
        nl.store(x, nl.add(nl.load(x), 1.0))

    refused = pytest.raises(LaunchError, match="schedule='best'")
    with nki.World(host="inprocess") as world, refused:
        world.run(kernel, out, profile=True, schedule="best")
    assert not out.any()


def test_replay_refuses_it_too():
    programs, machine = compiled(gram.fn, [X.shape])
    with pytest.raises(LaunchError, match="schedule='best'; allowed"):
        replay(programs, [[]], machine, schedule="best")


# ---- nki-dist profile ---------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--schedule", "program"], ["--schedule", "compiled"]])
@pytest.mark.parametrize("saved", [False, True])
def test_the_command_takes_it(tmp_path, capsys, options, saved):
    schedule = options[-1] if options else "compiled"
    if saved:
        program = tmp_path / "gram.nki-dist"
        gram.compile(X).save(program)
    else:
        program = tmp_path / "program.py"
        program.write_text(
            "import numpy as np\nimport nki_dist as nki\nfrom tests.timing import test_schedules\n"
            "nki.simulate(test_schedules.gram)(test_schedules.X)\n"
        )
    folder = tmp_path / "made"
    assert main(["profile", *options, "--output", str(folder), str(program)]) == 0
    (file,) = [f for f in folder.glob("*.json") if ".trace" not in f.name]
    numbers = json.loads(file.read_text())
    assert numbers["schedule"] == schedule
    text = capsys.readouterr().out
    assert ("zeroing dropped" in text) == (schedule == "compiled") == bool(numbers["changes"])
    assert ("in program order" in text) == (schedule == "program")


# ---- what a profile says ------------------------------------------------------------------------


def change(n, size=0):
    return Change(f"/some/where/k.py:{n}", "spilled", n, size)


def section(p):
    """The lines about changes."""
    (found,) = [t for t in str(p).split("\n\n") if t.startswith("what the compiler")]
    return found.splitlines()[1:]


def test_changes_in_files(tmp_path):
    p = WAYS["World.run"]()
    p.save(tmp_path / "p.json")
    (saved,) = json.loads((tmp_path / "p.json").read_text())["changes"]
    line = gram.fn.__code__.co_firstlineno + 4  # the decorator's line is the first
    assert saved == {
        "location": f"{__file__}:{line}",
        "what": "zeroing dropped",
        "count": 2,
        "bytes": 0,
    }
    assert section(p) == [f"  zeroing dropped at test_schedules.py:{line}: 2"]


def test_seven_changes_are_shown_or_six_and_how_many_more():
    seven = [change(n, 1024) for n in range(7)]
    assert section(replace(NOTHING, changes=seven)) == [
        f"  spilled at k.py:{n}: {n}, 1.00 KiB" for n in range(7)
    ]
    more = section(replace(NOTHING, changes=[*seven, change(1000), change(8)]))
    assert len(more) == 7 and more[-1] == "  ... 3 more"


def test_the_head_says_which():
    assert str(NOTHING).splitlines()[0].endswith("us simulated, in program order")
    text = str(replace(NOTHING, schedule="compiled"))
    assert text.splitlines()[0].endswith("us simulated, as compiled")
    assert "what the compiler" not in text
