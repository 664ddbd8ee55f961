"""Shapes of instances."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from starverse.app.idempotency import Once
from starverse.app.instances.changing import InstanceChange
from starverse.app.instances.launching import SECONDS_MAX, DiskWish, LaunchRequest
from starverse.app.instances.starting import ResizeRequest, StartRequest
from starverse.app.instances.views import InstanceView
from starverse.http.shapes import Amount, In, InstantText, Out

Name = Annotated[str, Field(max_length=1024)]
Seconds = Annotated[int, Field(ge=0, le=SECONDS_MAX)]
IdleStopWord = Literal["unset", "off", "default"]


class DiskWishIn(In):
    """A disk of the team by name or id; ``path`` null: ``/data/NAME``."""

    name: Name
    path: Annotated[str | None, Field(max_length=1024)] = None
    read_only: bool = False


class LaunchIn(In):
    """What is to be launched. ``name`` null: one is made; ``image`` null: the host's programs alone.

    ``idle_stop``: seconds of idleness after which it stops (0: as soon as a minute shows nothing),
    ``default`` (the operator's time), ``off``, or ``unset``. ``restart``: what follows a reclaim or the loss
    of its node. ``wait``: queue for cards where none are free.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"card": "rtx4090", "cards": 2, "name": "lab", "ttl_seconds": 7200}]}
    )

    card: Annotated[str, Field(min_length=1, max_length=100)]
    cards: Annotated[int, Field(ge=1, le=64)] = 1
    name: Name | None = None
    image: Name | None = None
    fabric: Literal["ib", "roce", "eth"] | None = None
    zone: Annotated[str | None, Field(max_length=100)] = None
    tariff: Literal["on_demand", "spot"] = "on_demand"
    price_max: Amount | None = None
    cpus: Annotated[int | None, Field(ge=1, le=4096)] = None
    memory_gib: Annotated[int | None, Field(ge=1, le=65_536)] = None
    datasets: Annotated[list[Name], Field(max_length=100)] = Field(default_factory=list)
    disks: Annotated[list[DiskWishIn], Field(max_length=100)] = Field(default_factory=list)
    secrets: Annotated[list[Name], Field(max_length=200)] = Field(default_factory=list)
    ttl_seconds: Annotated[int | None, Field(ge=1, le=SECONDS_MAX)] = None
    idle_stop: IdleStopWord | Seconds = "unset"
    restart: Literal["stay", "elsewhere"] = "stay"
    wait: bool = False

    def request(self, once: Once | None) -> LaunchRequest:
        return LaunchRequest(
            card=self.card,
            cards=self.cards,
            name=self.name,
            image=self.image,
            fabric=self.fabric,
            zone=self.zone,
            tariff=self.tariff,
            price_max=self.price_max,
            cpus=self.cpus,
            memory_gib=self.memory_gib,
            datasets=tuple(self.datasets),
            disks=tuple(DiskWish(disk.name, disk.path, disk.read_only) for disk in self.disks),
            secrets=tuple(self.secrets),
            ttl_seconds=self.ttl_seconds,
            idle_stop=self.idle_stop,
            restart=self.restart,
            wait=self.wait,
            once=once,
        )


class StartIn(In):
    """``no_gpu``: the same instance without its cards; ``tariff`` null: its own."""

    no_gpu: bool = False
    tariff: Literal["on_demand", "spot"] | None = None
    wait: bool = False

    def request(self, once: Once | None) -> StartRequest:
        return StartRequest(self.no_gpu, self.tariff, self.wait, once)


class ResizeIn(In):
    """Other cards on the same files and disks; ``card`` null: of the same model."""

    cards: Annotated[int, Field(ge=1, le=64)]
    card: Annotated[str | None, Field(min_length=1, max_length=100)] = None
    wait: bool = False

    def request(self, once: Once | None) -> ResizeRequest:
        return ResizeRequest(self.cards, self.card, self.wait, once)


class NoWishIn(In):
    """Nothing to say."""


class CloneIn(In):
    """``name`` null: one is made."""

    name: Name | None = None


class ExtendIn(In):
    """How many days longer a stopped instance is kept."""

    days: Annotated[int, Field(ge=1, le=365)]


class SaveImageIn(In):
    """What the image is called."""

    name: Name


class InstanceChangeIn(In):
    """What is named is set, everything else stays; ``ttl_seconds`` null or 0 takes it away."""

    name: Name | None = None
    idle_stop: IdleStopWord | Seconds | None = None
    ttl_seconds: Seconds | None = None
    restart: Literal["stay", "elsewhere"] | None = None

    def change(self) -> InstanceChange:
        ttl = (self.ttl_seconds or 0) if "ttl_seconds" in self.model_fields_set else None
        return InstanceChange(self.name, self.idle_stop, ttl, self.restart)


class InstanceDiskOut(Out):
    """A disk at an instance; ``state`` is that of its attachment, null: it is not plugged in now."""

    name: str
    target: str
    kind: str
    read_only: bool
    state: str | None
    message: str


class PolicyOut(Out):
    """``idle_stop`` is ``unset``, ``off``, ``default``, or seconds."""

    idle_stop: str | int
    ttl_seconds: int | None
    restart: str


class IdleOut(Out):
    """``verdict`` is active, idle, warned, or unknown without fresh evidence; ``since`` the last activity;
    ``stops_at`` null: idleness does not stop it."""

    verdict: str
    since: InstantText
    stops_at: InstantText | None
    warned: bool


class SshOut(Out):
    """How people come in; port 0: there is no SSH gateway."""

    host: str
    port: int
    user: str
    command: str


class InstanceOut(Out):
    """An interactive GPU host. ``reason`` is typed, ``message`` for people. ``price_hour`` is of its present
    start or the next one, null: no price now. ``stops_at`` is the end of its time to live, ``release_at``
    when a stopped one is given up with its own files."""

    id: str
    number: int
    name: str
    team: str
    account: str
    state: str
    reason: str
    message: str
    image: str | None
    card: str
    cards: int
    fabric: str | None
    zone: str | None
    tariff: str
    no_gpu: bool
    node: str | None
    price_hour_micro: int | None = None
    price_hour: str | None
    cost_so_far_micro: int
    cost_so_far: str
    cards_declared: bool
    disks: list[InstanceDiskOut]
    datasets: list[str]
    secrets: list[str]
    policy: PolicyOut
    idle: IdleOut | None
    created_at: InstantText
    started_at: InstantText | None
    ready_at: InstantText | None
    stops_at: InstantText | None
    stopped_at: InstantText | None
    release_at: InstantText | None
    ssh: SshOut

    @classmethod
    def made(cls, view: InstanceView) -> InstanceOut:
        return cls.of(view)


class EvidenceOut(Out):
    """When a source (cards, cpu, disk, network, ssh, jupyter) last showed activity; null: never."""

    source: str
    last_at: InstantText | None
    detail: str
