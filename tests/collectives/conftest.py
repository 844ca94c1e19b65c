"""One Ray session for the tests that need one."""

import pytest

from nki_dist.launcher.session import session


@pytest.fixture(scope="package", autouse=True)
def close_session():
    yield
    session().close()
