"""Settings: ``starverse.toml`` < ``STARVERSE_SECTION__KEY`` < flags; read once, frozen, unknown keys refused.

Each setting remembers where its value came from (``starverse config show --origin``). Secrets are not
settings: they come from files or the environment and are never printed.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.wrong_input import expected_of

PREFIX = "STARVERSE_"
SEPARATOR = "__"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(_Section):
    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8750, ge=0, le=65535, description="Port to listen on; 0 takes a free one")
    data: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("starverse")),
        description="Folder of everything the platform keeps",
    )
    db: str | None = Field(None, description="Database URL; none: SQLite in the data folder")
    timezone: str = Field("Asia/Shanghai", description="Zone of times that people write without one")
    trusted_proxies: str = Field(
        "", description="Proxies whose X-Forwarded-For is believed, as addresses with commas; none: nobody's"
    )
    channel: str = Field(
        "",
        description="Where launchers on other nodes reach this server by TLS, as HOST:PORT; "
        "none: launchers on this machine only",
    )
    log_level: str = Field("info", pattern="debug|info|warning|error", description="What the server logs")

    @field_validator("channel")
    @classmethod
    def _is_an_address(cls, text: str) -> str:
        host, _, port = text.rpartition(":")
        if text and (not host or not port.isdecimal() or int(port) > 65535):
            raise ValueError("HOST:PORT, by which other nodes reach this one")
        return text


class EngineSettings(_Section):
    kind: str = Field("local", pattern="local|slurm", description="Where allocations run: local or slurm")
    declare_cards: str = Field("", description="Cards to lend that are not there: rtx4090:8,a100-40g:4")
    driver: str = Field(
        "bwrap", pattern="bwrap|process", description="Sandbox of workloads: bwrap or process"
    )
    zone: str = Field("local", description="Zone of the nodes")
    fabric: str = Field("eth", pattern="ib|roce|eth", description="Fabric of this machine's nodes")
    host_network: bool = Field(True, description="Whether jobs may ask for --net host")
    network_reachable: str = Field(
        "",
        description="Private networks that workloads with --net internet may reach: 10.1.2.0/24,10.9.9.9",
    )
    unix_uid_first: int = Field(
        200_000, ge=1000, description="First Unix user of teams, when started as root"
    )
    disk_bytes_per_second: int | None = Field(None, ge=1, description="Disk I/O limit of one workload")
    disk_node_bytes_per_second: int | None = Field(
        None,
        ge=1,
        description="Disk I/O that a node can do; a workload has its cards' share of it at most",
    )
    network_bytes_per_second: int | None = Field(
        None, ge=1, description="Network limit of one workload, each way (--net internet)"
    )
    network_node_bytes_per_second: int | None = Field(
        None,
        ge=1,
        description="What a node's network carries each way; a workload has its cards' share of it at most",
    )

    @field_validator("network_reachable")
    @classmethod
    def _are_networks(cls, text: str) -> str:
        for part in text.split(","):
            if part.strip():
                ipaddress.ip_network(part.strip())
        return text


class SlurmSection(_Section):
    conf: str = Field("", description="The cluster's slurm.conf; none: where its commands find it")
    transport: str = Field(
        "auto",
        pattern="auto|rest|commands",
        description="How Slurm is reached: rest, commands, or auto: slurmrestd for submits where it is named",
    )
    commands: str = Field("", description="Folder of Slurm's commands; none: looked for")
    rest_url: str = Field("", description="Address of slurmrestd, such as http://127.0.0.1:6820")
    jwt_key: str = Field("", description="File with the key of AuthAltParameters=jwt_key, for slurmrestd")
    user: str = Field("", description="Name of the server's Unix user for slurmrestd; none: looked up")
    partitions: str = Field("", description="Partitions that are the platform's own, with commas; none: all")
    models: str = Field("", description="Card models of gres types: nvidia_a100=a100-80g,x=rtx4090")
    unix_users: str = Field(
        "", description="Unix users that workloads run as: TEAM=USER,MAIL=USER,... (teams by id or name)"
    )
    python: str = Field("", description="Python with starverse on the nodes; none: the server's own")
    cards_declared: bool = Field(False, description="Whether the cluster's cards are not really there")
    poll_seconds: float = Field(1.0, ge=0.1, description="How often the queue is looked at")
    call_seconds_max: float = Field(10.0, ge=1, description="Longest call of Slurm")
    absent_seconds: float = Field(3.0, ge=0.5, description="A job missing for so long is over")
    news_seconds_max: float = Field(15.0, ge=1, description="Oldest look at the queue that counts")


class ImageSettings(_Section):
    installer: str = Field(
        "auto", pattern="auto|uv|pip", description="What fills images: uv, pip, or auto: uv where it is there"
    )
    build_seconds_max: int = Field(3600, ge=10, description="Longest build of one image")
    gib_max: int = Field(60, ge=1, description="Largest image")
    conda_base: str = Field(
        "", description="Address below which conda's channels lie; none: where conda has them"
    )


class GatewaySettings(_Section):
    enabled: bool = Field(True, description="Whether people reach instances by SSH through this server")
    host: str = Field("", description="Address that the SSH gateway listens on; none: that of the API")
    port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the SSH gateway; 0: a free one; none: 2222, or a free one where the API's is",
    )
    name: str = Field(
        "", description="Name by which people reach the SSH gateway; none: this host's, or the address"
    )


class PolicySettings(_Section):
    grace_seconds: int = Field(120, ge=1, description="From a notice to TERM")
    kill_after_seconds: int = Field(10, ge=1, description="From TERM to KILL")
    lease_seconds: int = Field(30, ge=3, description="Silence after which a launcher's allocation is lost")
    start_timeout_seconds: int = Field(120, ge=5, description="Time for a launcher to answer after a submit")
    disk_reserve_mib: int = Field(
        1024,
        ge=0,
        description="Disk that stays free: no new starts with less, nothing is stored or copied below it",
    )
    sync_network: str = Field(
        "internet",
        pattern="internet|host",
        description="What syncs of disks reach: internet (and engine.network_reachable), or all that this "
        "host does",
    )
    folder_mib_max: int = Field(
        100, ge=1, description="Largest submit folder, as its files are before packing"
    )
    log_cap_mib: int = Field(1024, ge=1, description="Largest log of one run; the oldest part goes")
    queued_jobs_max: int = Field(20_000, ge=1, description="Jobs of one team that may wait at once")
    workspace_keep_days: int = Field(
        14, ge=0, description="How long a workspace stays after the end of its job"
    )
    checkpoint_interval_seconds: int = Field(1800, ge=1, description="How often the template saves, at least")
    checkpoints_kept: int = Field(3, ge=1, description="Newest checkpoints kept of a job")
    registration_open: bool = Field(True, description="Whether anyone may register")
    mock_gateway: bool = Field(True, description="Whether the mock payment gateway is on")
    instance_keep_days: int = Field(
        15, ge=1, description="How long a stopped instance keeps its own files before it is released"
    )
    instance_idle_seconds: int = Field(
        3600, ge=60, description="Idleness after which an instance stops that asks for the default"
    )
    no_gpu_cpus: float = Field(
        0.5, gt=0, le=64, description="CPUs of an instance that is started without cards"
    )
    no_gpu_memory_mib: int = Field(
        2048, ge=64, description="Memory of an instance that is started without cards"
    )


class Config(_Section):
    """Everything an operator can set, by section."""

    server: ServerSettings = Field(default_factory=ServerSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    slurm: SlurmSection = Field(default_factory=SlurmSection)
    images: ImageSettings = Field(default_factory=ImageSettings)
    gateway: GatewaySettings = Field(default_factory=GatewaySettings)
    policy: PolicySettings = Field(default_factory=PolicySettings)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings and where each of them came from (``section.key`` -> ``default``, a file, a variable)."""

    config: Config
    origins: Mapping[str, str]


