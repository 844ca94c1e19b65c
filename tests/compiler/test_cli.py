"""The console script: commands, their output and exit status."""

import dataclasses
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from nki_dist import cli
from nki_dist.cli import main
from nki_dist.cli.doctor import machine as doctor
from tests.compiler.programs import real

MACHINE = doctor.Machine(
    packages={name: ".".join(map(str, least)) for name, least in doctor.PACKAGES.items()},
    cpus=4,
    memory=64 << 30,
    shm=(32 << 30, 30 << 30),
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "add.nki-dist"
    real()[0].save(path)
    return str(path)


def test_disasm_lists_every_core(file, capsys):
    assert main(["disasm", file]) == 0
    shown = capsys.readouterr().out
    assert "core 0 of 2" in shown
    assert "core 1 of 2" in shown


def test_disasm_of_one_core_with_source(file, capsys):
    assert main(["disasm", file, "--core", "1", "--source"]) == 0
    shown = capsys.readouterr().out
    assert "core 0 of 2" not in shown
    assert "# nisa.tensor_tensor(dst=ta, data1=ta, data2=tb, op=nl.add)" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--core", "2"], "LaunchError: --core 2; allowed: 0 to 1"),
        (["--core", "-1"], "LaunchError: --core -1; allowed: 0 to 1"),
    ],
)
def test_disasm_refuses_cores_that_arent_there(file, capsys, arguments, message):
    assert main(["disasm", file, *arguments]) == 1
    assert message in capsys.readouterr().err


def test_disasm_refuses_other_files(tmp_path, capsys):
    path = tmp_path / "notes.txt"
    path.write_text("not a compiled kernel")
    assert main(["disasm", str(path)]) == 1
    assert f"ProgramFormatError: {path}: malformed program" in capsys.readouterr().err
    assert main(["disasm", str(tmp_path / "missing")]) == 1
    assert "can't read a compiled kernel" in capsys.readouterr().err


def test_wrong_usage_is_status_2(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["fly"])
    assert caught.value.code == 2
    assert "invalid choice: 'fly'" in capsys.readouterr().err


def test_every_command_explains_itself(capsys):
    names = [m.name for m in pkgutil.iter_modules(cli.__path__) if m.name != "shared"]
    assert {"disasm", "doctor"} <= set(names)
    for name in names:
        assert callable(importlib.import_module(f"nki_dist.cli.{name}").register)
        with pytest.raises(SystemExit) as caught:
            main([name.replace("_", "-"), "--help"])
        assert caught.value.code == 0
        assert len(capsys.readouterr().out.splitlines()) >= 5


def test_a_command_with_parts_is_a_folder():
    files = {path.name for path in Path(cli.__path__[0]).rglob("_*.py")}
    assert files == {"__init__.py"}


def test_the_module_runs_as_a_program(file):
    """And a reader that stops early, as `head` does, is no error."""
    command = [sys.executable, "-m", "nki_dist", "disasm", file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"kernel two_cores")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


# ---- doctor -----------------------------------------------------------------------------------


def levels(**changes):
    machine = dataclasses.replace(MACHINE, **changes)
    return {f.subject: f for f in doctor.examine(machine) if f.level != "ok"}


def test_a_good_machine_has_nothing_to_report():
    assert levels() == {}


@pytest.mark.parametrize(
    ("changes", "subject", "level", "message"),
    [
        ({"packages": {**MACHINE.packages, "ray": "2.39.9"}}, "ray", "FAIL", "2.39.9; at least"),
        (
            {"packages": {**MACHINE.packages, "numpy": "!no"}},
            "numpy",
            "FAIL",
            "doesn't import (no)",
        ),
        ({"shm": None}, "/dev/shm", "warn", "mount a tmpfs"),
        ({"shm": (32 << 30, 64 << 20)}, "/dev/shm", "warn", "--shm-size"),
        ({"memory": 2 << 30}, "object store", "warn", "NKI_DIST_OBJECT_STORE_BYTES"),
        (
            {"environment": {"NKI_DIST_OBJECT_STORE_BYTES": str(99 << 30)}},
            "/dev/shm",
            "warn",
            "wants 99.0 GiB",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_fix(changes, subject, level, message):
    finding = levels(**changes)[subject]
    assert finding.level == level
    assert finding.fix
    assert message in str(finding)


@pytest.mark.parametrize(
    ("text", "parts"), [("2.4.0", (2, 4, 0)), ("2.13.0+cpu", (2, 13, 0)), ("1.2rc1", (1, 2))]
)
def test_version_numbers(text, parts):
    assert doctor.numbers(text) == parts


def test_doctor_asks_for_what_pip_asks_for():
    text = (Path(cli.__file__).parents[2] / "pyproject.toml").read_text()
    for name, least in doctor.PACKAGES.items():
        assert f'"{name}>={".".join(map(str, least))}"' in text


def test_doctor_looks_at_this_machine(capsys):
    status = main(["doctor"])
    shown = capsys.readouterr().out
    assert status == (1 if "FAIL" in shown else 0)
    assert "Python" in shown
    machine = doctor.look()
    assert machine.cpus >= 1 and machine.shm[0] >= machine.shm[1]
    assert machine.environment["PATH"] == os.environ["PATH"]
