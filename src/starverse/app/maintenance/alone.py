"""Nobody else works on the installation: no server on the data folder, none on the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starverse.app.run_folder import hold_data
from starverse.db.maintenance.filling import opened
from starverse.db.server_lock import only_server


@contextmanager
def alone_on(data: Path, *urls: str) -> Iterator[None]:
    """Hold the data folder, then each database, for the block; raises ``Conflict`` while a server runs."""
    with hold_data(data, alone=True), _databases(urls):
        yield


@contextmanager
def _databases(urls: tuple[str, ...]) -> Iterator[None]:
    if not urls:
        yield
        return
    with opened(urls[0]) as database, only_server(database), _databases(urls[1:]):
        yield
