"""A card returns to others only when its memory is free and nobody is on it (scenario 16).

Looked at by the launcher, once nothing of its own uses the card: before the sandbox starts and after it has
ended. What does not become clean in time is reported with the reason; the platform then keeps the card out of
use until an operator has looked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from starverse.domain.workloads.launch import LaunchSpec, UncleanCard
from starverse.engines.base import EngineUnavailable
from starverse.node.cards.file import FileCards
from starverse.node.cards.nvml import NoDriver, open_nvml
from starverse.node.cards.source import CardSource, CardUsage

CLEAN_SECONDS_MAX = 10.0
"""How long memory may take to come back after the last process has ended."""
MEMORY_BYTES_KEPT = 512 * 1024**2
MEMORY_SHARE_KEPT = 0.01
"""What a driver may keep for itself: so many bytes and this share of the card's memory."""
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class GrantedCards:
    """The cards of a launch on this node. ``source`` ``None``: nothing can be told of them."""

    node: str
    uuids: Mapping[str, int]
    source: CardSource | None

    def usage(self) -> dict[str, CardUsage]:
        """By UUID, of those that the source can tell of; empty where it does not answer."""
        if self.source is None:
            return {}
        try:
            return {uuid: used for uuid, used in self.source.usage().items() if uuid in self.uuids}
        except EngineUnavailable:
            return {}

    def unclean(self) -> tuple[UncleanCard, ...]:
        """Those that must not be lent as they are now."""
        found = [
            UncleanCard(self.node, self.uuids[uuid], why)
            for uuid, used in self.usage().items()
            if (why := fault_of(used))
        ]
        return tuple(sorted(found, key=lambda card: card.index))

    def settle(
        self, seconds_max: float, pause: Callable[[], None] = lambda: time.sleep(_PAUSE_SECONDS)
    ) -> tuple[UncleanCard, ...]:
        """Wait until all are clean; answers those that are not after ``seconds_max``."""
        give_up = time.monotonic() + seconds_max
        while (dirty := self.unclean()) and time.monotonic() < give_up:
            pause()
        return dirty

    def busiest(self) -> tuple[int, float] | None:
        """Index and utilisation (0 to 1) of the card that works hardest; ``None``: none is told to work."""
        rows = [
            (used.utilisation, self.uuids[uuid])
            for uuid, used in self.usage().items()
            if used.utilisation is not None and used.utilisation > 0
        ]
        return (max(rows)[1], max(rows)[0]) if rows else None


def granted_cards(spec: LaunchSpec, card_file: str, source: CardSource | None = None) -> GrantedCards:
    """``card_file`` is where the engine's cards are read from, ``""``: real ones by NVML, unless a ``source``
    is at hand. Declared cards that no file tells of are not there, and always clean."""
    uuids = {card.uuid: card.index for card in spec.cards_of(spec.node)}
    if source is not None:
        return GrantedCards(spec.node, uuids, source)
    if card_file:
        source = FileCards(Path(card_file))
    elif any(not card.declared for card in spec.cards_of(spec.node)):
        found = open_nvml()
        source = None if isinstance(found, NoDriver) else found
    return GrantedCards(spec.node, uuids, source)


def fault_of(used: CardUsage) -> str:
    """Why a card that nobody should be using must not be lent; ``""``: nothing known against it."""
    if used.processes:
        return f"process {used.processes[0]} is still on it"
    if used.memory_used_bytes is not None:
        kept = MEMORY_BYTES_KEPT + used.memory_bytes * MEMORY_SHARE_KEPT
        if used.memory_used_bytes > kept:
            return f"{used.memory_used_bytes / 1024**3:.1f} GiB of its memory are held by nobody"
    return ""
