"""A running instance on a real engine, reached by the real OpenSSH client: for tests and measurements."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starverse.domain.workloads.launch import LauncherState, LaunchSpec
from starverse.engines.folders import FolderEngine, OpenChannel
from starverse.engines.local import LocalEngine
from starverse.node.cards.declared import DeclaredCards
from starverse.node.channel_server import ChannelServer, TlsSettings
from starverse.testing.launches import build_launch
from starverse.testing.ssh_lines import SshLine, make_key, ssh_line

TEAM_UID = 200_001
PATIENCE_SECONDS = 60.0
MakeEngine = Callable[[Path, OpenChannel | None], FolderEngine]


def local_engine(data: Path, open_channel: OpenChannel | None) -> FolderEngine:
    """Declared cards of this machine."""
    return LocalEngine(data, DeclaredCards("rtx4090:8"), open_channel=open_channel)


@dataclass
class Site:
    """One platform's engine on ``data``; ``by_tls``: launchers reach it as from another node."""

    data: Path
    make_engine: MakeEngine = local_engine
    by_tls: bool = False

    def __post_init__(self) -> None:
        self.data.mkdir(exist_ok=True)
        self._tls_address = "127.0.0.1:0"
        self.up()

    def up(self) -> None:
        """The server comes (again)."""
        self.channel: ChannelServer | None = None
        self.engine = self.make_engine(self.data, self._open_channel if self.by_tls else None)
        self.engine.start()
        if self.channel is not None:
            self._tls_address = self.channel.tls_address  # the same one when it comes again

    def launch(self, name: str, **changes: Any) -> LaunchSpec:
        """Submit an instance that the site's key may log into, and wait until it takes connections."""
        spec = self.build(name, **changes)
        self.engine.submit(spec)
        state = self.until(name, lambda state: state.ready_at is not None or state.phase == "ended")
        assert not state.failure, state.failure
        return spec

    def build(self, name: str, **changes: Any) -> LaunchSpec:
        """The launch spec of an instance."""
        given: dict[str, Any] = {
            "interactive": True,
            "gateway_keys": (make_key(self.data)[1],),
            "home": str(self.data / "instances" / name / "home"),
            "unix_uid": TEAM_UID if os.geteuid() == 0 else None,
        }
        if self.channel is not None:
            given |= {"channel": self.channel.tls_address, "channel_ca": self.channel.authority}
        return build_launch(self.data, name, **(given | changes))

    def until(self, name: str, holds: Callable[[LauncherState], bool]) -> LauncherState:
        """Wait for what its launcher says."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            state = self.engine.observe([name])[name].state
            if state is not None and holds(state):
                return state
            assert time.monotonic() < give_up, f"{name} stayed {state}\n{self.logs(name)}"
            time.sleep(0.005)

    def logs(self, name: str) -> str:
        """What its launcher and its workload wrote, for people."""
        files = (self.data / "allocations" / name / "launcher.log", *self.data.glob(f"jobs/{name}/logs/*"))
        return "\n".join(file.read_text(errors="replace") for file in files if file.exists())

    @contextmanager
    def ssh(self, name: str) -> Iterator[SshLine]:
        """The client's end."""
        with ssh_line(self.data, lambda: self.engine.open_stream(name)) as line:
            yield line

    def close(self) -> None:
        for folder in (self.data / "allocations").iterdir():
            self.engine.clean(folder.name)
        self.engine.close()

    def _open_channel(self, answers: Any) -> ChannelServer:
        settings = TlsSettings(self._tls_address, self.data / "tls", self.data / "api.sock")
        self.channel = ChannelServer(self.data / "channel.sock", answers, settings)
        return self.channel


@contextmanager
def instance_site(make_engine: MakeEngine = local_engine, *, by_tls: bool = False) -> Iterator[Site]:
    """A site in a folder of its own with a short path (sockets), which goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="sv-", dir="/tmp"))
    try:
        site = Site(folder / "d", make_engine, by_tls)
        try:
            yield site
        finally:
            site.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(data: str, name: str) -> None:
    """A server of its own: launch an instance, let people in through this process, until it is killed.

    It says the folder of their line once they can come.
    """
    site = Site(Path(data))
    site.launch(name)
    with ssh_line(site.data, lambda: site.engine.open_stream(name), through=True) as line:
        sys.stdout.write(f"{line.folder}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:3])
