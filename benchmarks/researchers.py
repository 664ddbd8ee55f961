"""Someone who rents hosts in a measurement: an account on a running platform, a key pair, real OpenSSH."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from benchmarks.platform_starts import PATIENCE_SECONDS, PlatformFailed
from starverse.client.api import Client
from starverse.client.instances import has_started, is_up

T = TypeVar("T")

PAUSE_SECONDS = 0.01
"""Between two looks: short beside what is measured, long enough to leave the server its core."""
SSH_SECONDS_MAX = 60
QUIET: Mapping[str, str] = {
    "gateway.port": "0",
    "policy.disk_reserve_mib": "64",
    "server.log_level": "warning",
}
"""Settings by ``section.key`` of a server that instances are measured on."""


@dataclass(slots=True)
class Researcher:
    """``folder`` holds the key pair and the list of known hosts."""

    client: Client
    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        key = self.folder / "key"
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", str(key)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        self.client.ssh_keys.add("bench", key.with_suffix(".pub").read_text().strip())
        gateway = self.client.ssh_keys.gateway()
        (self.folder / "known_hosts").write_text(gateway["known_hosts"].rstrip("\n") + "\n")

    def launch(self, name: str, **wishes: Any) -> dict[str, Any]:
        """Ask for an instance with one card; answers before it is ready."""
        return cast(dict[str, Any], self.client.instances.launch({"card": "rtx4090", "name": name, **wishes}))

    def until_up(self, name: str) -> dict[str, Any]:
        """The instance once it takes connections; raises :class:`PlatformFailed` where it does not start."""

        def look() -> dict[str, Any] | None:
            one = cast(dict[str, Any], self.client.instances.get(name))
            if has_started(cast(Any, one)) and not is_up(cast(Any, one)):
                raise PlatformFailed(f"{name} did not start: {one['reason']} {one['message']}")
            return one if is_up(cast(Any, one)) else None

        return soon(look, f"instance {name}")

    def until(self, name: str, state: str) -> dict[str, Any]:
        """The instance once it is in this state."""

        def look() -> dict[str, Any] | None:
            one = cast(dict[str, Any], self.client.instances.get(name))
            return one if one["state"] == state else None

        return soon(look, f"instance {name} to be {state}")

    def ssh(self, one: Mapping[str, Any], command: str = "true") -> str:
        """Sign in with the machine's own ``ssh`` and run a command; what it printed."""
        given = {
            "IdentityFile": str(self.folder / "key"),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "LogLevel": "ERROR",
        }
        options = [word for name, value in given.items() for word in ("-o", f"{name}={value}")]
        told = one["ssh"]
        words = ["ssh", "-F", "/dev/null", *options, "-p", str(told["port"]), "-l", told["user"]]
        done = subprocess.run(
            [*words, "--", told["host"], command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SSH_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise PlatformFailed(f"ssh to {told['user']} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout


def soon(look: Callable[[], T | None], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Ask until there is an answer; that answer. Raises :class:`PlatformFailed`."""
    give_up = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > give_up:
            raise PlatformFailed(f"{what} did not come within {seconds:.0f} s")
        time.sleep(PAUSE_SECONDS)
    return found


def instant(text: str | None) -> float | None:
    """Seconds since the epoch of an API's time."""
    return None if text is None else datetime.fromisoformat(text).timestamp()
