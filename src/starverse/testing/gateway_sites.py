"""A gateway over a fresh platform, with a real sshd behind its instances and people who use OpenSSH."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from sqlalchemy import select, update

from starverse.app.auth import TokenRequest, create_token
from starverse.app.gateway_keys import GatewayKeys, keep_gateway_keys, known_hosts_line
from starverse.app.identity import Identity
from starverse.app.instances.launching import LaunchRequest, launch
from starverse.app.instances.views import InstanceView
from starverse.app.platform import Platform
from starverse.app.ssh_keys import NewSshKey, add_key
from starverse.db.accounts import set_flags
from starverse.db.instance_tables import instances
from starverse.db.tables import allocations
from starverse.db.teams import Team
from starverse.domain.workloads.states import AllocationState, InstanceState
from starverse.gateway.inside import Inside
from starverse.gateway.limits import DoorLimits
from starverse.gateway.rooms import Rooms
from starverse.gateway.serving import Gateway
from starverse.http.app import make_app
from starverse.main import http_settings
from starverse.testing.plain_sshd import PlainSshd
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

LISTEN = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Someone with an OpenSSH key pair in a folder of their own."""

    who: Identity
    folder: Path
    key_id: str
    port: int

    def options(self) -> list[str]:
        """What every OpenSSH command gets: this key, this list of known hosts, no questions."""
        given = {
            "IdentityFile": str(self.folder / "key"),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "LogLevel": "ERROR",
        }
        return [
            "-F",
            "/dev/null",
            *(word for name, value in given.items() for word in ("-o", f"{name}={value}")),
        ]

    def ssh(self, instance: str, *words: str) -> list[str]:
        """A command line; the last word is what runs inside, those before it are options, which win."""
        *more, command = words
        return ["ssh", *more, *self.options(), "-p", str(self.port), f"{instance}@{LISTEN}", command]

    def run(self, instance: str, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        """One ``ssh``; the last word is the command, those before it are options."""
        return run(self.ssh(instance, *words), **more)


def run(command: list[str], seconds: float = 60, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """A command with its output, whatever its exit code; nothing on its standard input unless given."""
    if "input" not in more:
        more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(command, capture_output=True, timeout=seconds, check=False, **more)


@dataclass(slots=True)
class GatewaySite:
    """A world with a gateway. Instances are records of running jobs whose inside is ``inside``."""

    world: World
    keys: GatewayKeys
    sshd: PlainSshd
    inside: Inside
    gateway: Gateway
    folder: Path
    port: int

    @property
    def platform(self) -> Platform:
        return self.world.platform

    def instance(self, who: Identity, name: str) -> InstanceView:
        """A running instance of the person's own team."""
        return self.instance_of_team(who, name, None)

    def instance_of_team(self, who: Identity, name: str, team: Team | None) -> InstanceView:
        """A running instance of a team, ``None``: the person's own."""
        made = launch(self.platform, who, LaunchRequest("rtx4090", name=None if team else name))
        self.world.run(3)
        if team is not None:
            with self.platform.database.write() as connection:
                moved = update(instances).where(instances.c.id == made.id).values(team_id=team.id, name=name)
                connection.execute(moved)
        return made

    def set_state(self, name: str, state: InstanceState, message: str = "") -> None:
        """What the record says of an instance from now on."""
        released = self.world.clock.now() if state is InstanceState.RELEASED else None
        values = {"state": state, "message": message, "released_at": released}
        with self.platform.database.write() as connection:
            connection.execute(update(instances).where(instances.c.name == name).values(**values))

    def end_run(self, name: str) -> None:
        """The record says that the instance's run was lost."""
        run_of = select(instances.c.run_id).where(instances.c.name == name).scalar_subquery()
        values = {"state": AllocationState.LOST, "ended_at": self.world.clock.now()}
        with self.platform.database.write() as connection:
            connection.execute(update(allocations).where(allocations.c.job_id == run_of).values(**values))

    def disable(self, who: Identity) -> None:
        """The operator disables an account."""
        with self.platform.database.write() as connection:
            set_flags(connection, who.account_id, operator=False, disabled=True)

    def restart_gateway(self) -> None:
        """The server ends, and another takes its address."""
        self.gateway.close()
        self.gateway = Gateway(self.platform, self.keys, self.inside, listen(self.port))
        self.gateway.start()

    def visitor_with_instance(self, person: str, name: str) -> Visitor:
        """A new person with an instance that runs."""
        who = self.world.team(person)
        self.instance(who, name)
        return self.visitor(who)

    def visitor(self, who: Identity, name: str = "key") -> Visitor:
        """A person's key pair, added to their account."""
        folder = self.folder / f"{who.team_name}-{name}"
        folder.mkdir()
        make_key(folder / "key")
        public = (folder / "key.pub").read_text("utf-8")
        key = add_key(self.platform, who, NewSshKey(name, public))
        (folder / "known_hosts").write_text(known_hosts_line(self.keys, LISTEN, self.port) + "\n")
        return Visitor(who, folder, key.id, self.port)


def make_key(path: Path, *more: str) -> None:
    """A key pair by ``ssh-keygen``; ``more`` replaces the kind of key."""
    kind = more or ("-t", "ed25519")
    subprocess.run(["ssh-keygen", "-q", *kind, "-N", "", "-C", "test", "-f", str(path)], check=True)


@contextmanager
def open_gateway_site(
    kind: str, folder: Path, limits: DoorLimits | None = None, port: int = 0
) -> Iterator[GatewaySite]:
    """A world with a listening gateway; everything it started has ended afterwards."""
    with ExitStack() as stack:
        database = stack.enter_context(fresh_database(kind, folder))
        world = World(database, folder / "data")
        keys = keep_gateway_keys(folder / "data" / "gateway")
        sshd = stack.enter_context(PlainSshd(keys.client_public))
        inside = Inside(keys, sshd.open_stream)
        stack.callback(inside.close)
        listener = listen(port)
        gateway = Gateway(world.platform, keys, inside, listener, limits)
        gateway.start()
        site = GatewaySite(world, keys, sshd, inside, gateway, folder, listener.getsockname()[1])
        stack.callback(lambda: site.gateway.close())
        yield site


@contextmanager
def serve_api(site: GatewaySite) -> Iterator[str]:
    """The site's API on a port of its own, with the ways into its instances; its address."""
    rooms = Rooms(site.inside)
    settings = http_settings(make_app(site.platform, inside=rooms), "")
    settings.timeout_graceful_shutdown = 1
    server = uvicorn.Server(settings)

    async def run() -> None:
        try:
            await server.serve(sockets=[listener])
        finally:
            await rooms.close()

    with listen() as listener:
        thread = threading.Thread(target=lambda: asyncio.run(run()), name="api", daemon=True)
        thread.start()
        try:
            yield f"http://{LISTEN}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)


def token_of(site: GatewaySite, who: Identity) -> str:
    """A token of the person's account."""
    return create_token(site.platform, who, TokenRequest("test")).secret


def listen(port: int = 0) -> socket.socket:
    """A listening socket on a free port of the loopback."""
    return socket.create_server((LISTEN, port), backlog=128)


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.create_server((LISTEN, 0)) as listener:
        return int(listener.getsockname()[1])


def environment_without_agent(**more: str) -> dict[str, str]:
    """This process's environment without an agent of whoever runs the tests."""
    return {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"} | more
