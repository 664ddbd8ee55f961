"""The objects of the API as typed dictionaries: what a client may count on, field by field.

The server may add fields and enum values at any time; readers pass over what they do not know. Money comes in
pairs: ``x_micro`` (integer micro-yuan) and ``x`` (decimal string of yuan). Times are RFC 3339 in UTC.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class Account(TypedDict):
    id: str
    email: str
    operator: bool
    created_at: str


class Team(TypedDict):
    id: str
    name: str
    role: NotRequired[str]
    personal: NotRequired[bool]
    members: NotRequired[list[dict[str, Any]]]


class Me(TypedDict):
    account: Account
    team: Team
    teams: list[Team]
    scope: str


class Token(TypedDict):
    """``token`` is the secret, in the answer to its creation only."""

    id: str
    name: str
    scope: str
    token: NotRequired[str]
    created_at: NotRequired[str]
    expires_at: NotRequired[str | None]
    last_used_at: NotRequired[str | None]


class PriceLine(TypedDict):
    tariff: str
    rate_micro_per_card_hour: str
    rate: str


class Offer(TypedDict):
    pool: str
    zone: str
    card: str
    fabric: str
    cards_total: int
    cards_free: int
    largest_node_free: int
    declared: bool
    fabric_measured: NotRequired[list[dict[str, Any]]]
    prices: list[PriceLine]
    next_price_change_at: str | None
    card_share: NotRequired[dict[str, int | None]]


class Job(TypedDict):
    """``number`` is ``123`` or ``123_4``; ``reason`` is typed, ``message`` is for people."""

    id: str
    number: str
    name: str
    team: str
    account: str
    state: str
    reason: str | None
    message: str | None
    tariff: str
    card: str | None
    cards: int
    nodes: int
    fabric: str | None
    time_limit_seconds: int
    submitted_at: str
    started_at: str | None
    ended_at: str | None
    exit_code: int | None
    exit_signal: int | None
    attempts: int
    restart_count: int
    node_list: Any
    cost_label: str | None
    comment: str | None
    partition: str | None
    submit_dir: str | None
    array_index: int | None
    array_number: int | None
    own_number: int
    dependency_text: str | None
    begin_at: str | None
    cost_so_far_micro: int
    cost_so_far: str
    lost_work_seconds: int
    checkpoint: dict[str, Any] | None
    progress: str | None
    price: dict[str, Any] | None
    cards_declared: NotRequired[bool]
    resume_price: NotRequired[dict[str, Any] | None]
    allocations: NotRequired[list[Allocation]]
    tasks: NotRequired[Any]


class Allocation(TypedDict):
    id: str
    attempt: int
    state: str
    cause: str | None
    message: str | None
    tariff: str
    nodes: Any
    cards: list[dict[str, Any]]
    placed_at: str | None
    ready_at: str | None
    ended_at: str | None
    notice: dict[str, Any] | None
    exit_code: int | None
    exit_signal: int | None
    resume_from: str | None
    charged_micro: int
    charged: str
    lost_work_seconds: int


class Submitted(TypedDict):
    job: Job
    jobs_count: int
    notices: list[str]
    price: dict[str, Any] | None


class Lint(TypedDict):
    """What a submit would do: nothing was created. ``price`` ``None``: it would be refused."""

    effective: list[dict[str, Any]]
    ignored: list[dict[str, Any]]
    refused: list[dict[str, Any]]
    notices: list[str]
    price: dict[str, Any] | None
    start_estimate: NotRequired[dict[str, str] | None]


class Why(TypedDict):
    state: str
    reason: str
    message: str
    facts: list[Any]
    what_helps: list[str]
    earliest_start_at: str | None
    start_estimate: dict[str, str] | None


class Limits(TypedDict):
    """What the server takes in at most; a folder's bytes are those of its files before packing."""

    folder_bytes_max: int
    folder_entries_max: int
    folder_levels_max: int
    path_bytes_max: int
    script_bytes_max: int


class FileEntry(TypedDict):
    """``kind`` is ``file``, ``folder`` or ``link``."""

    path: str
    kind: str
    bytes: int
    modified_at: str | None


class Node(TypedDict):
    id: str
    zone: str
    fabric: str
    state: str
    drained: bool
    message: str | None
    cpus: int
    memory_bytes: int
    cards: list[dict[str, Any]]
    card_share: NotRequired[dict[str, int | None]]


class Dataset(TypedDict):
    name: str
    title: str
    source: str
    licence: str
    state: str
    files: int
    bytes: int


class Wallet(TypedDict):
    team: str
    cash_micro: int
    cash: str
    credits: list[dict[str, Any]]
    coupons: list[dict[str, Any]]
    held_micro: int
    held: str
    free_micro: int
    free: str
    burn_micro_per_hour: int
    runway_seconds: int | None
    warnings: list[str]


class Segment(TypedDict):
    start: str
    end: str
    cards: int
    tariff: str
    rate_micro_per_card_hour: str
    factors: dict[str, Any]
    amount_micro: int
    on_demand_micro: int


