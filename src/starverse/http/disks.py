"""Disks: order, look at, attach, copy and give up; the files in them."""

from __future__ import annotations

from typing import Annotated

import anyio
from fastapi import Body, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from starverse.app.disks import files, orders, plugging, snapshots, usage
from starverse.app.disks.files import DiskFiles
from starverse.app.disks.orders import settings_of
from starverse.app.disks.plugging import AttachRequest
from starverse.app.disks.stuck import clear_stuck, list_stuck
from starverse.app.disks.views import DiskView
from starverse.app.etags import version_of
from starverse.http.admin import VersionDep
from starverse.http.file_answers import BINARY, FILE_ANSWERS, answer_file, pieces_of
from starverse.http.routing import make_router
from starverse.http.schemas_disks import (
    AttachIn,
    DetachIn,
    DiskChangeIn,
    DiskIn,
    DiskOut,
    DiskUsageOut,
    RestoreIn,
    SnapshotIn,
    SnapshotOut,
    StuckOut,
)
from starverse.http.schemas_jobs import FileOut
from starverse.http.security import AnyCaller, OnceDep, OperatorCaller, PlatformDep, TeamCaller
from starverse.http.shapes import LIMIT_DEFAULT, Items, LimitParam, items_of

router = make_router("disks")


def files_of(disk_ref: str, platform: PlatformDep, identity: AnyCaller) -> DiskFiles:
    """The disk's files, authorised, in a thread."""
    return files.find_files(platform, identity, disk_ref)


FilesDep = Annotated[DiskFiles, Depends(files_of)]


@router.post("/disks", status_code=201)
def create_disk(
    body: DiskIn, platform: PlatformDep, identity: TeamCaller, once: OnceDep, response: Response
) -> DiskOut:
    """Order a disk, empty or from a snapshot; it is ready in a moment, and charged from then on."""
    return _shown(response, orders.create_disk(platform, identity, body.request(once)))


@router.get("/disks")
def list_disks(
    platform: PlatformDep,
    identity: AnyCaller,
    deleted: Annotated[bool, Query(description="Also those that can still be restored")] = False,
) -> Items[DiskOut]:
    """The team's disks by name."""
    found = orders.list_disks(platform, identity, deleted=deleted)
    return Items[DiskOut](items=[DiskOut.of(view) for view in found])


@router.get("/disks/{disk_ref}")
def get_disk(disk_ref: str, platform: PlatformDep, identity: AnyCaller, response: Response) -> DiskOut:
    """One disk, by name or id, with its ETag."""
    return _shown(response, orders.get_disk(platform, identity, disk_ref))


@router.patch("/disks/{disk_ref}")
def change_disk(
    disk_ref: str,
    body: DiskChangeIn,
    platform: PlatformDep,
    identity: TeamCaller,
    version: VersionDep,
    response: Response,
) -> DiskOut:
    """Another size or name, or a schedule of snapshots."""
    return _shown(response, orders.change_disk(platform, identity, disk_ref, body.request(), version))


@router.delete("/disks/{disk_ref}")
def delete_disk(disk_ref: str, platform: PlatformDep, identity: TeamCaller) -> DiskOut:
    """Give a disk up: it costs nothing from now on, and can be restored for seven days."""
    return DiskOut.of(orders.delete_disk(platform, identity, disk_ref))


@router.post("/disks/{disk_ref}:restore")
def restore_disk(
    disk_ref: str,
    platform: PlatformDep,
    identity: TeamCaller,
    body: Annotated[RestoreIn | None, Body()] = None,
) -> DiskOut:
    """Have a deleted disk again with all that was in it."""
    name = None if body is None else body.name
    return DiskOut.of(orders.restore_disk(platform, identity, disk_ref, name))


@router.post("/disks/{disk_ref}:attach", status_code=202)
def attach_disk(
    disk_ref: str, body: AttachIn, platform: PlatformDep, identity: TeamCaller, once: OnceDep
) -> DiskOut:
    """Have an instance have the disk at each start, and at once where it runs."""
    wanted = AttachRequest(body.instance, body.path, body.read_only, once)
    return DiskOut.of(plugging.attach(platform, identity, disk_ref, wanted))


