"""The plugs of a fake launcher: there at once, or refused, or stuck, as its run says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from starverse.domain.disk_kind import DiskKind
from starverse.domain.workloads.launch import Plug, PlugState

Reports = tuple[PlugState, ...]


@dataclass(slots=True)
class FakePlugs:
    """``locks`` is shared by all launchers: block file -> whose, as a ``flock`` on it is."""

    owner: str
    locks: dict[str, str]
    there: dict[str, Plug] = field(default_factory=dict)
    states: dict[str, PlugState] = field(default_factory=dict)

    def follow(self, wanted: Sequence[Plug], refuses: str, sticks: bool) -> Reports:
        """Make it so; what there is to report of every plug that was ever wanted."""
        ids = {plug.id for plug in wanted}
        for plug in [plug for key, plug in self.there.items() if key not in ids]:
            if sticks:
                self.states[plug.id] = PlugState(plug.id, "stuck", "a file on it is open")
            else:
                self._take_out(plug)
        for plug in wanted:
            if plug.id not in self.states:
                self._plug_in(plug, refuses)
        return self.report

    @property
    def report(self) -> Reports:
        return tuple(self.states.values())

    def let_go(self) -> None:
        """Its launcher is no more: nothing is mounted, no lock is held."""
        for source in [source for source, owner in self.locks.items() if owner == self.owner]:
            del self.locks[source]
        self.there.clear()

    def _plug_in(self, plug: Plug, refuses: str) -> None:
        taken = plug.kind == DiskKind.BLOCK.value and plug.source in self.locks
        why = "another one has it" if taken else refuses
        self.states[plug.id] = PlugState(plug.id, "refused" if why else "attached", why)
        if not why:
            self.there[plug.id] = plug
            if plug.kind == DiskKind.BLOCK.value:
                self.locks[plug.source] = self.owner

    def _take_out(self, plug: Plug) -> None:
        self.there.pop(plug.id)
        self.states[plug.id] = PlugState(plug.id, "detached")
        if self.locks.get(plug.source) == self.owner:
            del self.locks[plug.source]
