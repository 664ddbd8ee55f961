"""Packed submit folders, and the files of a job's folder."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from fastapi import Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from starverse.app import folders, workspaces
from starverse.app.folders import Upload
from starverse.app.workspaces import NewFile, OpenFile, Workspace
from starverse.http.file_answers import BINARY, FILE_ANSWERS, answer_file, pieces_of
from starverse.http.routing import make_router
from starverse.http.schemas_jobs import FileOut, FolderOut, LimitsOut
from starverse.http.security import AnyCaller, PlatformDep
from starverse.http.shapes import LIMIT_DEFAULT, Items, LimitParam, items_of

router = make_router("files")


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
        async for piece in pieces_of(request):
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
    responses=FILE_ANSWERS,
)
def read_file(path: str, workspace: WorkspaceDep, request: Request) -> Response:
    """A file (one ``Range`` of bytes is honoured), or a folder as a tar. No link is followed out."""
    return answer_file(OpenFile(workspace, path), request)


@router.put(
    "/jobs/{ref}/files/{path:path}",
    status_code=204,
    openapi_extra={"requestBody": {"required": True, **BINARY}},
)
async def write_file(path: str, platform: PlatformDep, workspace: WorkspaceDep, request: Request) -> Response:
    """Put a file into the job's folder, whole or not at all; folders on the way are made."""
    file = await anyio.to_thread.run_sync(NewFile, platform, workspace, path)
    try:
        async for piece in pieces_of(request):
            await anyio.to_thread.run_sync(file.write, piece)
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(file.abandon, error)
        raise
    await anyio.to_thread.run_sync(file.finish)
    return Response(status_code=204)
