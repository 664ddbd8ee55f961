"""Which database the live servers of tests run on, where a test names none."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from starverse.testing.platforms import empty_database

IN_THE_DATA_FOLDER = {"server.db": ""}
"""The setting of tests that are about SQLite's file itself, wherever the others run."""

VARIABLE = "STARVERSE_TEST_LIVE_DATABASE"
"""``postgresql``: an empty schema of the server that ``STARVERSE_TEST_POSTGRES`` names; else SQLite."""


def chosen_database(around: ExitStack) -> dict[str, str]:
    """The setting that names it, which lasts as long as ``around``; none for SQLite in the data folder."""
    kind = os.environ.get(VARIABLE, "sqlite")
    if kind == "sqlite":
        return {}
    return {"server.db": around.enter_context(empty_database(kind, Path("/nowhere"))).url}
