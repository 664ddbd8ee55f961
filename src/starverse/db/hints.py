"""Wake-ups between the servers of one database, by LISTEN and NOTIFY: hints only, a lost one costs a period.

Sending is done aside, so that nobody waits for it. The listening session also holds the servers' shared lock
(``server_lock.py``) again after the database was away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from starverse.db import server_lock
from starverse.db.session import Database, DatabaseAway

RETRY_SECONDS = 1.0
LISTEN_SECONDS = 1.0


class Hints:
    """Tells other servers names, and ``hear`` the names that they tell. Safe to call from any thread."""

    def __init__(self, database: Database, me: str, hear: Callable[[str], None]) -> None:
        self._database = database
        self._me = me
        self._hear = hear
        self._waiting: set[str] = set()
        self._lock = threading.Lock()
        self._something = threading.Event()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_on, args=(act,), name=name, daemon=True)
            for name, act in (("hints-out", self._tell), ("hints-in", self._listen))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def send(self, name: str) -> None:
        """Have the others told, soon."""
        with self._lock:
            self._waiting.add(name)
        self._something.set()

    def close(self) -> None:
        """Tell what is waiting, then end."""
        self._stopping.set()
        self._something.set()
        for thread in self._threads:
            thread.join(LISTEN_SECONDS + 5)

    def _keep_on(self, act: Callable[[Connection, str], None]) -> None:
        """Do it on a session of its own, on another one whenever that breaks."""
        while True:
            try:
                with self._database.engine.connect() as pooled:
                    connection = pooled.execution_options(isolation_level="AUTOCOMMIT")
                    connection.detach()
                    schema = connection.execute(text("SELECT current_schema()")).scalar_one()
                    act(connection, f"starverse_{schema}")
            except (DBAPIError, DatabaseAway):
                pass  # whoever needs the database says so; loops run by their periods until it is back
            if self._stopping.wait(RETRY_SECONDS):
                return

    def _tell(self, connection: Connection, channel: str) -> None:
        while True:
            self._something.wait()
            self._something.clear()
            with self._lock:
                names, self._waiting = self._waiting, set()
            if names:
                payload = f"{self._me} {' '.join(sorted(names))}"
                connection.execute(
                    text("SELECT pg_notify(:channel, :payload)"), {"channel": channel, "payload": payload}
                )
            if self._stopping.is_set():
                return

    def _listen(self, connection: Connection, channel: str) -> None:
        server_lock.take(connection, alone=False)
        connection.execute(text(f'LISTEN "{channel}"'))
        session: Any = connection.connection.dbapi_connection
        while not self._stopping.is_set():
            for notice in session.notifies(timeout=LISTEN_SECONDS, stop_after=1):
                sender, *names = notice.payload.split()
                if sender != self._me:
                    for name in names:
                        self._hear(name)
