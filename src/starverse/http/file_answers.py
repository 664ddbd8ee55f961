"""Files in requests and answers: a body in pieces, a file with its range, a folder as a tar."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from starverse.app.workspaces import OpenFile
from starverse.domain.errors import FieldFault, Invalid

PIECE_BYTES = 1024**2
BINARY: dict[str, Any] = {
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
}
FILE_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "A file's bytes; of a folder an uncompressed tar", **BINARY},
    206: {"description": "The bytes of the range asked for", **BINARY},
    416: {"description": "The file has no such range"},
}
"""What a route that answers with :func:`answer_file` says of its answers."""

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def answer_file(opened: OpenFile, request: Request) -> Response:
    """A file, or the one range of it that the request names; a folder as a tar."""
    if opened.is_folder:
        headers = {"Content-Disposition": _attachment(f"{opened.name}.tar")}
        return StreamingResponse(opened.tar(), media_type="application/x-tar", headers=headers)
    try:
        span = _range(request.headers.get("range"), opened.bytes)
    except ValueError:
        opened.close()
        return Response(status_code=416, headers={"Content-Range": f"bytes */{opened.bytes}"})
    start, end = span or (0, opened.bytes)
    headers = {
        "Content-Length": str(end - start),
        "Accept-Ranges": "bytes",
        "Content-Disposition": _attachment(opened.name),
    }
    if span is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{opened.bytes}"
    return StreamingResponse(
        opened.pieces(start, end),
        status_code=200 if span is None else 206,
        media_type="application/octet-stream",
        headers=headers,
    )


async def pieces_of(request: Request) -> AsyncIterator[bytes]:
    """The body in pieces of about a MiB; a sender that goes away is an error, not an end."""
    kept = bytearray()
    try:
        async for chunk in request.stream():
            kept += chunk
            if len(kept) >= PIECE_BYTES:
                yield bytes(kept)
                kept.clear()
    except ClientDisconnect as error:
        raise Invalid(faults=[FieldFault("body", "cut off", "the whole file")]) from error
    if kept:
        yield bytes(kept)


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """The half-open span of one byte range; ``None``: all of it; ``ValueError``: there is no such range."""
    found = _RANGE.fullmatch(header.strip()) if header else None
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        start, end = max(0, size - int(found[2])), size
    else:
        start = int(found[1])
        end = size if found[2] == "" else min(size, int(found[2]) + 1)
    if start >= end:
        raise ValueError(header)
    return start, end


def _attachment(name: str) -> str:
    return f"attachment; filename*=UTF-8''{quote(name.encode('utf-8', 'surrogateescape'), safe='')}"
