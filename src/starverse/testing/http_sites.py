"""The whole API over a fresh platform, in process, with signed-in clients."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from starverse.app import auth
from starverse.app.platform import Platform
from starverse.http.app import make_app
from starverse.testing.platforms import SetClock, fresh_database
from starverse.testing.worlds import World

PASSWORD = "correct horse battery"
PREFIX = "/api/v1"


@dataclass(frozen=True)
class Person:
    """Someone signed in: their client sends the token with each request."""

    email: str
    team: str
    team_id: str
    token: str
    client: TestClient

    def get(self, path: str, **options: Any) -> Any:
        """The JSON of a GET that must succeed."""
        return _json(self.client.get(PREFIX + path, **options), 200)

    def post(self, path: str, body: Any = None, status: int = 201, **options: Any) -> Any:
        """The JSON of a POST that must answer ``status``."""
        return _json(self.client.post(PREFIX + path, json=body, **options), status)


@dataclass(frozen=True)
class Site:
    """A platform and its API."""

    world: World
    app: FastAPI

    @property
    def platform(self) -> Platform:
        return self.world.platform

    @property
    def clock(self) -> SetClock:
        return self.world.clock

    def client(self, token: str | None = None) -> TestClient:
        """A client, with a token or without."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return TestClient(self.app, headers=headers, raise_server_exceptions=False)

    def register(self, email: str = "wang@example.org") -> Person:
        """A new account with its session."""
        made = _json(
            self.client().post(f"{PREFIX}/accounts", json={"email": email, "password": PASSWORD}), 201
        )
        return Person(
            email, made["team"]["name"], made["team"]["id"], made["token"], self.client(made["token"])
        )

    def operator(self) -> Person:
        """The operator of this installation."""
        token = auth.ensure_operator(self.platform)
        identity = auth.identify(self.platform, token)
        return Person(identity.email, identity.team_name, identity.team_id, token, self.client(token))


@contextmanager
def open_site(kind: str, folder: Path, **settings: Any) -> Iterator[Site]:
    """A site on a fresh ``sqlite`` or ``postgresql`` database, with eight declared cards on a fake engine."""
    with fresh_database(kind, folder) as database:
        world = World(database, folder / "data", **settings)
        yield Site(world, make_app(world.platform))


def _json(response: Any, status: int) -> Any:
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    return response.json() if response.content else None


def packed(files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """A packed submit folder: its id and its bytes, the same for the same files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    body = gzip.compress(made.getvalue(), mtime=0)
    return f"sha256:{hashlib.sha256(body).hexdigest()}", body
