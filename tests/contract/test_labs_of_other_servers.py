"""Servers that tests and the demo start for themselves: they come up, break as asked, leave nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from starverse.testing.postgres_lab import PostgresLab

without_postgres = pytest.mark.skipif(bool(PostgresLab.missing()), reason=PostgresLab.missing() or "-")


@without_postgres
def test_a_postgresql_of_our_own_survives_a_crash_and_goes_with_its_folder() -> None:
    with PostgresLab() as lab:
        engine = create_engine(lab.url)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE kept (value int)"))
            connection.execute(text("INSERT INTO kept VALUES (7)"))
        lab.kill()
        engine.dispose()
        lab.start()
        with engine.begin() as connection:
            assert connection.execute(text("SELECT value FROM kept")).scalar_one() == 7
        engine.dispose()
        folder = lab.folder
    assert not folder.exists()
    assert not [entry.name for entry in Path("/proc").iterdir() if _names(entry, str(folder))]


def _names(entry: Path, folder: str) -> bool:
    try:
        return entry.name.isdigit() and folder.encode() in (entry / "cmdline").read_bytes()
    except OSError:
        return False


@without_postgres
def test_what_a_killed_owner_left_goes_with_the_next_one() -> None:
    script = (
        "import os, signal; from starverse.testing.postgres_lab import PostgresLab\n"
        "lab = PostgresLab().__enter__(); print(lab.folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    folder = Path(done.stdout.strip())
    assert done.returncode == -signal.SIGKILL
    assert (folder / "data" / "postmaster.pid").exists()
    PostgresLab.sweep_abandoned()
    assert not folder.exists()
    assert not [entry.name for entry in Path("/proc").iterdir() if _names(entry, str(folder))]
