"""A site (platform and API) on each database that this machine offers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.testing.http_sites import Site, open_site
from starverse.testing.platforms import POSTGRES_VARIABLE


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The API over a platform with eight declared rtx4090 and a fake engine; time stands still."""
    if request.param == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with open_site(request.param, tmp_path) as opened:
        yield opened
