"""Write the next database migration: from the newest one to what ``db/tables.py`` says now."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from alembic.script import ScriptDirectory

from starverse.db import schema
from starverse.db.session import Database


def main(arguments: list[str]) -> int:
    """Make the file in ``db/migrations/versions``; 2 without a message."""
    message = " ".join(arguments).strip()
    if not message:
        sys.stderr.write('say what it changes: make migration NAME="add disks"\n')
        return 2
    newest = ScriptDirectory.from_config(schema.alembic_config()).get_current_head()
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'starverse.db'}")
        try:
            schema.upgrade(database)
            schema.write_migration(database, message, f"{int(newest or 0) + 1:04d}")
        finally:
            database.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
