"""A disk that is full, a database that is held or read-only: 503, what to do, and on it goes afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection

from starverse.testing.http_sites import Site, open_site

SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:1\n"


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Site]:
    with open_site("sqlite", tmp_path) as opened:
        yield opened


@contextmanager
def full_disk(site: Site) -> Iterator[None]:
    """The database file may not grow: SQLite says what it says where the disk is full."""
    limits = []

    def limit(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        pages = driver.execute("PRAGMA page_count").fetchone()[0]
        limits.append(driver.execute(f"PRAGMA max_page_count={pages}").fetchone()[0])

    site.platform.database.engine.dispose()
    event.listen(site.platform.database.engine, "begin", limit)
    try:
        yield
    finally:
        event.remove(site.platform.database.engine, "begin", limit)
        site.platform.database.engine.dispose()
    assert limits


@contextmanager
def held_by_another(site: Site) -> Iterator[None]:
    """Another program has the write lock, and nobody waits for it for long."""
    engine = site.platform.database.engine
    path = str(engine.url.database)
    engine.dispose()
    event.listen(engine, "connect", lambda driver, _record: driver.execute("PRAGMA busy_timeout=1"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_a_write_that_finds_the_disk_full_is_503_with_what_to_do(lite: Site) -> None:
    person = lite.register()
    with full_disk(lite):
        answer = person.client.post("/api/v1/jobs", json={"script": SCRIPT + "#" * 200_000})
    assert answer.status_code == 503, answer.text
    problem = answer.json()
    assert problem["code"] == "database_away"
    assert "disk is full" in problem["detail"]
    assert "free some space" in problem["hint"]
    assert answer.headers["retry-after"]
    assert person.client.post("/api/v1/jobs", json={"script": SCRIPT}).status_code == 201


@pytest.mark.parametrize("what", ["jobs", "topups"])
def test_a_database_that_another_program_holds_is_503_and_goes_on_afterwards(lite: Site, what: str) -> None:
    person = lite.register()
    body = {"jobs": {"script": SCRIPT}, "topups": {"amount": "1.00"}}[what]
    with held_by_another(lite):
        answer = person.client.post(f"/api/v1/{what}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (503, "database_away")
    assert answer.json()["hint"]
    assert person.client.post(f"/api/v1/{what}", json=body).status_code == 201
