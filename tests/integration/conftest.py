"""A site (platform and API) on each database that this machine offers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.testing.http_sites import Site, open_site
from starverse.testing.platforms import POSTGRES_VARIABLE


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of database that this machine offers."""
    if request.param == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    return str(request.param)


@pytest.fixture
def site(kind: str, tmp_path: Path) -> Iterator[Site]:
    """The API over a platform with eight declared rtx4090 and a fake engine; time stands still."""
    with open_site(kind, tmp_path) as opened:
        yield opened
