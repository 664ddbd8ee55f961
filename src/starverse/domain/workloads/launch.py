"""The launch spec that an engine hands to a launcher, what the launcher reports, what it is told.

Everything is level-triggered: each message of the channel carries the whole :class:`LauncherState` one
way and the whole :class:`Desired` state the other way, so a lost or repeated message changes nothing.
Read by launchers, so this module imports the standard library only, and little of it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from starverse.domain.workloads.lines import read_fields

PROTOCOL_VERSION = 1
EXIT_FOR_REQUEUE = 99
"""The exit code that asks for a place in the queue (Slurm's ``RequeueExit``)."""
NODE_LOST = "node_lost"
"""``stopped_by`` where a launcher ended its allocation since another node of it was lost."""
NODE_DOWN = "node_down"
"""``stopped_by`` where a launcher was told to end by others than the platform: its machine goes down, or its
node was set down by its operators."""
PHASES = ("claimed", "running", "stopping", "ended")
FUNDS_END = "funds"
"""A launcher's own word for a notice since its funded seconds end: whether the wallet is empty,
``--cost-max`` is used up or the window closes is for the platform to say."""


@dataclass(frozen=True, slots=True)
class GrantedCard:
    """A card of the allocation. ``uuid`` is what is injected; ``declared`` cards are not really there.

    ``node`` ``""``: the allocation's first node.
    """

    card_id: str
    index: int
    uuid: str
    model: str
    declared: bool
    node: str = ""


@dataclass(frozen=True, slots=True)
class Mount:
    """A host folder shown inside the sandbox."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """Per node. ``disk_bytes_per_second`` (of reads, and of writes) and ``network_bytes_per_second`` (sent,
    and received, over a network of its own) ``None``: no limit."""

    cpus: float
    memory_bytes: int
    processes: int = 4096
    disk_bytes_per_second: int | None = None
    network_bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """Checkpoints for a script that makes none itself: a workspace folder, copied every interval.

    ``interval_seconds`` is the longest interval. With ``reclaims_per_second`` above 0 it is as short as the
    time of a save, measured, and that rate make it worth while.
    """

    folder: str
    interval_seconds: int
    reclaims_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class Plug:
    """A disk to be had inside at ``target``. ``id`` is its attachment's, ``source`` a host path: the folder
    of a ``shared`` disk, the file of a ``block`` disk."""

    id: str
    target: str
    kind: str
    source: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class PlugState:
    """What became of a plug: ``attached``, ``refused``, ``detached``, or ``stuck`` (it could not be taken
    out, an operator has to look); ``message`` says why."""

    id: str
    state: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Activity:
    """When a source of evidence (``cards``, ``cpu``, ``disk``, ``network``, ``ssh``, ``jupyter``) last showed
    that an instance is in use; ``detail`` says what was seen."""

    source: str
    last_at: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class UncleanCard:
    """A card that must not be lent on, and why: somebody is on it, or its memory is not free."""

    node: str
    index: int
    why: str


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """All that a launcher needs; written to ``spec.json`` (0600) in the allocation's folder.

    ``folder`` is the allocation's own folder on the host (claim, state, report, notice); ``workspace``,
    ``checkpoints`` and ``logs`` are host folders of the job. ``resume_from`` is the name of a checkpoint
    folder inside ``checkpoints``, ``""`` on a first run. ``funded_seconds`` counts from *ready*.
    ``unix_uid`` ``None``: the platform does not run as root, the launcher keeps its own user. ``channel``
    lists, separated by commas, where the launcher may dial: an absolute path is a Unix socket, ``HOST:PORT``
    is TLS by a certificate of the authority ``channel_ca`` (PEM). ``api_socket``, written alike, is what the
    shims inside reach, with ``api_token`` (scoped to the team, dead with the allocation). ``signal_name``
    ``None``: SIGUSR1 for processes that handle it.

    ``nodes`` are all nodes in the order of their node numbers, ``()`` means ``node`` alone; read
    :attr:`node_names`. ``limits`` hold on each. ``binds_cards`` false: how many ``cards`` a node has stands,
    which ones is read from what the engine bound. ``job_number`` is what people see (``12``, ``12_3``),
    ``own_number`` the integer of this job or task alone (0: told by an older platform). ``fabric`` is
    ``ib``, ``roce`` or ``eth``, ``""``: nobody said. What launchers write for the workload leaves
    ``disk_reserve_bytes`` of each disk free.

    ``account_id`` is whose workload it is (``""``: told by an older platform).
    ``interactive``: an instance, which is ready when it accepts SSH; ``gateway_keys`` are the public keys
    (OpenSSH) that may log in, the platform's own. ``home`` is the host folder shown as ``/root``, ``""``: one
    that goes with the allocation. ``plugs`` are disks to be had from the start, each of them or the start
    fails. ``secrets`` (name, value) become files below ``/run/starverse/secrets``. ``image`` is the host
    folder of an image, shown read-only at ``/opt/image``; ``""``: the host's programs alone. With ``network``
    ``internet`` nothing private is reached but the ``network_reachable`` networks. From ``sub_ids_first`` on
    lie the ids of the host that are the team's for users inside container images; 0: none.
    """

    allocation_id: str
    job_id: str
    job_number: str
    team_id: str
    attempt: int
    node: str
    cards: tuple[GrantedCard, ...]
    script: str
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    folder: str
    workspace: str
    checkpoints: str
    logs: str
    output: str
    error: str | None
    open_mode: str
    chdir: str
    mounts: tuple[Mount, ...]
    limits: Limits
    resume_from: str
    template: Template | None
    driver: str
    network: str
    unix_uid: int | None
    time_limit_seconds: int
    funded_seconds: int
    grace_seconds: int
    signal_name: str | None
    signal_seconds_before_end: int
    signal_to_batch_shell: bool
    log_cap_bytes: int
    channel: str
    channel_token: str
    api_socket: str | None
    api_token: str | None
    kill_after_seconds: int = 10
    nodes: tuple[str, ...] = ()
    binds_cards: bool = True
    channel_ca: str = ""
    fabric: str = ""
    disk_reserve_bytes: int = 1024**3
    own_number: int = 0
    account_id: str = ""
    interactive: bool = False
    gateway_keys: tuple[str, ...] = ()
    home: str = ""
    plugs: tuple[Plug, ...] = ()
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    image: str = ""
    network_reachable: tuple[str, ...] = ()
    ttl_seconds: int = 0
    sub_ids_first: int = 0
    version: int = PROTOCOL_VERSION

    @property
    def slurm_job_id(self) -> str:
        """The integer that ``SLURM_JOB_ID`` shows: of an array task its own."""
        return str(self.own_number) if self.own_number else self.job_number

    @property
    def node_names(self) -> tuple[str, ...]:
        """All nodes of the allocation; the first one is ``node``, the head's."""
        return self.nodes or (self.node,)

    def cards_of(self, node: str) -> tuple[GrantedCard, ...]:
        """The cards granted on one node."""
        return tuple(card for card in self.cards if (card.node or self.node) == node)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LaunchSpec:
        """Raises ``ValueError`` when the text is not a launch spec of this protocol version."""
        try:
            return cls._read(json.loads(text))
        except (TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"no launch spec: {error}") from error

    @classmethod
    def _read(cls, raw: dict[str, Any]) -> LaunchSpec:
        if raw.get("version") != PROTOCOL_VERSION:
            raise ValueError(
                f"launch spec version {raw.get('version')!r}; this launcher speaks {PROTOCOL_VERSION}"
            )
        raw["cards"] = tuple(GrantedCard(**card) for card in raw["cards"])
        raw["mounts"] = tuple(Mount(**mount) for mount in raw["mounts"])
        raw["environment"] = tuple((name, value) for name, value in raw["environment"])
        raw["arguments"] = tuple(raw["arguments"])
        raw["nodes"] = tuple(raw.get("nodes", ()))
        raw["gateway_keys"] = tuple(raw.get("gateway_keys", ()))
        raw["plugs"] = tuple(Plug(**plug) for plug in raw.get("plugs", ()))
        raw["secrets"] = tuple((name, value) for name, value in raw.get("secrets", ()))
        raw["network_reachable"] = tuple(raw.get("network_reachable", ()))
        raw["limits"] = Limits(**raw["limits"])
        raw["template"] = Template(**raw["template"]) if raw["template"] else None
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class LauncherState:
    """The launcher's whole report; times are seconds since the epoch (UTC), ``None``: not yet.

    ``phase`` is ``claimed``, ``running``, ``stopping`` or ``ended``. ``ready_at`` is the first exec of
    the script, ``ended_at`` the exit of its last process, taken with a clock that does not jump.
    ``alive_at`` is the last heartbeat. ``stopped_by`` says what the launcher did before the exit
    (``""``: nothing; else ``notice``, ``time_limit``, ``unfunded``, ``stop``, ``node_down``, or ``node_lost``
    where another node of the allocation was); ``failure`` is the text of a start that failed, or, with an
    exit code, why the script itself could not be executed; ``out_of_memory`` whether the memory limit killed
    it. ``bound`` are the card indices that the engine bound on each node (``None``: those of the spec).
    ``plugged`` has an entry for each plug that was ever wanted of this launcher, ``activity`` one for each
    source that has shown any.
    ``unclean`` are cards of the allocation that nobody may have as they are, told with its end.
    """

    allocation_id: str
    attempt: int
    phase: str
    boot_id: str
    alive_at: float
    ready_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    stopped_by: str = ""
    failure: str = ""
    out_of_memory: bool = False
    notice_reason: str = ""
    notice_deadline: float | None = None
    funded_until: float | None = None
    bound: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    plugged: tuple[PlugState, ...] = ()
    activity: tuple[Activity, ...] = ()
    unclean: tuple[UncleanCard, ...] = ()
    version: int = PROTOCOL_VERSION

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LauncherState:
        """Unknown keys of a newer launcher are passed over; raises ``ValueError`` on anything else wrong."""
        state = cls(**read_fields(cls, text))
        if state.phase not in PHASES:
            raise ValueError(f"no phase: {state.phase[:80]!r}")
        return state


@dataclass(frozen=True, slots=True)
class Desired:
    """What the platform wants of a launcher, whole each time.

    ``funded_until`` and ``ttl_seconds`` ``None``: as in the spec (``ttl_seconds`` 0: none). ``notice_reason``
    ``""``: no notice. ``stop``: TERM now, KILL after ``kill_after_seconds``. ``release``: the end is
    recorded, the launcher may go. ``signal_name`` is the newest signal that people asked for,
    ``signal_count`` how many were: each count is sent once, to whom ``signal_to`` names (``SignalTo``).
    ``plugs`` are all disks that are to be had now (``None``: those of the spec); one that is not among them
    is to be taken out.
    """

    funded_until: float | None = None
    notice_reason: str = ""
    notice_deadline: float | None = None
    stop: bool = False
    release: bool = False
    signal_count: int = 0
    signal_name: str = ""
    signal_to: str = ""
    plugs: tuple[Plug, ...] | None = None
    ttl_seconds: int | None = None
    version: int = PROTOCOL_VERSION

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Desired:
        """As :meth:`LauncherState.from_json`."""
        return cls(**read_fields(cls, text))
