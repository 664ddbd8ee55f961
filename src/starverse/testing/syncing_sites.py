"""A site whose syncs really run: rclone in its sandbox, driven round by round."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starverse.app.ports import Copier
from starverse.http.app import make_app
from starverse.node import processes
from starverse.node.rclone.copier import RcloneCopier
from starverse.reconcilers import syncs
from starverse.reconcilers.syncs import Runs
from starverse.testing.http_sites import PREFIX, Person, Site
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

ENDED = ("succeeded", "failed", "cancelled")
WAIT_SECONDS_MAX = 180.0


@dataclass(frozen=True)
class SyncingSite(Site):
    """``runs`` are the copies of its one server."""

    runs: Runs

    def round(self) -> None:
        """One round of the loop."""
        self.world.run_reconciler("syncs")

    def ask(self, person: Person, disk: str, status: int = 201, **body: Any) -> Any:
        """Ask for a sync: a pull of all of the remote ``lab`` unless ``body`` says otherwise."""
        wanted = {"direction": "pull", "remote": "lab:", "secret": "conf"} | body
        return person.post(f"/disks/{disk}/syncs", wanted, status=status)

    def until(
        self,
        person: Person,
        disk: str,
        sync_id: str,
        good: Callable[[Any], bool] = lambda shown: shown["state"] in ENDED,
        *,
        waits: bool = False,
    ) -> Any:
        """Round by round until ``good`` of the sync; with ``waits`` the clock passes to its next try."""
        end = time.monotonic() + WAIT_SECONDS_MAX
        while time.monotonic() < end:
            self.round()
            shown = person.get(f"/disks/{disk}/syncs/{sync_id}")
            if good(shown):
                return shown
            if waits and shown["state"] == "queued" and shown["due_at"]:
                self.clock.advance(seconds=180)
            time.sleep(0.05)
        raise AssertionError(f"not within {WAIT_SECONDS_MAX} s: {shown}")


@contextmanager
def open_syncing_site(
    kind: str, folder: Path, copier: Copier | None = None, **settings: Any
) -> Iterator[SyncingSite]:
    """A site on a fresh database; as root, teams have users of their own."""
    settings = {"drops_to_team_uid": os.geteuid() == 0} | settings
    with fresh_database(kind, folder) as database:
        world = World(database, folder / "data", **settings)
        world.platform = replace(world.platform, copier=copier or RcloneCopier(network="host"))
        runs = Runs(world.platform)
        world.reconcilers = [syncs.make(world.platform, runs)]
        site = SyncingSite(world, make_app(world.platform), runs)
        yield site
        assert site.runs.join(WAIT_SECONDS_MAX), "a copy goes on"


def own_processes(words: str) -> list[int]:
    """Those that descend from this very process and have the words in their command line."""
    found = []
    for pid in processes.find_descendants(os.getpid()):
        with suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            if words in line.decode("utf-8", "replace"):
                found.append(pid)
    return found


def kill_all(pids: Iterable[int]) -> None:
    """``kill -9`` of each that is still there."""
    processes.send(pids, signal.SIGKILL)


def put_secret(person: Person, name: str, value: str) -> None:
    """Set a secret of a person's team."""
    answer = person.client.put(f"{PREFIX}/secrets/{name}", json={"value": value})
    assert answer.status_code == 200, answer.text
