"""``cp``: between this machine and a job's folder or an instance, files and whole folders.

A number or an id before the colon is a job's; any other word there is the name of an instance, whose files go
by scp. As for scp, a local name with a colon in it is written with a slash before the colon: ``./a:b``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from starverse.cli.remote.commands import command, yes_option
from starverse.cli.remote.copying import STDOUT, Remote, fetch, print_file, refuse_json, send
from starverse.cli.remote.session import Session

_JOB = re.compile(r"(\d{1,10}(?:_\d{1,7})?|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(.*)", re.DOTALL)
_INSTANCE = re.compile(r"([^:/]+):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class InstancePlace:
    """``NAME:path``; ``path`` as scp takes it: below ``/root`` unless it begins with ``/``."""

    name: str
    path: str


def read_place(text: str) -> Remote | InstancePlace | str:
    """``JOB:path``, ``INSTANCE:path`` or a local path."""
    found = _JOB.fullmatch(text)
    if found is None:
        other = _INSTANCE.fullmatch(text)
        return text if other is None else InstancePlace(other[1], other[2] or ".")
    path = posixpath.normpath(found[2] or ".")
    if path == ".." or path.startswith("../"):
        raise click.UsageError(f"{text} leaves the job's folder")
    path = path.removeprefix("/workspace/") if path.startswith("/workspace/") else path
    if path.startswith("/") and path != "/workspace":
        raise click.UsageError(f"{text} is not in the job's folder, which is /workspace")
    return Remote(found[1], "" if path in (".", "/workspace") else path)


@command(
    "Copy between this machine and a job's folder or an instance, folders too; `-` is stdout.",
    examples=(
        "cp 123:out/model.npz .",
        "cp lab:/workspace/out .",
        "cp data lab:/workspace/",
        "cp 123:log.txt -",
    ),
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@yes_option()
def cp(session: Session, source: str, target: str, yes: bool) -> None:
    here, there = read_place(source), read_place(target)
    if isinstance(here, InstancePlace) and isinstance(there, str):
        _fetch_by_scp(session, here, there, yes=yes)
    elif isinstance(here, str) and isinstance(there, InstancePlace):
        from starverse.cli.remote.instance_ssh import copy_files

        copy_files(session, there.name, _local(session, here), there.path, to_instance=True)
    elif isinstance(here, Remote) and isinstance(there, str):
        with _explained(session, here.ref):
            if there == STDOUT:
                print_file(session, session.client().jobs, here)
            else:
                fetch(session, session.client().jobs, here, session.folder / there, yes=yes)
    elif isinstance(here, str) and isinstance(there, Remote):
        as_folder = target.endswith(("/", ":", "/.", ":."))
        with _explained(session, there.ref):
            send(session, session.client().jobs, session.folder / here, there, as_folder=as_folder)
    else:
        raise click.UsageError("one of FROM and TO is JOB:path or INSTANCE:path, such as 123:out/model.npz")


@contextmanager
def _explained(session: Session, ref: str) -> Iterator[None]:
    """A number that no job has may be an instance's, which is called by its name here."""
    from starverse.client.errors import ClientError, Refused

    try:
        yield
    except ClientError as error:
        if error.code != "not_found":
            raise
        try:
            name = session.client().instances.get(ref)["name"]
        except ClientError:
            raise error from None
        detail = f"{ref} is the instance {name}; no job has this number"
        raise Refused("not_found", detail, hint=f"write {name}:path") from error


def _fetch_by_scp(session: Session, here: InstancePlace, there: str, *, yes: bool) -> None:
    from starverse.cli.remote.instance_ssh import copy_files, print_file_there

    if there == STDOUT:
        refuse_json(session)
        print_file_there(session, here.name, here.path)
        return
    target = session.folder / there
    place = target / posixpath.basename(here.path.rstrip("/")) if target.is_dir() else target
    if place.is_file():
        session.confirm(f"Overwrite {place}?", yes=yes)
    copy_files(session, here.name, here.path, _local(session, there), to_instance=False)


def _local(session: Session, name: str) -> str:
    """An absolute path, which scp cannot take for a host's; its slash at the end stays."""
    return str(session.folder / name) + ("/" if name.endswith("/") else "")
