"""What all tests share: where data is, and how hypothesis searches."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# a first call compiles, so a deadline in milliseconds would say nothing
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def clew_data() -> Path:
    """The folder of real data sets."""
    folder = os.environ.get("CLEW_DATA")
    if not folder:
        pytest.skip("CLEW_DATA does not name a folder of data sets")
    return Path(folder)
