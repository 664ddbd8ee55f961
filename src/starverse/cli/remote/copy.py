"""``cp``: between this machine and a job's folder, files and whole folders."""

from __future__ import annotations

import os
import posixpath
import re
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from starverse.cli.remote.commands import command, yes_option
from starverse.cli.remote.session import Session

_REMOTE = re.compile(r"(\d{1,10}(?:_\d{1,7})?|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(.*)", re.DOTALL)


STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Remote:
    """``JOB:path``; ``path`` is relative to the job's folder, ``""`` the folder itself."""

    job: str
    path: str


def read_place(text: str) -> Remote | str:
    """``JOB:path`` or a local path; a local name that looks like the former is written ``./123:name``."""
    found = _REMOTE.fullmatch(text)
    if found is None:
        return text
    path = posixpath.normpath(found[2] or ".")
    if path == ".." or path.startswith("../"):
        raise click.UsageError(f"{text} leaves the job's folder")
    path = path.removeprefix("/workspace/") if path.startswith("/workspace/") else path
    if path.startswith("/") and path != "/workspace":
        raise click.UsageError(f"{text} is not in the job's folder, which is /workspace")
    return Remote(found[1], "" if path in (".", "/workspace") else path)


@command("Copy between this machine and a job's folder: JOB:path . and back, folders too; `-` is stdout.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@yes_option()
def cp(session: Session, source: str, target: str, yes: bool) -> None:
    here, there = read_place(source), read_place(target)
    if isinstance(here, Remote) and there == STDOUT:
        _print(session, here)
    elif isinstance(here, Remote) and isinstance(there, str):
        _fetch(session, here, session.folder / there, yes=yes)
    elif isinstance(here, str) and isinstance(there, Remote):
        _send(session, session.folder / here, there, as_folder=target.endswith(("/", ":", "/.", ":.")))
    else:
        raise click.UsageError("one of FROM and TO is JOB:path, such as 123:out/model.npz")


def _print(session: Session, here: Remote) -> None:
    """``cp JOB:file -``: the file's bytes to stdout, nothing else."""
    if session.json:
        raise click.UsageError("`-` prints the file itself: leave --json out")
    with session.client().jobs.open_file(here.job, here.path) as (is_folder, pieces):
        if is_folder:
            raise click.UsageError(f"{here.path or 'the job'} is a folder; `-` takes one file")
        for piece in pieces:
            session.write_bytes(piece)


def _fetch(session: Session, here: Remote, target: Path, *, yes: bool) -> None:
    name = posixpath.basename(here.path)
    place = target / name if target.is_dir() and name else target
    with session.client().jobs.open_file(here.job, here.path) as (is_folder, pieces):
        if is_folder:
            from starverse.client.unpacking import unpack_folder

            count = unpack_folder(pieces, place)
            session.emit({"path": str(place), "files": count}, lambda: "")
            session.note(f"{_files_text(count)} in {place}")
            return
        if place.exists():
            session.confirm(f"Overwrite {place}?", yes=yes)
        size = _write(place, pieces)
    session.emit({"path": str(place), "bytes": size}, lambda: "")
    session.note(f"{size} bytes in {place}")


def _write(place: Path, pieces: Iterator[bytes]) -> int:
    """Write aside, then rename: an interrupted copy leaves nothing half written."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".starverse-cp-")
    size = 0
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                size += file.write(piece)
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return size


def _send(session: Session, source: Path, there: Remote, *, as_folder: bool) -> None:
    """As ``cp -r``: into a folder that is there under the own name, else to the very path that is named."""
    jobs = session.client().jobs
    sent = 0
    inside = as_folder or not there.path or jobs.is_folder(there.job, there.path)
    for file, below in _files(source):
        if inside:
            name = posixpath.join(source.resolve().name, below) if below else source.name
            path = posixpath.join(there.path, name)
        else:
            path = posixpath.join(there.path, below) if below else there.path
        with file.open("rb") as content:
            jobs.write_file(there.job, path, content)
        sent += 1
    session.emit({"job": there.job, "files": sent}, lambda: "")
    session.note(f"{_files_text(sent)} sent to job {there.job}")
    empty = [str(folder.relative_to(source)) for folder in _empty_folders(source)]
    if empty:
        session.note(
            f"not sent, because they are empty: {', '.join(empty[:10])}" + ("..." * (len(empty) > 10))
        )


def _empty_folders(source: Path) -> list[Path]:
    return sorted(Path(folder) for folder, folders, names in os.walk(source) if not folders and not names)


def _files(source: Path) -> Iterator[tuple[Path, str]]:
    """The file itself, or every file of a folder with its path below it; links that leave are refused."""
    if not source.is_dir():
        yield source, ""
        return
    root = source.resolve()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if not file.resolve().is_relative_to(root):
                raise click.UsageError(f"{file} is a link that leaves {root}")
            if stat.S_ISREG(file.stat().st_mode):
                yield file, file.relative_to(root).as_posix()


def _files_text(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
