"""`nki-dist calibrate` and the files it writes."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.arch.measured import FIGURES, measured, scaled, write
from nki_dist.cli import calibrate, main
from nki_dist.cli.shared import timed as _timed
from nki_dist.errors import LaunchError
from nki_dist.launcher.calibrating import fit

TRN2 = arch.get("trn2")


@nki.jit
def copied(x, columns=512):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for column in range(0, x.shape[1], columns):
        tile = nl.load(x[:, column : column + columns])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
        nl.store(out[:, column : column + columns], tile)
    return out


# ---- the fit ------------------------------------------------------------------------------------

WORK = 1 + 100 * np.random.default_rng(2).uniform(0, 1, (24, 4)) ** 4  # each row has its own mix


def model(factors):
    """Times with a constant part, one over a rate, and two more."""
    return WORK[:, 0] * factors[0] + WORK[:, 1] / factors[1] + WORK[:, 2:] @ factors[2:]


def test_a_fit_finds_the_factors():
    true = np.array([1.5, 0.7, 1.2, 0.8])
    found = fit(model, model(true), 4)
    np.testing.assert_allclose(found.factors, true, rtol=0.1)
    assert abs(found.after - 1).max() < 0.02 < abs(found.before - 1).max()
    assert min(found.determined) > 0.9


def test_a_figure_that_nothing_depends_on_stays():
    found = fit(lambda f: model([f[0], f[1], 1, 1]), model([1.3, 1.4, 1, 1]), 4)
    np.testing.assert_allclose(found.factors[2:], 1, atol=1e-9)
    np.testing.assert_allclose(found.determined[2:], 0, atol=1e-9)


def test_rows_left_out_are_those_of_fits_without_them():
    noisy = model([1.1, 0.9, 1, 1]) * np.random.default_rng(3).lognormal(0, 0.1, 24)
    whole = fit(model, noisy, 4)
    assert abs(np.log(whole.left_out)).mean() > abs(np.log(whole.after)).mean()
    for row in range(24):
        others = np.arange(24) != row
        alone = fit(lambda f, kept=others: model(f)[kept], noisy[others], 4)
        ratio = model(alone.factors)[row] / noisy[row]
        assert np.log(whole.left_out[row]) == pytest.approx(np.log(ratio), abs=0.02)


def test_factors_have_limits():
    found = fit(lambda f: WORK[:, 0] * f[0], 9 * WORK[:, 0], 1)
    assert found.factors == pytest.approx([4.0])


# ---- files of figures ---------------------------------------------------------------------------


def figures(tmp_path, **factors):
    path = tmp_path / "ours.json"
    names = {name.replace("_", " "): f for name, f in factors.items()}
    write(path, {"trn2": scaled(TRN2, names)}, "a test")
    return path


def test_the_figures_are_fields():
    assert all(hasattr(TRN2, name) for names in FIGURES.values() for name in names)
    assert all(FIGURES.values())


def test_worlds_kernels_and_estimates_take_a_file(tmp_path, monkeypatch):
    spec = nki.TensorSpec((128, 2048), nl.float32)
    path = figures(tmp_path, launch_overhead=2.0, DMA_latency=1.5)
    before = nki.estimate(copied)(spec)
    world = nki.World(host="inprocess", arch=path)
    after = world.estimate(copied, spec)
    assert after.overhead_us == pytest.approx(2 * before.overhead_us)
    assert after.total_us > before.total_us
    assert world.arch.sources()["dma_semaphore_ns"] == "fitted: a test"
    assert nki.World(host="inprocess").arch is TRN2
    assert nki.World(host="inprocess", platform="trn1", arch=path).arch is arch.get("trn1")
    monkeypatch.setenv("NKI_DIST_ARCH", str(path))
    assert nki.estimate(copied)(spec).to_dict() == after.to_dict()
    x = np.ones((128, 2048), np.float32)
    run = nki.profile(copied, host="inprocess")(x)
    assert run.profile.to_dict() == after.to_dict()
    np.testing.assert_array_equal(run.outputs, 3 * x)
    monkeypatch.delenv("NKI_DIST_ARCH")
    assert nki.estimate(copied)(spec).to_dict() == before.to_dict()


GOOD = {"version": 1, "source": "s", "platforms": {"trn2": {"semaphore_ns": 50.0}}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "can't be read"),
        ("{", "can't be read"),
        ("[]", "isn't a file of figures"),
        (json.dumps({**GOOD, "version": 2}), "has version 2; allowed: 1"),
        (json.dumps({**GOOD, "platforms": {"trn2": 3}}), "platform trn2: 3"),
        (json.dumps({**GOOD, "platforms": {"trn2": {"psum_banks": 3}}}), "has psum_banks; allowed"),
        (json.dumps({**GOOD, "platforms": {"trn2": {"semaphore_ns": 0}}}), "must be positive"),
        (json.dumps({**GOOD, "platforms": {"trn2": {"semaphore_ns": "1"}}}), "must be positive"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    path = tmp_path / "ours.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(LaunchError, match=re.escape(str(path)) + ".*" + message) as e:
        nki.World(host="inprocess", arch=path)
    assert e.value.code == "architecture-file"


def test_a_good_file(tmp_path):
    path = tmp_path / "ours.json"
    path.write_text(json.dumps(GOOD))
    assert measured(TRN2, path).semaphore_ns == 50.0
    assert measured(arch.get("trn3"), path) is arch.get("trn3")


# ---- the command --------------------------------------------------------------------------------


def rows(tmp_path, text):
    path = tmp_path / "measured.csv"
    path.write_text(text)
    return path


def test_rows(tmp_path):
    path = rows(tmp_path, "program,lnc,measured_us,platform\na.py,2,3.5,TRN1\nb.py,,7,\n")
    a, b = calibrate.read(path)
    assert a == calibrate.Row(2, str(tmp_path / "a.py"), 3.5, ("--platform", "trn1", "--lnc", "2"))
    assert (b.measured_us, b.options) == (7.0, ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has the columns none"),
        ("program,platform\n", "needed are program and measured_us"),
        ("program,measured_us,us\n", "program, measured_us, us"),
        ("program,measured_us\na.py,fast\n", "line 2: measured_us is 'fast'"),
        ("program,measured_us\na.py,nan\n", "line 2: measured_us is 'nan'"),
        ("program,measured_us\na.py\n", "line 2 has more or fewer values"),
        ("program,measured_us\na.py,1,2\n", "line 2 has more or fewer values"),
        ("program,measured_us,lnc\na.py,1,3\n", "lnc is '3'; allowed: 1 or 2"),
        ("program,measured_us,platform\na.py,1,trn9\n", "unknown platform: got 'trn9'"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(LaunchError, match=message):
        calibrate.read(rows(tmp_path, text))


@pytest.mark.slow
def test_a_machine_is_found_again(tmp_path, monkeypatch, capfd):
    """Times of a machine with a slower launch and DMA; the figures come back from them."""
    monkeypatch.chdir(tmp_path)
    package = os.path.dirname(_timed.PACKAGE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]))
    true = {"launch_overhead": 1.5, "DMA_rate": 0.6}
    world = nki.World(host="inprocess", arch=figures(tmp_path, **true))
    lines = ["program,measured_us"]
    shapes = [(64, 64), (256, 256), (2048, 64), (2048, 2048), (8192, 512), (8192, 4096)]
    shapes += [(1024, 1024), (4096, 256)]
    for n, (width, columns) in enumerate(shapes):
        Path(f"p{n}.py").write_text(
            "import numpy as np\nfrom tests.estimates.test_calibrate import copied\n"
            f"copied(np.ones((128, {width}), np.float32), {columns})\n"
        )
        spec = nki.TensorSpec((128, width), nl.float32)
        lines.append(f"p{n}.py,{world.estimate(copied, spec, columns=columns).device_us}")
    copied.compile(np.ones((128, width), np.float32), columns).save("p.nki-dist")  # the last one's
    lines[-1] = lines[-1].replace(f"p{n}.py", "p.nki-dist")
    Path("few.csv").write_text("\n".join(lines[:-1]))
    assert main(["calibrate", "few.csv"]) == 1
    assert "7 rows; 4 figures need at least 8" in capfd.readouterr().err
    Path("all.csv").write_text("\n".join(lines))
    assert main(["calibrate", "all.csv", "-o", "found.json"]) == 0
    text = capfd.readouterr().out
    assert "left out" in text and "the rows say little about it" in text
    found = measured(TRN2, "found.json")
    for figure, factor in true.items():
        for name in FIGURES[figure.replace("_", " ")]:
            assert getattr(found, name) / getattr(TRN2, name) == pytest.approx(factor, rel=0.15)
    Path("bad.csv").write_text("\n".join([*lines, "absent.py,3"]))
    assert main(["calibrate", "bad.csv"]) == 1
    assert "line 10" in capfd.readouterr().err
