"""Nobody else works on the installation: no server on the data folder, none on the database."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from starverse.db.server_lock import only_server
from starverse.db.session import Database
from starverse.domain.errors import Conflict

FOLDER_LOCK = "starverse.lock"


@contextmanager
def alone_on(data: Path, *urls: str) -> Iterator[None]:
    """Hold the data folder, then each database, for the block; raises ``Conflict`` when a server runs."""
    with (data / FOLDER_LOCK).open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict(f"a starverse server is running on {data}", hint="stop it first") from error
        with _databases(urls):
            yield


@contextmanager
def _databases(urls: tuple[str, ...]) -> Iterator[None]:
    if not urls:
        yield
        return
    with closing(Database(urls[0])) as database, only_server(database), _databases(urls[1:]):
        yield