@router.post("/disks/{disk_ref}:detach", status_code=202)
def detach_disk(disk_ref: str, body: DetachIn, platform: PlatformDep, identity: TeamCaller) -> DiskOut:
    """Take the disk from an instance: at once where it runs, and for its next starts."""
    return DiskOut.of(plugging.detach(platform, identity, disk_ref, body.instance))


@router.get("/disks/{disk_ref}/usage")
def show_disk_usage(disk_ref: str, platform: PlatformDep, identity: AnyCaller) -> DiskUsageOut:
    """What it holds, and what it costs."""
    return DiskUsageOut.of(usage.show_usage(platform, identity, disk_ref))


@router.get("/disks/{disk_ref}/snapshots")
def list_snapshots(disk_ref: str, platform: PlatformDep, identity: AnyCaller) -> Items[SnapshotOut]:
    """The disk's snapshots, the oldest first."""
    found = snapshots.list_snapshots(platform, identity, disk_ref)
    return Items[SnapshotOut](items=[SnapshotOut.of(view) for view in found])


@router.post("/disks/{disk_ref}/snapshots", status_code=201)
def create_snapshot(
    disk_ref: str, body: SnapshotIn, platform: PlatformDep, identity: TeamCaller, once: OnceDep
) -> SnapshotOut:
    """Have the disk copied as it is; a block disk must not be attached meanwhile."""
    return SnapshotOut.of(snapshots.order_snapshot(platform, identity, disk_ref, body.name, once))


@router.delete("/disks/{disk_ref}/snapshots/{snapshot_ref}", status_code=204)
def delete_snapshot(
    disk_ref: str, snapshot_ref: str, platform: PlatformDep, identity: TeamCaller
) -> Response:
    """Drop a snapshot, by name or id."""
    snapshots.remove_snapshot(platform, identity, disk_ref, snapshot_ref)
    return Response(status_code=204)


@router.get("/disks/{disk_ref}/files")
def list_disk_files(
    found: FilesDep,
    path: Annotated[str, Query(max_length=4096)] = "",
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=8192)] = None,
) -> Items[FileOut]:
    """What is in a folder of the disk, by name; of a file: itself."""
    return items_of(FileOut, files.list_files(found, path, limit, cursor))


@router.get(
    "/disks/{disk_ref}/files/{path:path}",
    response_class=StreamingResponse,
    responses=FILE_ANSWERS,
)
def read_disk_file(path: str, found: FilesDep, request: Request) -> Response:
    """A file (one ``Range`` of bytes is honoured), or a folder as a tar. No link is followed out."""
    return answer_file(files.open_file(found, path), request)


@router.put(
    "/disks/{disk_ref}/files/{path:path}",
    status_code=204,
    openapi_extra={"requestBody": {"required": True, **BINARY}},
)
async def write_disk_file(path: str, platform: PlatformDep, found: FilesDep, request: Request) -> Response:
    """Put a file onto the disk, whole or not at all; folders on the way are made."""
    file = await anyio.to_thread.run_sync(files.new_file, platform, found, path)
    try:
        async for piece in pieces_of(request):
            await anyio.to_thread.run_sync(file.write, piece)
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(file.abandon, error)
        raise
    await anyio.to_thread.run_sync(file.finish)
    await anyio.to_thread.run_sync(files.count_new, platform, found, file.bytes)
    return Response(status_code=204)


@router.delete("/disks/{disk_ref}/files/{path:path}", status_code=204)
def delete_disk_file(path: str, found: FilesDep) -> Response:
    """Remove a file, a link, or a folder with all in it."""
    files.remove_file(found, path)
    return Response(status_code=204)


@router.get("/admin/attachments", tags=["admin"])
def list_stuck_attachments(platform: PlatformDep, identity: OperatorCaller) -> Items[StuckOut]:
    """Disks of every team that are stuck and wait for an operator's look, the oldest first."""
    return Items[StuckOut](items=[StuckOut.of(one) for one in list_stuck(platform, identity)])


@router.post("/admin/attachments/{attachment_id}:clear", status_code=204, tags=["admin"])
def clear_attachment(attachment_id: str, platform: PlatformDep, identity: OperatorCaller) -> Response:
    """Say of a stuck attachment that nothing has the disk any more, after a look at its node."""
    clear_stuck(platform, identity, attachment_id)
    return Response(status_code=204)


def _shown(response: Response, view: DiskView) -> DiskOut:
    response.headers["ETag"] = f'"{version_of(settings_of(view))}"'
    return DiskOut.of(view)
