"""The launcher's end of its channel: it dials out, tells its whole state, hears the whole desired state.

Newline-delimited JSON, on a Unix socket or by TLS. The first line is :func:`hello_line`, each further one a
``LauncherState``; each line back is a ``Desired``. Nothing blocks and nothing is owed: what could not be sent
is overtaken by the next state, and a server that is dead is dialled again for ever, any other one in turn.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

from starverse.domain.workloads.launch import PROTOCOL_VERSION, Desired, LauncherState, LaunchSpec
from starverse.node.link import Link
from starverse.node.streams import StreamWish


def hello_line(spec: LaunchSpec, kind: str = "launcher", stream: str = "") -> bytes:
    """What a launcher says first. ``kind``: ``launcher``, ``api`` for bytes to the platform's API, or
    ``stream`` for the one with this id."""
    hello = {
        "version": PROTOCOL_VERSION,
        "allocation_id": spec.allocation_id,
        "token": spec.channel_token,
        "kind": kind,
        "stream": stream,
    }
    return json.dumps(hello).encode() + b"\n"


class ChannelClient:
    """One connection at a time; ``heard`` is the newest desired state, ``None`` before the first.

    ``wishes`` are the streams that were asked for, to be taken out by whoever opens them.
    """

    def __init__(self, spec: LaunchSpec) -> None:
        self._link = Link(spec.channel, spec.channel_ca, hello_line(spec))
        self.heard: Desired | None = None
        self.wishes: list[StreamWish] = []

    def wait_on(self) -> tuple[int, int] | None:
        """What to wait on with ``poll``: number and events; ``None`` while not connected."""
        return self._link.wait_on()

    def tell(self, state: LauncherState, now: float) -> None:
        """Send the state; connects first where that is due. ``now``: a clock that does not jump."""
        self._link.say(state.to_json().encode() + b"\n", now)

    def listen(self, now: float) -> bool:
        """Read what has come; answers whether a new desired state is among it."""
        new = False
        for line in self._link.hear(now):
            with contextlib.suppress(ValueError, TypeError):  # not for us to judge: the next one is whole
                wish = StreamWish.from_line(line)
                if wish is not None:
                    self.wishes.append(replace(wish, addresses=wish.addresses or self._link.address))
                    continue
                self.heard = Desired.from_json(line.decode())
                new = True
        return new

    def finish(self, state: LauncherState, now: float) -> None:
        """Tell the last state as well as can be in a moment, and hang up; the report file is the truth."""
        self._link.finish(state.to_json().encode() + b"\n", now)

    def close(self) -> None:
        self._link.close()
