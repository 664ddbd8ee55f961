"""``ssh-config install/show/rm``: so that ``ssh NAME.starverse``, scp, rsync and editors reach instances.

Everything of ours is in two files of our own beside the user's ``~/.ssh/config``, which gets one Include
line at its top and is otherwise left byte for byte as it was.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from starverse.cli.remote import openssh
from starverse.cli.remote.commands import Group, command
from starverse.cli.remote.instance_ssh import folder_of_keys
from starverse.cli.remote.openssh import common_options, quoted, target_of, write_if_changed
from starverse.cli.remote.session import Session
from starverse.client.shapes import Gateway, Instance, SshKey

SUFFIX = ".starverse"
HEAD = "# Written by `starverse ssh-config install`, and again by it: changes made here are lost.\n"
_PLAIN_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Places:
    """The files in a user's ``~/.ssh``. ``config`` may be a link: what it leads to is what is written."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def ours(self) -> Path:
        return self.folder / "starverse.conf"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "starverse_known_hosts"

    def spelled(self, path: Path) -> str:
        """A path as the file is to name it: from ``~`` where that is where OpenSSH looks, too."""
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        if self.folder == home / ".ssh":
            return f"~/.ssh/{path.name}"
        return quoted(str(path))


def hosts_text(places: Places, found: Sequence[Instance], gateway: Gateway, keys: Sequence[SshKey]) -> str:
    """The included file: a ``Host`` for each instance, and one with what they have in common. The registered
    keys of this folder are named, so that one of another name than the usual ones is found."""
    parts = [HEAD]
    for one in sorted(found, key=lambda one: one["name"]):
        target = target_of(one, gateway, places.known_hosts)
        if _PLAIN_NAME.fullmatch(one["name"]):
            lines = [f"HostName {target.host}", f"Port {target.port}", f"User {target.user}"]
            parts.append(_host(f"{one['name']}{SUFFIX}", lines))
    common = [
        f"{name} {places.spelled(places.known_hosts) if name == 'UserKnownHostsFile' else value}"
        for name, value in common_options(places.known_hosts)
    ]
    common += [f"IdentityFile {places.spelled(path)}" for path in openssh.identities_for(places.folder, keys)]
    return "\n".join([*parts, _host(f"*{SUFFIX}", common)])


def _host(pattern: str, lines: Sequence[str]) -> str:
    return "".join([f"Host {pattern}\n", *(f"    {line}\n" for line in lines)])


def include_line(places: Places) -> str:
    return f"Include {places.spelled(places.ours)}"


def with_include(config: str, places: Places) -> str:
    """The user's file with our line at its top; unchanged where a line before the first ``Host`` or ``Match``
    includes ours already."""
    if _includes(config, places):
        return config
    newline = "\r\n" if "\r\n" in config else "\n"
    return f"{include_line(places)}{newline}{newline if config else ''}{config}"


def without_include(config: str, places: Places) -> str:
    """The user's file without our line, and without the empty line that came with it."""
    lines = config.splitlines(keepends=True)
    ours = [index for index, line in enumerate(lines) if line.strip() == include_line(places)]
    gone = set(ours)
    if ours[:1] == [0] and len(lines) > 1 and not lines[1].strip():
        gone.add(1)
    return "".join(line for index, line in enumerate(lines) if index not in gone)


def _includes(config: str, places: Places) -> bool:
    names = {places.ours.name, f"~/.ssh/{places.ours.name}", str(places.ours), quoted(str(places.ours))}
    for line in config.splitlines():
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() in ("host", "match"):
            return False
        if keyword.lower() == "include" and names & {rest.strip(), *rest.split(), rest.strip().strip('"')}:
            return True
    return False


def read_config(places: Places) -> str:
    """The user's file, its bytes kept as they are; ``""`` where there is none."""
    if not places.config.exists():
        return ""
    return places.config.read_bytes().decode("utf-8", "surrogateescape")


def write_config(places: Places, text: str) -> bool:
    """Put the user's file in its place by one rename, with the mode that it had; through a link."""
    place = places.config.resolve()
    data = text.encode("utf-8", "surrogateescape")
    if place.exists() and place.read_bytes() == data:
        return False
    openssh.write_bytes(place, data, mode=place.stat().st_mode & 0o777 if place.exists() else 0o600)
    return True


def installed(places: Places) -> bool:
    return places.ours.is_file()


def write_ours(session: Session, places: Places) -> int:
    """Both files of our own as the platform is now; how many instances they name."""
    client = session.client()
    found = list(client.instances.list())
    gateway = client.ssh_keys.gateway()
    write_if_changed(places.known_hosts, gateway["known_hosts"].rstrip("\n") + "\n")
    write_if_changed(places.ours, hosts_text(places, found, gateway, client.ssh_keys.list()))
    return len(found)


def refresh(session: Session) -> None:
    """Names of now in the included file, where it was installed."""
    places = Places(folder_of_keys(session))
    if installed(places):
        write_ours(session, places)


@click.group("ssh-config", cls=Group, help="So that ssh, rsync and editors reach NAME.starverse.")
def group() -> None:
    """Let ssh, scp, rsync and editors reach instances as NAME.starverse."""


@command(
    "Write ~/.ssh/starverse.conf and include it in ~/.ssh/config; again whenever you like.",
    examples=("ssh-config install",),
)
def install(session: Session) -> None:
    places = Places(folder_of_keys(session))
    places.folder.mkdir(mode=0o700, exist_ok=True)
    config = with_include(read_config(places), places)
    count = write_ours(session, places)
    write_config(places, config)
    session.emit({"path": str(places.ours), "instances": count}, lambda: str(places.ours))
    session.note(f"instances: {count}; now `ssh NAME{SUFFIX}`, scp, rsync and VS Code Remote reach them")


@command("Print what install writes; nothing is changed.")
def show(session: Session) -> None:
    places = Places(folder_of_keys(session))
    client = session.client()
    gateway = client.ssh_keys.gateway()
    text = hosts_text(places, list(client.instances.list()), gateway, client.ssh_keys.list())
    session.emit(
        {"text": text, "known_hosts": gateway["known_hosts"], "include": include_line(places)},
        lambda: text.rstrip("\n"),
    )


@command("Take our files and our Include line away again; nothing else is touched.")
def rm(session: Session) -> None:
    places = Places(folder_of_keys(session))
    if places.config.exists():
        write_config(places, without_include(read_config(places), places))
    removed = [str(path) for path in (places.ours, places.known_hosts) if path.is_file()]
    for path in removed:
        Path(path).unlink()
    session.emit({"removed": removed}, lambda: "\n".join(removed))


for each in (install, show, rm):
    group.add_command(each)
