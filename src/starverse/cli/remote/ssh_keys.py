"""``ssh-key add/ls/rm``: the public keys that people sign in to instances with."""

from __future__ import annotations

from pathlib import Path

import click

from starverse.cli.remote.commands import Group, command, consent_option
from starverse.cli.remote.instance_ssh import folder_of_keys
from starverse.cli.remote.openssh import key_body, public_keys, read_key
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_table
from starverse.cli.remote.wording import when
from starverse.client.shapes import SshKey


@click.group("ssh-key", cls=Group, help="Your public keys, which open your teams' instances.")
def group() -> None:
    """Your public keys, which open your teams' instances."""


@command(
    "Add a public key: a .pub file, the key, or `-` for stdin; without one, those of ~/.ssh are offered.",
    examples=("ssh-key add", "ssh-key add ~/.ssh/id_ed25519.pub --name laptop"),
)
@click.argument("key", metavar="[FILE|KEY|-]", required=False)
@click.option("--name", metavar="NAME", help="Default: the key's comment, or the file's name.")
def add(session: Session, key: str | None, name: str | None) -> None:
    line, origin = _given(session, key) if key is not None else _offered(session)
    if not key_body(line):
        raise click.UsageError(
            f"{origin} holds no public key: a line such as `ssh-ed25519 AAAA... you@laptop`"
            + ("; that is a private key, which stays where it is" if "PRIVATE KEY" in line else "")
        )
    comment = " ".join(line.split()[2:])
    made = session.client().ssh_keys.add(name or comment or Path(origin).stem, line)
    session.emit(dict(made), lambda: str(made.get("fingerprint") or made["name"]))
    session.note(f"key {made['name']} opens your instances: starverse ssh NAME")


def _given(session: Session, key: str) -> tuple[str, str]:
    """The key's line, and what it came from."""
    if key == "-":
        return session.stdin.read().strip(), "stdin"
    if key_body(key):
        return key, "the key"
    place = session.folder / Path(key).expanduser()
    if not place.exists():
        raise click.UsageError(f"there is no file {key}, and it is no public key itself")
    return read_key(place), key


def _offered(session: Session) -> tuple[str, str]:
    """The key of ``~/.ssh`` that is chosen; the only one is taken."""
    folder = folder_of_keys(session)
    found = public_keys(folder)
    if not found:
        raise click.UsageError(f"there is no *.pub in {folder}; make a key: ssh-keygen -t ed25519")
    if len(found) == 1:
        session.note(f"{found[0]}: {read_key(found[0])}")
        return read_key(found[0]), found[0].name
    for number, path in enumerate(found, start=1):
        session.note(f"{number}  {path.name}: {' '.join(read_key(path).split()[2:])}")
    if not session.asks():
        raise click.UsageError(f"several keys are in {folder}: name one, such as {found[0]}")
    session.stderr.write(f"Which one? [1-{len(found)}] ")
    session.stderr.flush()
    answer = session.stdin.readline().strip()
    if not answer.isdecimal() or not 1 <= int(answer) <= len(found):
        raise click.UsageError(f"{answer!r} is none of 1 to {len(found)}")
    return read_key(found[int(answer) - 1]), found[int(answer) - 1].name


@command("List your keys.")
def ls(session: Session) -> None:
    found = session.client().ssh_keys.list()
    session.emit(
        {"items": found},
        lambda: render_table(
            columns("NAME", "KIND", "FINGERPRINT", "ADDED", "LAST USED"), [_row(key) for key in found]
        ),
    )


def _row(key: SshKey) -> tuple[object, ...]:
    kind = key["public_key"].partition(" ")[0]
    return key["name"], kind, key["fingerprint"], when(key.get("created_at")), when(key.get("last_used_at"))


@command("Remove a key: it opens nothing any more.", examples=("ssh-key rm laptop",))
@click.argument("key", metavar="NAME|FINGERPRINT")
@consent_option()
def rm(session: Session, key: str, yes: bool) -> None:
    keys = session.client().ssh_keys
    found = [one for one in keys.list() if key in (one["name"], one["fingerprint"], one["id"])]
    if not found:
        from starverse.client.errors import Refused

        raise Refused("not_found", f"you have no key {key}", hint="see `starverse ssh-key ls`")
    session.insist(f"Remove the key {found[0]['name']}?", yes=yes)
    keys.remove(found[0]["id"])
    session.emit({"deleted": found[0]["name"]}, lambda: "")
    session.note(f"key {found[0]['name']} is gone")


for each in (add, ls, rm):
    group.add_command(each)
