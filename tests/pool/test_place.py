"""Where a keeper is found: whose folder, whose socket, and what is left of one that was killed."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from nki_dist.cli import main
from nki_dist.core_actor import fingerprint
from nki_dist.core_actor.pool import borrowed, control, place
from nki_dist.errors import ClusterWarning, LaunchError


@pytest.fixture
def where(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="nki-", dir="/tmp") as folder:
        monkeypatch.setenv(place.FOLDER_VARIABLE, folder)
        monkeypatch.setenv("NKI_DIST_CLUSTER", "auto")
        yield Path(folder)


def left_behind(where: Path) -> None:
    """A socket that nobody listens at."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(where / place.SOCKET))


class Answering:
    """A keeper that gives these answers, or none; knows what it was asked."""

    def __init__(self, where: Path, *answers: dict) -> None:
        self.asked: list[dict] = []
        self._answers, self._where = answers, where
        self._listening = place.listen(where)
        self._thread = threading.Thread(target=self._serve)
        self._open: list[place.Line] = []

    def _serve(self) -> None:
        for answer in self._answers:
            self._open.append(line := place.Line(self._listening.accept()[0]))
            self.asked.append(line.take() or {})
            line.send(answer)

    def __enter__(self) -> Answering:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._answers:
            self._thread.join()
        for line in self._open:
            line.close()
        self._listening.close()


def test_without_a_keeper_nothing_is_said(where) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not borrowed.join(None)
    assert control.status() == {"state": "none", "folder": str(where)}
    assert control.stop(force=False).startswith("no Ray is kept")
    assert main(["cluster", "status"]) == 1


def test_what_a_killed_keeper_left_is_said_and_cleared(where, capsys) -> None:
    left_behind(where)
    with pytest.warns(ClusterWarning, match="ended without clearing up: it was killed") as given:
        assert not borrowed.join(None)
    assert given[0].message.code == "cluster-unused"
    assert control.status()["state"] == "stale"
    assert main(["cluster", "stop"]) == 0
    assert "removed what a killed keeper left" in capsys.readouterr().out
    assert control.status()["state"] == "none"


def test_nothing_is_cleared_from_under_a_keeper_that_starts(where, monkeypatch) -> None:
    monkeypatch.setattr(control, "LOCK_SECONDS", 0.1)
    left_behind(where)
    held = place.lock(where)
    with pytest.raises(LaunchError, match="a keeper that starts or ends holds"):
        control.stop(force=False)
    with pytest.raises(LaunchError, match="runs or starts already") as info:
        control.start(1, 60, None)
    assert info.value.code == "cluster-start" and (where / place.SOCKET).exists()
    os.close(held)


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777])
def test_a_folder_that_others_can_enter_is_refused(where, mode) -> None:
    left_behind(where)
    where.chmod(mode)
    with pytest.raises(LaunchError, match=f"mode {mode:o}.*chmod 700") as info:
        control.start(1, 60, None)
    assert info.value.code == "cluster-place"
    with pytest.warns(ClusterWarning, match="nobody else can enter"):
        assert not borrowed.join(None)


def test_a_link_to_a_folder_is_refused(where, monkeypatch) -> None:
    (where / "link").symlink_to(where)
    monkeypatch.setenv(place.FOLDER_VARIABLE, str(where / "link"))
    with pytest.raises(LaunchError, match="must be a directory of user"):
        place.make()


def test_a_path_too_long_for_a_socket(where, monkeypatch) -> None:
    monkeypatch.setenv(place.FOLDER_VARIABLE, str(where / ("x" * 100)))
    with pytest.raises(LaunchError, match="too long for a socket's path"):
        place.make()


def test_one_that_is_silent_is_not_waited_for(where, monkeypatch) -> None:
    monkeypatch.setattr(place, "ANSWER_SECONDS", 0.05)
    with Answering(where):
        with pytest.warns(ClusterWarning, match=r"the keeper doesn't answer.*0.05 s"):
            assert not borrowed.join(None)
        assert control.status()["state"] == "silent"
        with pytest.raises(LaunchError, match="--force kills it"):
            control.stop(force=False)


