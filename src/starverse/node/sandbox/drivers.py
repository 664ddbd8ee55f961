"""The sandbox drivers by name."""

from __future__ import annotations

from starverse.node.sandbox.bwrap import BwrapDriver
from starverse.node.sandbox.driver import SandboxDriver, StartRefused
from starverse.node.sandbox.process import ProcessDriver

DRIVERS: dict[str, type[SandboxDriver]] = {"bwrap": BwrapDriver, "process": ProcessDriver}


def find_driver(name: str) -> SandboxDriver:
    """Raises :class:`StartRefused` for a name that is none of :data:`DRIVERS`."""
    if name not in DRIVERS:
        raise StartRefused(f"driver {name!r}: expected one of {', '.join(DRIVERS)}")
    return DRIVERS[name]()
