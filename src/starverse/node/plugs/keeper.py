"""The plugs of one running workload, made to be what is wanted of them.

A plug is there if and only if it is wanted and was not refused, or it is ``stuck``. Mounting and unmounting
happen in processes of their own (:mod:`starverse.node.acts`), so nothing here ever waits; each end is
bounded or reported. Nothing is written down: mounts, loop devices and locks live in the sandbox's own
namespaces and end with them, however the launcher ends.

::

    (wanted) -> attached -> (not wanted) -> detached
         '-> refused             '-> stuck -> detached, or attached where it is wanted again
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from starverse.domain.disk_kind import DiskKind
from starverse.domain.workloads.launch import Plug, PlugState
from starverse.node.acts import Act
from starverse.node.plugs import block_disks, inside_mounts
from starverse.node.plugs.holders import describe_holders, find_holders
from starverse.node.plugs.places import PlugRefused, open_file, place_of

DETACH_SECONDS = 10.0
"""In which a plug is out, or ``stuck``."""

_AGAIN_SECONDS = 2.0
"""After which one that is stuck is tried again."""

_ENDED_KEPT = 64
"""Of those that are over, the newest are still reported."""

ATTACHING, ATTACHED, REFUSED, DETACHING, DETACHED, STUCK = (
    "attaching",
    "attached",
    "refused",
    "detaching",
    "detached",
    "stuck",
)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Where plugs go: ``process`` is a pidfd of the process in whose namespaces the sandbox is made (-1: it
    offers no place for plugs), ``folder`` the path there of what is shown as ``/data``."""

    process: int
    folder: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands of one plug. ``give_up_at``: when a detach is overdue; ``again_at``: when to try again."""

    plug: Plug
    state: str
    message: str = ""
    give_up_at: float = 0.0
    again_at: float = 0.0


class PlugKeeper:
    """``inside`` answers the host ids of the processes inside; ``tag`` marks processes that serve a disk."""

    def __init__(self, wanted: Iterable[Plug], inside: Callable[[], list[int]], tag: str) -> None:
        self._tag = tag
        self._inside = inside
        self._sandbox: Sandbox | None = None
        self._wanted = {plug.id: plug for plug in wanted}
        self._has_news = False
        self._first = tuple(self._wanted)
        self._entries: dict[str, Entry] = {}
        self._acts: dict[str, Act] = {}

    def begin(self, sandbox: Sandbox) -> None:
        """From now on there is a place for plugs."""
        self._sandbox = sandbox

    def want(self, plugs: Iterable[Plug]) -> None:
        """All that is to be there from now on."""
        wanted = {plug.id: plug for plug in plugs}
        self._has_news = self._has_news or wanted != self._wanted
        self._wanted = wanted

    def tend(self, now: float) -> None:
        """One look at what has ended and what is to be begun."""
        if self._sandbox is None:
            return
        self._has_news = False
        for plug_id, act in list(self._acts.items()):
            if (outcome := act.outcome()) is not None:
                del self._acts[plug_id]
                self._entries[plug_id] = self._judge(self._entries[plug_id], outcome, now)
        for plug in self._wanted.values():
            entry = self._entries.get(plug.id)
            if entry is None or (entry.state == DETACHED and plug.id not in self._acts):
                self._attach(plug)
            elif entry.state == STUCK and plug.id not in self._acts:
                self._entries[plug.id] = replace(entry, state=ATTACHED, message="")
        for plug_id, entry in list(self._entries.items()):
            if plug_id not in self._wanted:
                self._see_out(entry, now)
        self._forget()

    def handles(self) -> list[int]:
        """Descriptors that become readable when there is something to :meth:`tend`."""
        return [act.handle for act in self._acts.values()]

    def wake_at(self) -> float:
        """When there is something to :meth:`tend` without any of the :meth:`handles`."""
        if self._has_news and self._sandbox is not None:
            return 0.0
        times = [max(entry.give_up_at, entry.again_at) for entry in self._entries.values()]
        return min((at for at in times if at), default=float("inf"))

    def states(self) -> tuple[PlugState, ...]:
        """What is reported: each plug that came to something."""
        return tuple(
            PlugState(entry.plug.id, ATTACHED if entry.state == DETACHING else entry.state, entry.message)
            for entry in self._entries.values()
            if entry.state != ATTACHING
        )

    def missing_at_start(self) -> str | None:
        """``""``: all plugs of the launch are there; ``None``: not yet; else why one cannot be had."""
        waiting = False
        for plug_id in self._first:
            entry = self._entries.get(plug_id)
            if entry is not None and entry.state == REFUSED:
                return f"disk at {entry.plug.target}: {entry.message}"
            waiting = waiting or entry is None or entry.state == ATTACHING
        return None if waiting else ""

    def end(self, breathe: Callable[[], None], now: Callable[[], float]) -> None:
        """The sandbox is gone, and with it all mounts: wait until the file systems are written back."""
        give_up = now() + DETACH_SECONDS
        for act in self._acts.values():
            act.kill()
        for plug_id, entry in self._entries.items():
            if entry.state in (REFUSED, DETACHED):
                continue
            while (held := _is_held(entry.plug)) and now() < give_up:
                breathe()
            message = "its file system is still being written back" if held else ""
            self._entries[plug_id] = Entry(entry.plug, STUCK if held else DETACHED, message)

    def _attach(self, plug: Plug) -> None:
        assert self._sandbox is not None
        taken = [
            entry.plug.target
            for entry in self._entries.values()
            if entry.plug.id != plug.id and entry.state not in (REFUSED, DETACHED)
        ]
        try:
            if self._sandbox.process < 0:
                raise PlugRefused("this sandbox has no place for disks (starverse doctor says why)")
            place = place_of(plug.target, taken)
        except PlugRefused as refusal:
            self._entries[plug.id] = Entry(plug, REFUSED, str(refusal))
            return
        self._entries[plug.id] = Entry(plug, ATTACHING)
        sandbox, target = self._sandbox.process, f"{self._sandbox.folder}/{place}"
        self._acts[plug.id] = Act(lambda: _show(plug, sandbox, target, self._tag), (sandbox,))

    def _see_out(self, entry: Entry, now: float) -> None:
        plug = entry.plug
        if plug.id in self._acts:
            if entry.state == ATTACHING and not entry.give_up_at:
                self._entries[plug.id] = replace(entry, give_up_at=now + DETACH_SECONDS)
            elif entry.state == ATTACHING and now >= entry.give_up_at:
                self._acts[plug.id].kill()
            elif entry.state == DETACHING and now >= entry.give_up_at:
                self._entries[plug.id] = replace(
                    entry, state=STUCK, message=self._who_holds(plug), give_up_at=0.0
                )
        elif entry.state == ATTACHED or (entry.state == STUCK and now >= entry.again_at):
            assert self._sandbox is not None
            sandbox, target = self._sandbox.process, f"{self._sandbox.folder}/{place_of(plug.target)}"
            stuck = entry.state == STUCK
            seconds = 0.0 if stuck else DETACH_SECONDS - 1.0
            self._acts[plug.id] = Act(lambda: _take_out(plug, sandbox, target, seconds), (sandbox,))
            if not stuck:
                self._entries[plug.id] = replace(entry, state=DETACHING, give_up_at=now + DETACH_SECONDS)

    def _judge(self, entry: Entry, outcome: str, now: float) -> Entry:
        """What an act's end makes of its plug."""
        plug = entry.plug
        if entry.state == ATTACHING:
            if not outcome:
                return Entry(plug, ATTACHED)
            if plug.id in self._wanted:
                return Entry(plug, REFUSED, outcome)
            return Entry(plug, ATTACHED)  # it may have got there before it was ended: to be taken out
        if not outcome:
            return Entry(plug, DETACHED)
        return Entry(plug, STUCK, self._who_holds(plug), again_at=now + _AGAIN_SECONDS)

    def _who_holds(self, plug: Plug) -> str:
        return describe_holders(find_holders(self._inside(), plug.target))

    def _forget(self) -> None:
        over = [
            plug_id
            for plug_id, entry in self._entries.items()
            if entry.state in (REFUSED, DETACHED) and plug_id not in self._wanted
        ]
        for plug_id in over[:-_ENDED_KEPT]:
            del self._entries[plug_id]


def _show(plug: Plug, sandbox: int, target: str, tag: str) -> None:
    """In the act's process."""
    if plug.kind == DiskKind.BLOCK:
        block_disks.show_block(sandbox, plug.source, target, read_only=plug.read_only, tag=tag)
    else:
        inside_mounts.show_folder(sandbox, plug.source, target, read_only=plug.read_only)


def _take_out(plug: Plug, sandbox: int, target: str, seconds: float) -> None:
    """In the act's process."""
    if plug.kind == DiskKind.BLOCK:
        block_disks.take_out_block(sandbox, plug.source, target, seconds)
    else:
        inside_mounts.take_out(sandbox, target, seconds)


def _is_held(plug: Plug) -> bool:
    """Whether anybody still has a block disk's file."""
    if plug.kind != DiskKind.BLOCK:
        return False
    try:
        handle = open_file(plug.source, write=True)
    except (PlugRefused, OSError):
        return False
    try:
        block_disks.wait_until_free(handle, 0)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
