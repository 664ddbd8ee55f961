"""Instances: interactive GPU hosts, from launch to release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast
from urllib.parse import quote

from starverse.client.errors import ClientError
from starverse.client.shapes import Activity, AppLink, Instance
from starverse.client.transport import Call, Transport, new_key
from starverse.client.waiting import Patience, wait_until

STILL_STATES = frozenset({"stopped", "released"})
"""States that an instance does not leave by itself."""
PATIENCE = Patience(pause_seconds_first=0.05, pause_seconds_max=2.0)


class Instances:
    """Instances are named by name, number or id."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def launch(self, request: dict[str, Any], *, key: str | None = None) -> Instance:
        """A new instance and its first start; ``request`` as in the API's ``POST /instances``."""
        return cast(
            Instance, self._transport.send(Call("POST", "/instances", body=request, key=key or new_key()))
        )

    def list(self, *, states: tuple[str, ...] = (), released: bool = False) -> Iterator[Instance]:
        """Of the team, newest first; ``released``: those that are gone too."""
        query = {"state": states, "all": released or None}
        for item in self._transport.pages(Call("GET", "/instances", query)):
            yield cast(Instance, item)

    def get(self, ref: str) -> Instance:
        return cast(Instance, self._transport.send(Call("GET", _instance(ref))))

    def activity(self, ref: str) -> Sequence[Activity]:
        """When each source last showed activity: what the idle verdict rests on."""
        answer = self._transport.send(Call("GET", f"{_instance(ref)}/activity"))
        return [cast(Activity, item) for item in answer.get("items", ())]

    def start(self, ref: str, request: dict[str, Any]) -> Instance:
        """``{no_gpu, tariff, wait}``; the same disk and the same cards as before, or a refusal."""
        return self._act(ref, "start", request)

    def stop(self, ref: str) -> Instance:
        return self._act(ref, "stop", {})

    def resize(self, ref: str, request: dict[str, Any]) -> Instance:
        """``{cards, card, wait}``: other cards, the same disk."""
        return self._act(ref, "resize", request)

    def clone(self, ref: str, name: str | None = None) -> Instance:
        """A stopped copy with a disk of its own."""
        return self._act(ref, "clone", {} if name is None else {"name": name})

    def extend(self, ref: str, days: int) -> Instance:
        """A later release date for a stopped instance."""
        return self._act(ref, "extend", {"days": days})

    def save_image(self, ref: str, name: str) -> dict[str, Any]:
        """The image, which is being made from the instance's state."""
        return cast(dict[str, Any], self._act(ref, "save-image", {"name": name}))

    def change(self, ref: str, changes: dict[str, Any]) -> Instance:
        """``{idle_stop, ttl_seconds, restart, name}``: what is named is set, everything else stays."""
        path = _instance(ref)
        with self._transport.stream(Call("GET", path)) as response:
            etag = response.headers.get("etag", "")
        headers = {"If-Match": etag} if etag else {}
        return cast(Instance, self._transport.send(Call("PATCH", path, body=changes, headers=headers)))

    def remove(self, ref: str) -> None:
        """Release it: its own disk is gone for good."""
        self._transport.send(Call("DELETE", _instance(ref)))

    def app_link(self, ref: str, app: str | int) -> AppLink:
        """An address that opens an app or a port of the instance for a short while."""
        return cast(
            AppLink, self._transport.send(Call("POST", f"{_instance(ref)}/app-links", body={"app": app}))
        )

    def wait(
        self,
        ref: str,
        done: Callable[[Instance], bool],
        *,
        on_change: Callable[[Instance], None] = lambda instance: None,
        on_break: Callable[[ClientError], None] = lambda error: None,
    ) -> Instance:
        """The instance once it is ``done``; asks again and again, also while the server is away for a while.

        ``on_change`` is told each new pair of state and message.
        """
        told: tuple[str, str | None] | None = None

        def tell(found: Instance) -> None:
            nonlocal told
            now = (found["state"], found.get("message"))
            if now != told:
                told = now
                on_change(found)

        look = partial(self.get, ref)
        return wait_until(self._transport, look, done, PATIENCE, on_wait=tell, on_break=on_break)

    def _act(self, ref: str, action: str, body: dict[str, Any]) -> Instance:
        call = Call("POST", f"{_instance(ref)}:{action}", body=body, key=new_key())
        return cast(Instance, self._transport.send(call))


def has_started(instance: Instance) -> bool:
    """Whether a start is over: it can be reached, or has stopped and the reason says why."""
    return is_up(instance) or has_stopped(instance)


def is_up(instance: Instance) -> bool:
    """Whether it can be reached, and is not being stopped."""
    return instance["state"] == "running" and bool(instance.get("ready_at")) and not instance.get("reason")


def has_stopped(instance: Instance) -> bool:
    return instance["state"] in STILL_STATES


def _instance(ref: str) -> str:
    return f"/instances/{quote(ref, safe='')}"
