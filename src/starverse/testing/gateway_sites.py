"""A gateway over a fresh platform, with a real sshd behind its instances and people who use OpenSSH."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import insert, update

from starverse.app.gateway_keys import GatewayKeys, keep_gateway_keys, known_hosts_line
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.ssh_keys import NewSshKey, add_key
from starverse.db.instance_tables import instances
from starverse.db.jobs import next_number
from starverse.db.tables import jobs
from starverse.domain.workloads.states import InstanceState
from starverse.gateway.inside import Inside
from starverse.gateway.limits import DoorLimits
from starverse.gateway.serving import Gateway
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
    folder: Path
    port: int = 0
    people: dict[str, Visitor] = field(default_factory=dict)

    @property
    def platform(self) -> Platform:
        return self.world.platform

    def instance(self, who: Identity, name: str) -> str:
        """A running instance; its id."""
        job = self.world.submit(who, name=name)
        self.world.run(3)
        instance_id = self.platform.ids.uuid7()
        with self.platform.database.write() as connection:
            row = connection.execute(jobs.select().where(jobs.c.id == job.id)).one()
            connection.execute(
                insert(instances).values(
                    id=instance_id,
                    number=next_number(connection, "instance", 1),
                    team_id=who.team_id,
                    account_id=who.account_id,
                    name=name,
                    workspace_id=row.workspace_id,
                    spec="{}",
                    state=InstanceState.RUNNING,
                    reason="",
                    message="",
                    generation=1,
                    run_id=row.id,
                    starts=1,
                    created_at=self.world.clock.now(),
                )
            )
        return instance_id

    def set_state(self, instance_id: str, state: InstanceState, message: str = "") -> None:
        """What the record says of an instance from now on."""
        with self.platform.database.write() as connection:
            values = {"state": state, "message": message}
            connection.execute(update(instances).where(instances.c.id == instance_id).values(**values))

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
        stack.callback(gateway.close)
        yield GatewaySite(world, keys, sshd, folder, listener.getsockname()[1])


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
