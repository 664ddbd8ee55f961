"""What the API needs of the inside of instances: byte streams to ports, terminals, JupyterLab. Made by
``gateway/``; called from an event loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from starverse.domain.errors import Unavailable

READ_BYTES = 65_536


class Unreachable(Unavailable):
    """The instance cannot be reached right now; nothing was changed, try again."""

    code = "instance_unreachable"


@dataclass(frozen=True, slots=True)
class Jupyter:
    """A JupyterLab that listens on a port inside; ``token`` is what its API asks for."""

    port: int
    base_url: str
    token: str


class Pipe(Protocol):
    """A stream of bytes both ways. Errors: ``OSError`` once the other side is gone."""

    async def read(self, bytes_max: int = READ_BYTES) -> bytes:
        """The next bytes, ``b""`` at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send; waits while the other side takes nothing."""
        ...

    def end_input(self) -> None:
        """Nothing more will be sent."""
        ...

    def close(self) -> None: ...


class Terminal(Pipe, Protocol):
    """A shell on a terminal."""

    def resize(self, columns: int, rows: int) -> None: ...

    def exit_code(self) -> int | None:
        """The shell's, once its end was read; 128 and the signal's number for a signal; ``None``: unknown."""
        ...


class InsideInstances(Protocol):
    """Ways into an allocation. Each call raises :class:`Unreachable` with the reason for people."""

    async def open_port(self, allocation_id: str, port: int) -> Pipe:
        """A connection to a port on the loopback inside."""
        ...

    async def open_terminal(self, allocation_id: str, columns: int, rows: int) -> Terminal: ...

    async def start_jupyter(self, allocation_id: str, base_url: str, port: int) -> Jupyter:
        """Have JupyterLab listen there, started unless it runs."""
        ...