class Charge(TypedDict):
    id: str
    job: str
    attempt: int
    start: str
    end: str
    total_micro: int
    segments: list[Segment]


class Bill(TypedDict):
    total_micro: int
    rounding_micro: int
    lost_work_seconds: int
    on_demand_total_micro: int
    saved_micro: int
    charges: list[Charge]
    disks: NotRequired[list[dict[str, Any]]]
    open: list[dict[str, Any]]


class DiskOfInstance(TypedDict):
    """A disk at an instance; ``state`` is that of its attachment, ``None`` where it is not plugged in now."""

    name: str
    target: str
    kind: str
    read_only: bool
    state: NotRequired[str | None]
    message: NotRequired[str | None]


class Instance(TypedDict):
    """An interactive GPU host. ``ready_at`` ``None`` while it starts; ``release_at``: when a stopped one is
    given up with its disk; ``stops_at``: when it stops by itself."""

    id: str
    number: Any
    name: str
    team: str
    account: str
    state: str
    reason: str | None
    message: str | None
    image: str | None
    card: str | None
    cards: int
    fabric: str | None
    zone: str | None
    tariff: str
    no_gpu: bool
    node: str | None
    price_hour_micro: NotRequired[Any]
    price_hour: str | None
    cost_so_far_micro: NotRequired[int]
    cost_so_far: str | None
    cards_declared: NotRequired[bool]
    disks: list[DiskOfInstance]
    datasets: list[str]
    secrets: list[str]
    policy: dict[str, Any]
    idle: dict[str, Any] | None
    created_at: str
    started_at: str | None
    ready_at: str | None
    stops_at: str | None
    stopped_at: str | None
    release_at: str | None
    ssh: dict[str, Any]


class Activity(TypedDict):
    """Evidence: when a source (cards, cpu, disk, network, ssh, jupyter) last showed activity."""

    source: str
    last_at: str | None
    detail: NotRequired[str | None]


class AppLink(TypedDict):
    """``url`` opens the app until ``expires_at``."""

    url: str
    expires_at: str | None


class SshKey(TypedDict):
    id: str
    name: str
    public_key: str
    fingerprint: str
    created_at: NotRequired[str | None]
    last_used_at: NotRequired[str | None]


class Gateway(TypedDict):
    """Where people's ``ssh`` goes; ``known_hosts``: lines that trust its authority for that host."""

    host: str
    port: int
    ca_public_key: str
    known_hosts: str


class Secret(TypedDict):
    """Without its value, which never comes back."""

    name: str
    created_at: NotRequired[str | None]
    changed_at: NotRequired[str | None]


class Disk(TypedDict):
    """``used_bytes`` as last counted, ``None`` before; ``hard_quota``: it cannot hold more than ``gib``."""

    id: str
    name: str
    kind: str
    gib: int
    state: str
    message: str | None
    used_bytes: int | None
    used_files: NotRequired[int | None]
    used_at: NotRequired[str | None]
    hard_quota: NotRequired[bool]
    created_at: NotRequired[str | None]
    deleted_at: NotRequired[str | None]
    snapshot_schedule: NotRequired[str | None]
    snapshots_kept: NotRequired[int | None]
    restorable_until: NotRequired[str | None]
    growing: NotRequired[bool]
    over_quota: NotRequired[bool]
    price_month: NotRequired[str]
    attachments: NotRequired[list[dict[str, Any]]]
    instances: NotRequired[list[dict[str, Any]]]


class DiskPrices(TypedDict):
    """Yuan for a GiB over a calendar month; ``free_gib`` of a team cost nothing."""

    block_gib_month: str
    shared_gib_month: str
    free_gib: int


class Snapshot(TypedDict):
    id: str
    name: str
    state: str
    message: NotRequired[str | None]
    bytes: int | None
    gib: int
    scheduled: NotRequired[bool]
    asked_at: NotRequired[str | None]
    made_at: NotRequired[str | None]


class Sync(TypedDict):
    """``bytes_total`` and ``files_total`` ``None``: not counted; ``schedule``: it comes again and again."""

    id: str
    direction: str
    remote: str
    folder: str
    state: str
    message: str | None
    bytes_done: int
    bytes_total: int | None
    files_done: int
    files_total: int | None
    bytes_per_second: NotRequired[int | None]
    seconds_left: NotRequired[int | None]
    verify: NotRequired[bool]
    verified_at: NotRequired[str | None]
    schedule: NotRequired[str | None]
    asked_at: NotRequired[str | None]
    started_at: NotRequired[str | None]
    ended_at: NotRequired[str | None]


class Image(TypedDict):
    """``digest`` names its bytes, ``None`` until it is built; ``driver_min``: the lowest driver for it."""

    id: str
    name: str
    kind: str
    state: str
    message: str | None
    team: NotRequired[str | None]
    digest: str | None
    bytes: int | None
    contents: NotRequired[list[str]]
    recipe: NotRequired[Any]
    python: NotRequired[str | None]
    cuda: NotRequired[str | None]
    driver_min: NotRequired[str | None]
    asked_at: NotRequired[str | None]
    built_at: NotRequired[str | None]
