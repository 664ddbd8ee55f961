"""Packed submit folders, and the files of a job's folder."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import quote

import anyio
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from starverse.app import folders, workspaces
from starverse.app.folders import Upload
from starverse.app.workspaces import NewFile, OpenFile, Workspace
from starverse.domain.errors import FieldFault, Invalid
from starverse.http.schemas_jobs import FileOut, FolderOut, LimitsOut
from starverse.http.security import AnyCaller, PlatformDep
from starverse.http.shapes import LIMIT_DEFAULT, Items, LimitParam, items_of

router = APIRouter(tags=["files"])

PIECE_BYTES = 1024**2
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_BINARY = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


def workspace_of(ref: str, platform: PlatformDep, identity: AnyCaller) -> Workspace:
    """The job's folder, authorised and unpacked, in a thread."""
    return workspaces.find_workspace(platform, identity, ref)


WorkspaceDep = Annotated[Workspace, Depends(workspace_of)]


def begin_upload(folder_id: str, platform: PlatformDep, identity: AnyCaller) -> Upload:
    """A file to receive a folder into, authorised, in a thread."""
    return folders.begin_upload(platform, identity, folder_id)


@router.get("/limits")
def read_limits(platform: PlatformDep, identity: AnyCaller) -> LimitsOut:
    """What scripts and folders may be: for a client, before it packs a large one."""
    return LimitsOut.showing(folders.limits_of(platform))


@router.put(
    "/folders/{folder_id}",
    status_code=201,
    response_model=FolderOut,
    responses={200: {"model": FolderOut, "description": "This very content was there before"}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload_folder(
    request: Request, response: Response, upload: Annotated[Upload, Depends(begin_upload)]
) -> Any:
    """Bring a packed folder: a gzipped tar, named by the SHA-256 of its bytes."""
    try:
        async for piece in _pieces(request):
            await anyio.to_thread.run_sync(upload.write, piece)
        made = await anyio.to_thread.run_sync(upload.finish)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(upload.abandon)
    response.status_code = 200 if made.existed else 201
    return FolderOut.of(made)


@router.head("/folders/{folder_id}", responses={200: {"description": "It is there"}})
def has_folder(folder_id: str, platform: PlatformDep, identity: AnyCaller) -> Response:
    """Whether the team brought this folder before (404 otherwise)."""
    found = folders.find_folder(platform, identity, folder_id)
    return Response(status_code=200, headers={"X-Folder-Bytes": str(found.bytes)})


@router.get("/jobs/{ref}/files")
def list_files(
    workspace: WorkspaceDep,
    path: Annotated[str, Query(max_length=4096)] = "",
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=8192)] = None,
) -> Items[FileOut]:
    """What is in a folder of the job's folder, by name; of a file: itself."""
    return items_of(FileOut, workspaces.list_files(workspace, path, limit, cursor))


@router.get(
    "/jobs/{ref}/files/{path:path}",
    response_class=StreamingResponse,
    responses={
        200: {"description": "A file's bytes; of a folder an uncompressed tar", **_BINARY},
        206: {"description": "The bytes of the range asked for", **_BINARY},
        416: {"description": "The file has no such range"},
    },
)
def read_file(path: str, workspace: WorkspaceDep, request: Request) -> Response:
    """A file (one ``Range`` of bytes is honoured), or a folder as a tar. No link is followed out."""
    opened = OpenFile(workspace, path)
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


@router.put(
    "/jobs/{ref}/files/{path:path}",
    status_code=204,
    openapi_extra={"requestBody": {"required": True, **_BINARY}},
)
async def write_file(path: str, platform: PlatformDep, workspace: WorkspaceDep, request: Request) -> Response:
    """Put a file into the job's folder, whole or not at all; folders on the way are made."""
    file = await anyio.to_thread.run_sync(NewFile, platform, workspace, path)
    try:
        async for piece in _pieces(request):
            await anyio.to_thread.run_sync(file.write, piece)
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(file.abandon, error)
        raise
    await anyio.to_thread.run_sync(file.finish)
    return Response(status_code=204)


async def _pieces(request: Request) -> AsyncIterator[bytes]:
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