def test_a_world_says_that_it_got_no_actors(where, monkeypatch) -> None:
    monkeypatch.setattr(place, "ANSWER_SECONDS", 0.05)
    context = SimpleNamespace(gcs_address="nowhere:1")
    monkeypatch.setattr(borrowed.ray, "get_runtime_context", lambda: context)
    said = r"lends no actors .*0.05 s.* starts its own"
    with Answering(where), pytest.warns(ClusterWarning, match=said):
        assert borrowed.Loan(2).take() is None


def test_another_version_is_told_with_both(where, monkeypatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    pool = {**fingerprint.facts(), "NumPy": "1.0.0", "OPENBLAS_CORETYPE": "Zen"}
    answer = {"facts": pool, "address": "nowhere:1", "token": False}
    with Answering(where, answer), pytest.warns(ClusterWarning) as given:
        assert not borrowed.join(None)
    text = str(given[0].message)
    assert "NumPy: 1.0.0 there, " in text and "OPENBLAS_CORETYPE: Zen there, " in text
    assert "SciPy" not in text and "nki-dist cluster stop" in text


def test_another_size_of_the_store_is_another_ray(where) -> None:
    answer = {"facts": fingerprint.facts(), "store": 5 << 20, "token": False}
    said = "object store: 5242880 there, 7 here"
    with Answering(where, answer), pytest.warns(ClusterWarning, match=said):
        assert not borrowed.join(7)


def test_a_program_that_wants_none_asks_nobody(where, monkeypatch) -> None:
    left_behind(where)
    monkeypatch.setenv("NKI_DIST_CLUSTER", "off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not borrowed.join(None)
        assert borrowed.Loan(2).take() is None
    monkeypatch.setenv("NKI_DIST_CLUSTER", "perhaps")
    with pytest.raises(LaunchError, match="NKI_DIST_CLUSTER='perhaps'; allowed: auto, off"):
        borrowed.join(None)


def test_stop_refuses_while_programs_use_it(where, capsys) -> None:
    refused = pytest.raises(LaunchError, match=r"processes 17, 4.*--force")
    with Answering(where, {"programs": [17, 4]}) as keeper, refused:
        control.stop(force=False)
    assert keeper.asked == [{"want": "stop", "force": False}]


def test_an_edited_file_of_the_package_is_a_difference(tmp_path, monkeypatch) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "file.py").write_text("x = 1\n")
    monkeypatch.setattr(fingerprint, "PACKAGE", str(tmp_path))
    before = fingerprint.facts()
    os.utime(tmp_path / "room" / "file.py", ns=(1, 1))
    (found,) = fingerprint.differences(before, fingerprint.facts())
    assert found.startswith("files of nki_dist: ") and found.endswith("changed 1 here")


def test_a_token_is_not_shown(monkeypatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert "secret" not in str(fingerprint.facts())
    mine = fingerprint.facts()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "other")
    assert fingerprint.differences(mine, fingerprint.facts())


@pytest.mark.parametrize("words", [["--actors", "0"], ["--idle", "0"], ["--idle", "nan"]])
def test_wrong_options(where, words, capsys) -> None:
    assert main(["cluster", "start", *words]) == 1
    assert "must be at least 1" in capsys.readouterr().err


def test_status_of_one_that_was_killed_and_of_a_folder_that_others_may_enter(where, capsys) -> None:
    left_behind(where)
    assert main(["cluster", "status"]) == 1
    assert (
        f"a keeper was killed, or the machine was switched off; {where}" in capsys.readouterr().out
    )
    where.chmod(0o755)
    assert main(["cluster", "status"]) == 1
    assert "mode 755" in capsys.readouterr().err
