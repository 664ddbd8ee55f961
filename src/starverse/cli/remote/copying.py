"""Copying between this machine and what is kept behind the API: a job's folder, a disk."""

from __future__ import annotations

import os
import posixpath
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import click

from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import visible

STDOUT = "-"


class RemoteFiles(Protocol):
    """What the client has for the files of jobs and of disks alike."""

    def is_folder(self, ref: str, path: str) -> bool: ...

    def open_file(self, ref: str, path: str) -> AbstractContextManager[tuple[bool, Iterator[bytes]]]: ...

    def write_file(self, ref: str, path: str, file: BinaryIO) -> None: ...


@dataclass(frozen=True, slots=True)
class Remote:
    """``REF:path``; ``path`` is relative to the folder of the job or disk, ``""`` that folder itself.
    ``kind`` is the word for what ``ref`` names."""

    ref: str
    path: str
    kind: str = "job"


def refuse_json(session: Session) -> None:
    if session.json:
        raise click.UsageError("`-` prints the file itself: leave --json out")


def print_file(session: Session, files: RemoteFiles, here: Remote) -> None:
    """``cp REF:file -``: the file's bytes to stdout, nothing else."""
    refuse_json(session)
    with files.open_file(here.ref, here.path) as (is_folder, pieces):
        if is_folder:
            raise click.UsageError(f"{here.path or f'the {here.kind}'} is a folder; `-` takes one file")
        for piece in pieces:
            session.write_bytes(piece)


def fetch(session: Session, files: RemoteFiles, here: Remote, target: Path, *, yes: bool) -> None:
    name = posixpath.basename(here.path)
    place = target / name if target.is_dir() and name else target
    with files.open_file(here.ref, here.path) as (is_folder, pieces):
        if is_folder:
            from starverse.client.unpacking import unpack_folder

            unpacked = unpack_folder(pieces, place)
            answer = {"path": str(place), "files": unpacked.files, "links_left_out": unpacked.left_out}
            session.emit(answer, lambda: "")
            session.note(f"{_files_text(unpacked.files)} in {place}")
            _note_left_out(session, unpacked.left_out)
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


def send(session: Session, files: RemoteFiles, source: Path, there: Remote, *, as_folder: bool) -> None:
    """As ``cp -r``: into a folder that is there under the own name, else to the very path that is named."""
    sent, left_out = 0, list[str]()
    inside = as_folder or not there.path or files.is_folder(there.ref, there.path)
    for file, below in _files(source, left_out):
        if inside:
            name = posixpath.join(source.resolve().name, below) if below else source.name
            path = posixpath.join(there.path, name)
        else:
            path = posixpath.join(there.path, below) if below else there.path
        with file.open("rb") as content:
            files.write_file(there.ref, path, content)
        sent += 1
    session.emit({there.kind: there.ref, "files": sent, "links_left_out": left_out}, lambda: "")
    session.note(f"{_files_text(sent)} sent to {there.kind} {there.ref}")
    _note_left_out(session, left_out)
    empty = [str(folder.relative_to(source)) for folder in _empty_folders(source)]
    if empty:
        session.note(
            f"not sent, because they are empty: {', '.join(empty[:10])}" + ("..." * (len(empty) > 10))
        )


def _note_left_out(session: Session, links: Sequence[str]) -> None:
    if links:
        shown = ", ".join(visible(link) for link in links[:10]) + ("..." * (len(links) > 10))
        session.note(f"left out, because they are links that lead elsewhere: {shown}")


def _empty_folders(source: Path) -> list[Path]:
    return sorted(Path(folder) for folder, folders, names in os.walk(source) if not folders and not names)


def _files(source: Path, left_out: list[str]) -> Iterator[tuple[Path, str]]:
    """The file itself, or every file of a folder with its path below it; ``left_out`` gets links that leave
    it."""
    if not source.is_dir():
        yield source, ""
        return
    root = source.resolve()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if not file.resolve().is_relative_to(root):
                left_out.append(file.relative_to(root).as_posix())
                continue
            if stat.S_ISREG(file.stat().st_mode):
                yield file, file.relative_to(root).as_posix()


def _files_text(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
