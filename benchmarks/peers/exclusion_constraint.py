"""The usual way to keep bookings apart: PostgreSQL, one row a booked node, an exclusion constraint on it.

As in PostgreSQL's manual, Range Types, Constraints on Ranges (``btree_gist``: the same node may not be booked
for ranges that overlap). A booking is one statement that looks for a free node and takes it. The session
does not wait for a flush (``synchronous_commit`` off), so that it is the look-up that is compared.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

Window = tuple[int, int]
"""Seconds since the epoch, half-open."""

TAKE = """
INSERT INTO bookings SELECT node, int8range(%(start)s, %(end)s) FROM nodes WHERE NOT EXISTS (
  SELECT FROM bookings b WHERE b.node = nodes.node AND b.during && int8range(%(start)s, %(end)s))
LIMIT 1"""


@contextmanager
def books(url: str, nodes: int, booked: Iterator[tuple[int, int, int]]) -> Iterator[psycopg.Connection[Any]]:
    """A schema of its own with these ``(node, start, end)`` booked; dropped at the end."""
    schema = f"bench_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            connection.execute(f"SET search_path TO {schema}, public")
            connection.execute("SET synchronous_commit TO off")
            connection.execute(f"CREATE EXTENSION IF NOT EXISTS btree_gist SCHEMA {schema}")
            connection.execute("CREATE TABLE nodes (node int PRIMARY KEY)")
            connection.execute("INSERT INTO nodes SELECT generate_series(0, %s - 1)", (nodes,))
            connection.execute("CREATE TABLE bookings (node int NOT NULL, during int8range NOT NULL)")
            with connection.cursor().copy("COPY bookings FROM STDIN") as copy:
                for node, start, end in booked:
                    copy.write_row((node, f"[{start},{end})"))
            connection.execute(
                "ALTER TABLE bookings ADD CONSTRAINT apart EXCLUDE USING gist (node WITH =, during WITH &&)"
            )
            connection.execute("ANALYZE bookings, nodes")
            for kind in ("hashjoin", "mergejoin"):  # both read every booking of the window first
                connection.execute(f"SET enable_{kind} TO off")
            yield connection
        finally:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


@dataclass(frozen=True, slots=True)
class Taken:
    """For each window whether it was booked and how long that took; the CPU of the backend over all.

    ``backend_cpu_seconds`` is ``None`` where the server's processes cannot be seen from here.
    """

    booked: list[bool]
    seconds: list[float]
    backend_cpu_seconds: float | None


def book_all(connection: psycopg.Connection[Any], windows: Sequence[Window]) -> Taken:
    """Book a node for each; each is a transaction of its own."""
    booked, seconds = [], []
    before = _cpu_seconds(connection.info.backend_pid)
    for start, end in windows:
        begun = time.perf_counter()
        done = connection.execute(TAKE, {"start": start, "end": end}, prepare=True)
        seconds.append(time.perf_counter() - begun)
        booked.append(done.rowcount == 1)
    after = _cpu_seconds(connection.info.backend_pid)
    return Taken(booked, seconds, None if before is None or after is None else after - before)


def _cpu_seconds(pid: int) -> float | None:
    """CPU time of a process of this host that is PostgreSQL's; ``None`` where there is none such."""
    folder = Path(f"/proc/{pid}")
    try:
        if "postgres" not in (folder / "comm").read_text("utf-8"):
            return None
        return int((folder / "schedstat").read_text("utf-8").split()[0]) / 1e9
    except OSError:
        return None
