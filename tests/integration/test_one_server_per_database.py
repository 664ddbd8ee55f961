"""A second server on the same database is refused, also with a data folder of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from starverse.db.server_lock import only_server
from starverse.db.session import Database
from starverse.domain.errors import Conflict
from starverse.testing.platforms import POSTGRES_VARIABLE, fresh_database


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_a_database_has_one_server_until_it_ends(kind: str, tmp_path: Path) -> None:
    if kind == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database(kind, tmp_path) as database:
        rival = Database(database.url)
        said = "another starverse server is running on"
        with only_server(database), pytest.raises(Conflict, match=said), only_server(rival):
            pass
        with only_server(rival):
            pass
        rival.close()


@pytest.mark.postgres
def test_servers_of_two_schemas_do_not_meet(tmp_path: Path) -> None:
    if not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with (
        fresh_database("postgresql", tmp_path) as one,
        fresh_database("postgresql", tmp_path) as other,
        only_server(one),
        only_server(other),
    ):
        assert one.now_answers()
        assert other.now_answers()


def test_a_link_to_a_database_is_that_database(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        (tmp_path / "link.db").symlink_to(tmp_path / "starverse.db")
        rival = Database(f"sqlite:///{tmp_path / 'link.db'}")
        with only_server(database), pytest.raises(Conflict), only_server(rival):
            pass
        rival.close()
