"""What a launcher's word about a plug means for its attachment."""

from __future__ import annotations

from starverse.domain.workloads.states import AttachmentState

ATTACH_SECONDS_MAX = 60
"""A running launcher that has not said within so long that it has a disk is asked no more."""
DETACH_SECONDS_MAX = 30
"""A launcher takes ten seconds at most to take a disk out or to say that it cannot; the rest is the way."""

_A = AttachmentState

_FOLLOWS = {
    (_A.ATTACHING, "attached"): _A.ATTACHED,
    (_A.ATTACHING, "refused"): _A.REFUSED,
    (_A.DETACHING, "detached"): _A.DETACHED,
    (_A.DETACHING, "refused"): _A.DETACHED,
    (_A.DETACHING, "stuck"): _A.STUCK,
    (_A.STUCK, "detached"): _A.DETACHED,
}


def state_after(state: AttachmentState, reported: str) -> AttachmentState | None:
    """The next state of an attachment, by what its launcher reports of the plug; ``None``: it stays.

    What is late, or no word of ours, changes nothing: each attachment has a plug of its own, so that no
    report about an earlier one can be meant.
    """
    return _FOLLOWS.get((state, reported))
