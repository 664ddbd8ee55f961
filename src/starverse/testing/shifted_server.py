"""``starverse up`` on a clock that is off by the seconds in a file (``shifted_server FILE up ...``)."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from starverse.app.ports import SystemClock
from starverse.config import load
from starverse.main import serve

FLAGS = {
    "--data": "server.data",
    "--port": "server.port",
    "--declare-cards": "engine.declare_cards",
    "--driver": "engine.driver",
}


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM; the file is read each time that the time is."""
    seconds, _, *words = arguments
    flags = {FLAGS[name]: value for name, value in zip(words[::2], words[1::2], strict=True)}

    def read() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(Path(seconds).read_text()))

    serve(load(flags=flags).config, lambda _: None, SystemClock(read))


if __name__ == "__main__":
    main(sys.argv[1:])
