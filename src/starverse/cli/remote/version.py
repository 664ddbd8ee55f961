"""``version``: which starverse this is."""

from __future__ import annotations

from starverse import __version__
from starverse.cli.remote.commands import command
from starverse.cli.remote.session import Session


@command("Print the version.")
def version(session: Session) -> None:
    session.emit({"starverse": __version__}, lambda: f"starverse {__version__}")
