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


class Why(TypedDict):
    state: str
    reason: str
    message: str
    facts: list[Any]
    what_helps: list[str]
    earliest_start_at: str | None


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
    open: list[dict[str, Any]]
