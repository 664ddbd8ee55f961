"""Disks: a team's persistent storage, its files, snapshots and copies to and from remotes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast
from urllib.parse import quote

from starverse.client.errors import ClientError
from starverse.client.remote_files import HasFiles
from starverse.client.shapes import Disk, DiskPrices, Snapshot, Sync
from starverse.client.transport import Call, Transport, new_key
from starverse.client.waiting import Patience, wait_until

PATIENCE = Patience(pause_seconds_first=0.05, pause_seconds_max=1.0)
ENDED_SYNCS = frozenset({"succeeded", "failed", "cancelled"})


class Disks(HasFiles):
    """Disks are named by name or id, of the team."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, request: dict[str, Any]) -> Disk:
        """``{name, kind, gib, from_snapshot}``."""
        return cast(Disk, self._transport.send(Call("POST", "/disks", body=request, key=new_key())))

    def prices(self) -> DiskPrices:
        return cast(DiskPrices, self._transport.send(Call("GET", "/disk-prices")))

    def list(self, *, deleted: bool = False) -> list[Disk]:
        """Of the team; ``deleted``: those too that can still be restored."""
        call = Call("GET", "/disks", {"deleted": deleted or None})
        return [cast(Disk, item) for item in self._transport.pages(call)]

    def get(self, ref: str) -> Disk:
        return cast(Disk, self._transport.send(Call("GET", _disk(ref))))

    def change(self, ref: str, changes: dict[str, Any]) -> Disk:
        """``{gib, snapshot_schedule, snapshots_kept}``: what is named is set."""
        return cast(Disk, self._transport.send(Call("PATCH", _disk(ref), body=changes)))

    def remove(self, ref: str) -> dict[str, Any]:
        return self._transport.send(Call("DELETE", _disk(ref)))

    def restore(self, ref: str, name: str | None = None) -> Disk:
        return cast(Disk, self._act(ref, "restore", {} if name is None else {"name": name}))

    def attach(self, ref: str, request: dict[str, Any]) -> Disk:
        """``{instance, path, read_only}``: at once where it runs, and at each of its starts."""
        return cast(Disk, self._act(ref, "attach", request))

    def detach(self, ref: str, instance: str) -> Disk:
        return cast(Disk, self._act(ref, "detach", {"instance": instance}))

    def wait(self, disk: Disk, done: Callable[[Disk], bool], *, seconds_max: float) -> Disk:
        """The disk once it is ``done``, or as it is after so long."""
        if done(disk):
            return disk
        patience = replace(PATIENCE, seconds_max=seconds_max)
        return wait_until(self._transport, lambda: self.get(disk["id"]), done, patience)

    def usage(self, ref: str) -> dict[str, Any]:
        """What it holds and what that costs."""
        return self._transport.send(Call("GET", f"{_disk(ref)}/usage"))

    # -- snapshots

    def snapshots(self, ref: str) -> Sequence[Snapshot]:
        call = Call("GET", f"{_disk(ref)}/snapshots")
        return [cast(Snapshot, item) for item in self._transport.pages(call)]

    def take_snapshot(self, ref: str, name: str | None = None) -> Snapshot:
        body = {} if name is None else {"name": name}
        call = Call("POST", f"{_disk(ref)}/snapshots", body=body, key=new_key())
        return cast(Snapshot, self._transport.send(call))

    def wait_snapshot(self, ref: str, snapshot: Snapshot) -> Snapshot:
        """The snapshot once it is made, or has failed, or is gone."""
        newest = snapshot

        def look() -> Snapshot | None:
            nonlocal newest
            found = next((one for one in self.snapshots(ref) if one["id"] == snapshot["id"]), None)
            newest = found or newest
            return found

        wait_until(self._transport, look, lambda found: found is None or found["state"] != "making", PATIENCE)
        return newest

    def remove_snapshot(self, ref: str, snapshot: str) -> None:
        self._transport.send(Call("DELETE", f"{_disk(ref)}/snapshots/{quote(snapshot, safe='')}"))

    # -- copies to and from remotes

    def syncs(self, ref: str) -> Sequence[Sync]:
        return [cast(Sync, item) for item in self._transport.pages(Call("GET", f"{_disk(ref)}/syncs"))]

    def start_sync(self, ref: str, request: dict[str, Any]) -> Sync:
        """``{direction, remote, folder, secret, bytes_per_second_max, verify, schedule}``."""
        return cast(
            Sync, self._transport.send(Call("POST", f"{_disk(ref)}/syncs", body=request, key=new_key()))
        )

    def sync(self, ref: str, sync_id: str) -> Sync:
        return cast(Sync, self._transport.send(Call("GET", _sync(ref, sync_id))))

    def cancel_sync(self, ref: str, sync_id: str) -> dict[str, Any]:
        return self._transport.send(Call("DELETE", _sync(ref, sync_id)))

    def wait_sync(
        self,
        ref: str,
        sync: Sync,
        *,
        on_wait: Callable[[Sync], None],
        on_break: Callable[[ClientError], None],
    ) -> Sync:
        """The copy once it has ended; asks again and again, also while the server is away for a while."""
        if sync["state"] in ENDED_SYNCS:
            return sync
        on_wait(sync)
        return wait_until(
            self._transport,
            lambda: self.sync(ref, sync["id"]),
            lambda found: found["state"] in ENDED_SYNCS,
            PATIENCE,
            on_wait=on_wait,
            on_break=on_break,
        )

    # -- files

    def remove_file(self, ref: str, path: str) -> None:
        self._transport.send(Call("DELETE", self._file(ref, path)))

    def _place(self, ref: str) -> str:
        return _disk(ref)

    def _act(self, ref: str, action: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._transport.send(Call("POST", f"{_disk(ref)}:{action}", body=body, key=new_key()))


def _disk(ref: str) -> str:
    return f"/disks/{quote(ref, safe='')}"


def _sync(ref: str, sync_id: str) -> str:
    return f"{_disk(ref)}/syncs/{quote(sync_id, safe='')}"