def default_file() -> Path:
    """``starverse.toml`` in the XDG configuration folder."""
    return Path(platformdirs.user_config_dir("starverse")) / "starverse.toml"


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """Read all three sources; raises ``Invalid`` naming every unknown key and wrong value with its origin.

    ``file`` ``None``: the default file, if it is there. ``flags`` maps ``section.key`` to a value; ``None``
    values are flags that were not given.
    """
    values: dict[str, dict[str, Any]] = {}
    origins: dict[str, str] = {}
    faults: list[FieldFault] = []
    for origin, key, value in [*_from_file(file), *_from_environment(environment), *_from_flags(flags)]:
        section, _, name = key.partition(".")
        model = Config.model_fields.get(section)
        known = model.annotation.model_fields if model is not None else {}  # type: ignore[union-attr]
        if name not in known:
            choices = ", ".join(f"{s}.{n}" for s in Config.model_fields for n in _names(s))
            faults.append(FieldFault(f"{key} ({origin})", str(value), f"one of {choices}"))
            continue
        values.setdefault(section, {})[name] = value
        origins[key] = origin
    config = None
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        for wrong in error.errors():
            key = ".".join(str(part) for part in wrong["loc"])
            faults.append(
                FieldFault(f"{key} ({origins.get(key, 'default')})", str(wrong["input"]), _expected(wrong))
            )
    if faults or config is None:
        raise Invalid(faults=faults)
    full = {f"{s}.{n}": origins.get(f"{s}.{n}", "default") for s in Config.model_fields for n in _names(s)}
    return Loaded(config, full)


def _expected(wrong: Mapping[str, Any]) -> str:
    """What would be right; the patterns of settings are lists of words."""
    if wrong["type"] == "string_pattern_mismatch":
        return f"one of {wrong['ctx']['pattern'].replace('|', ', ')}"
    return expected_of(wrong)


def _names(section: str) -> list[str]:
    return list(Config.model_fields[section].annotation.model_fields)  # type: ignore[union-attr]


def _from_file(file: Path | None) -> list[tuple[str, str, Any]]:
    path = file or default_file()
    if not path.is_file():
        if file is not None:
            raise Invalid(faults=[FieldFault("--config", str(file), "a file that exists")])
        return []
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(faults=[FieldFault(str(path), str(error), "valid TOML")]) from error
    found = []
    for section, content in document.items():
        if isinstance(content, dict):
            found += [(str(path), f"{section}.{name}", value) for name, value in content.items()]
        else:
            found.append((str(path), section, content))
    return found


def _from_environment(environment: Mapping[str, str] | None) -> list[tuple[str, str, Any]]:
    """Only names with a double underscore are settings: STARVERSE_TOKEN and the like are not."""
    found = []
    for name, value in sorted((os.environ if environment is None else environment).items()):
        if name.startswith(PREFIX) and SEPARATOR in name:
            section, _, key = name.removeprefix(PREFIX).partition(SEPARATOR)
            found.append((name, f"{section.lower()}.{key.lower()}", value))
    return found


def _from_flags(flags: Mapping[str, Any] | None) -> list[tuple[str, str, Any]]:
    return [("command line", key, value) for key, value in (flags or {}).items() if value is not None]
