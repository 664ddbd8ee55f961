"""The files of whatever has some: a job's folder, a disk."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, cast
from urllib.parse import quote

from starverse.client.errors import ClientError
from starverse.client.shapes import FileEntry
from starverse.client.transport import Call, Transport

UPLOAD_TIMEOUT_SECONDS = 3600.0


class HasFiles(ABC):
    """``ref`` names what has them. Paths are as on the platform, relative to its folder."""

    _transport: Transport

    @abstractmethod
    def _place(self, ref: str) -> str:
        """Where the API has it, such as ``/jobs/12``."""

    def files(self, ref: str, path: str = "") -> Sequence[FileEntry]:
        call = Call("GET", f"{self._place(ref)}/files", {"path": path})
        return [cast(FileEntry, item) for item in self._transport.pages(call)]

    def is_folder(self, ref: str, path: str) -> bool:
        """Whether a folder of this path is there; a missing job or disk is told by what follows."""
        try:
            page = self._transport.send(Call("GET", f"{self._place(ref)}/files", {"path": path, "limit": 1}))
        except ClientError as error:
            if error.status is None:
                raise
            return False
        return [item.get("path") for item in page.get("items", ())] != [path]  # a file lists itself

    @contextmanager
    def open_file(self, ref: str, path: str) -> Iterator[tuple[bool, Iterator[bytes]]]:
        """``(is_folder, pieces)``: a file's bytes, or for a folder those of a tar archive."""
        call = Call("GET", self._file(ref, path), headers={"Accept": "*/*"})
        with self._transport.stream(call) as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip()
            yield kind == "application/x-tar", response.iter_bytes()

    def write_file(self, ref: str, path: str, file: BinaryIO) -> None:
        """Put a file there; folders on the way are made."""
        headers = {"Content-Type": "application/octet-stream"}
        place = self._file(ref, path)
        self._transport.send(
            Call("PUT", place, file=file, headers=headers, timeout_seconds=UPLOAD_TIMEOUT_SECONDS)
        )

    def _file(self, ref: str, path: str) -> str:
        return f"{self._place(ref)}/files/{quote(os.fsencode(path), safe='/')}"
