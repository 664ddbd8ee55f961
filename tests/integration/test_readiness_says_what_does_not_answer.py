"""An engine or a database that does not answer: probes and operators are told, requests get their answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from starverse.app.auth import ensure_operator
from starverse.db.session import Database
from starverse.engines.fake import Call, Trouble
from starverse.http.app import make_app
from starverse.reconcilers.driver import Driver
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


class Moody(Database):
    """Answers as long as it is ``there``."""

    there = True

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with super().read() as connection:
            if not self.there:
                raise OperationalError("SELECT", {}, Gone())
            yield connection


class Gone(Exception):
    """What PostgreSQL says as it goes down."""

    sqlstate = "57P01"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as made:
        database = Moody(made.url)
        yield World(database, tmp_path / "data", trouble=lambda call, _id: troubles.get(call))
        troubles.clear()
        database.close()


troubles: dict[Call, Trouble] = {}


def test_an_engine_that_is_away_is_told_and_stops_no_request(world: World) -> None:
    driver = Driver(world.reconcilers, world.clock, world.platform.wakeups)
    client = TestClient(make_app(world.platform, reconciler_status=driver.statuses))
    signed = {"Authorization": f"Bearer {ensure_operator(world.platform)}"}
    driver.run_once("inventory")
    assert client.get("/readyz").json() == {"status": "ok", "reasons": []}
    troubles[Call.NODES] = Trouble.UNAVAILABLE
    driver.run_once("inventory")
    told = client.get("/readyz")
    assert told.status_code == 200
    reason = "the engine does not answer (starverse admin status says why)"
    assert told.json() == {"status": "degraded", "reasons": [reason]}
    engine = client.get("/api/v1/admin/status", headers=signed).json()["engine"]
    assert engine["answers"] is False
    assert "EngineUnavailable" in engine["trouble"]
    assert client.get("/api/v1/offers", headers=signed).status_code == 200
    troubles.clear()
    driver.run_once("inventory")
    assert client.get("/readyz").json()["status"] == "ok"
    assert client.get("/api/v1/admin/status", headers=signed).json()["engine"]["trouble"] == ""


def test_nothing_is_declared_dead_for_lack_of_news(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=4000)
    job = world.submit(lab, name="train")
    world.run(30)
    troubles.update(dict.fromkeys((Call.OBSERVE, Call.NODES, Call.RUNNING), Trouble.UNAVAILABLE))
    world.run(1200, step=20)
    assert [run.state.value for run in world.job(lab, job.number).allocations] == ["running"]
    troubles.clear()
    world.run(60)
    assert [run.state.value for run in world.job(lab, job.number).allocations] == ["running"]


def test_a_database_that_is_away_is_503_in_the_one_shape_of_errors(world: World) -> None:
    driver = Driver(world.reconcilers, world.clock, world.platform.wakeups)
    client = TestClient(make_app(world.platform, reconciler_status=driver.statuses))
    signed = {"Authorization": f"Bearer {ensure_operator(world.platform)}"}
    assert isinstance(world.database, Moody)
    world.database.there = False
    answer = client.get("/api/v1/me", headers=signed)
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.json()["code"] == "database_away"
    assert int(answer.headers["retry-after"]) == answer.json()["retry_after_seconds"]
    assert client.get("/readyz").status_code == 503
    driver.run_once("schedule")
    status = next(status for status in driver.statuses() if status.name == "schedule")
    assert (status.healthy, status.away) == (False, "database")
    world.database.there = True
    driver.run_once("schedule")
    assert client.get("/api/v1/me", headers=signed).status_code == 200
