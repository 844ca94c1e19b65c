"""One Ray session for all tests of this folder: starting one takes seconds."""

import pytest

from nki_dist.core_actor.ray_session import ensure_ray
from nki_dist.launcher.session import session


@pytest.fixture(scope="package", autouse=True)
def one_ray_session():
    ensure_ray(None)
    yield
    session().close()
