"""The sandbox drivers by name."""

from __future__ import annotations

from starverse.node.sandbox.bwrap import BwrapDriver
from starverse.node.sandbox.driver import SandboxDriver
from starverse.node.sandbox.process import ProcessDriver

DRIVERS: dict[str, type[SandboxDriver]] = {"bwrap": BwrapDriver, "process": ProcessDriver}
