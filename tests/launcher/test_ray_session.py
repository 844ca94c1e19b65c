"""What users see where Ray can't be started or joined."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
import ray

from nki_dist.errors import LaunchError
from nki_dist.launcher.ray_session import STORE_VARIABLE, ensure_ray


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (Exception("The current node timed out"), "Ray didn't start .*node timed out.*inprocess"),
        (ConnectionError("nobody there"), "can't join the Ray cluster at '10.0.0.1:9': nobody"),
    ],
)
def test_rays_own_errors_are_typed(monkeypatch, raised, message) -> None:
    def fails(**options: Any) -> NoReturn:
        raise raised

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fails)
    with pytest.raises(LaunchError, match=message) as caught:
        ensure_ray("10.0.0.1:9")
    assert caught.value.__cause__ is raised


def test_the_size_of_the_object_store_is_a_number(monkeypatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv(STORE_VARIABLE, "7 GiB")
    with pytest.raises(LaunchError, match="'7 GiB'; must be a number of bytes"):
        ensure_ray("local")
