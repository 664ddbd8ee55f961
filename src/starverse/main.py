"""The composition root: makes every part once and puts them together (``starverse up``)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import structlog
import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from starverse.app import bootstrap
from starverse.app.auth import ensure_operator
from starverse.app.gateway_keys import keep_gateway_keys
from starverse.app.maintenance.migrating import migrate_at_start
from starverse.app.maintenance.restore import require_whole
from starverse.app.platform import Platform, Settings
from starverse.app.ports import Clock, RandomIds, SystemClock, Wakeups
from starverse.app.price_books import unpriced_pools
from starverse.app.run_folder import RunFolder
from starverse.app.secret_files import read_or_make_secret
from starverse.app.servers import KnownServers, Server, require_same_data
from starverse.app.teams import ids_of_teams_and_accounts
from starverse.config import Config
from starverse.db.hints import Hints
from starverse.db.maintenance.filling import shown_url
from starverse.db.session import Database
from starverse.domain.errors import FieldFault, Invalid, Unavailable
from starverse.engines.folders import FolderEngine, OpenChannel
from starverse.engines.local import LocalEngine
from starverse.engines.local.engine import isolation_gaps
from starverse.engines.slurm import SlurmEngine, SlurmSettings
from starverse.gateway.inside import Inside
from starverse.gateway.rooms import Rooms
from starverse.gateway.serving import Gateway
from starverse.http.app import make_app
from starverse.node.cards.choosing import card_source
from starverse.node.channel_server import ChannelServer, TlsSettings
from starverse.node.disk_trees import copy_tree
from starverse.node.images.builder import ProcessBuilder
from starverse.node.rclone.copier import RcloneCopier
from starverse.reconcilers import (
    attachments,
    checkpoint,
    clone,
    disabled,
    disk_copies,
    disk_meter,
    disks,
    fabric,
    history,
    idle,
    images,
    inventory,
    launch,
    meter,
    observe,
    reclaim,
    release,
    retention,
    schedule,
    sweep,
    syncs,
    topup,
)
from starverse.reconcilers.driver import Driver, Reconciler
from starverse.reconcilers.leadership import LEASE_SECONDS, Leadership

MIB = 1024**2
SSH_PORT = 2222
BACKLOG = 2048
"""Listening begins before the address is announced: who connects at once waits and is not refused."""

log = structlog.get_logger(__name__)


def make_reconcilers(platform: Platform) -> list[Reconciler]:
    """Every loop of the control plane."""
    parts = (
        inventory,
        schedule,
        launch,
        observe,
        reclaim,
        meter,
        checkpoint,
        sweep,
        topup,
        retention,
        idle,
        release,
        clone,
        syncs,
        fabric,
        images,
        disks,
        disk_copies,
        attachments,
        disk_meter,
        disabled,
        history,
    )
    return [part.make(platform) for part in parts]


def make_engine(config: Config, data: Path, open_channel: OpenChannel) -> FolderEngine:
    """The engine that the settings name. Raises ``Invalid`` where it lacks something."""
    driver = config.engine.driver
    if config.engine.kind == "slurm":
        settings = slurm_settings(config)
        return SlurmEngine(data, settings, open_channel=open_channel, cannot=isolation_gaps(driver))
    cards = card_source(config.engine.declare_cards, zone=config.engine.zone, fabric=config.engine.fabric)
    return LocalEngine(data, cards, driver=driver, open_channel=open_channel)


def slurm_settings(config: Config) -> SlurmSettings:
    """The engine's view of the section ``[slurm]``."""
    slurm = config.slurm
    return SlurmSettings(
        conf=slurm.conf,
        commands=slurm.commands,
        transport=slurm.transport,
        rest_url=slurm.rest_url,
        jwt_key=slurm.jwt_key,
        user=slurm.user,
        partitions=tuple(name.strip() for name in slurm.partitions.split(",") if name.strip()),
        models=_pairs("slurm.models", slurm.models),
        unix_users=_pairs("slurm.unix_users", slurm.unix_users),
        zone=config.engine.zone,
        python=slurm.python or sys.executable,
        declared=slurm.cards_declared,
        poll_seconds=slurm.poll_seconds,
        call_seconds_max=slurm.call_seconds_max,
        absent_seconds=slurm.absent_seconds,
        news_seconds_max=slurm.news_seconds_max,
    )


def _pairs(name: str, text: str) -> dict[str, str]:
    """``A=B,C=D``; raises ``Invalid`` on anything else."""
    found = {}
    for entry in (part.strip() for part in text.split(",") if part.strip()):
        left, equals, right = entry.partition("=")
        if not (left and equals and right):
            raise Invalid(faults=[FieldFault(name, entry, "NAME=NAME, with commas between them")])
        found[left.strip()] = right.strip()
    return found


@dataclass(frozen=True, slots=True)
class Address:
    """Where a running server listens, and on which data folder; ``ssh`` is the gateway's, ``""``: there is
    none; ``unpriced``: pools that nobody can rent."""

    url: str
    data: Path
    ssh: str = ""
    unpriced: tuple[str, ...] = ()


def settings_of(config: Config) -> Settings:
    """The use cases' view of the configuration."""
    policy, engine = config.policy, config.engine
    return Settings(
        data=config.server.data,
        grace_seconds=policy.grace_seconds,
        kill_after_seconds=policy.kill_after_seconds,
        driver=engine.driver,
        host_network_allowed=engine.host_network,
        disk_reserve_bytes=policy.disk_reserve_mib * MIB,
        folder_bytes_max=policy.folder_mib_max * MIB,
        log_cap_bytes=policy.log_cap_mib * MIB,
        queued_jobs_max=policy.queued_jobs_max,
        workspace_keep_days=policy.workspace_keep_days,
        checkpoint_interval_seconds=policy.checkpoint_interval_seconds,
        checkpoints_kept=policy.checkpoints_kept,
        lease_seconds=policy.lease_seconds,
        start_timeout_seconds=policy.start_timeout_seconds,
        disk_bytes_per_second=engine.disk_bytes_per_second,
        disk_node_bytes_per_second=engine.disk_node_bytes_per_second,
        network_bytes_per_second=engine.network_bytes_per_second,
        network_node_bytes_per_second=engine.network_node_bytes_per_second,
        network_reachable=tuple(part.strip() for part in engine.network_reachable.split(",") if part.strip()),
        unix_uid_first=engine.unix_uid_first,
        drops_to_team_uid=os.geteuid() == 0,
        registration_open=policy.registration_open,
        mock_gateway=policy.mock_gateway,
        instance_keep_days=policy.instance_keep_days,
        instance_idle_seconds=policy.instance_idle_seconds,
        no_gpu_cpus=policy.no_gpu_cpus,
        no_gpu_memory_bytes=policy.no_gpu_memory_mib * MIB,
        timezone=config.server.timezone,
        image_installer=config.images.installer,
        image_build_seconds_max=config.images.build_seconds_max,
        image_bytes_max=config.images.gib_max * 1024 * MIB,
        conda_base=config.images.conda_base,
    )


def serve(config: Config, announce: Callable[[Address], None], clock: Clock | None = None) -> None:
    """Run the control plane until SIGTERM or Ctrl-C; workloads go on without it and are adopted later.

    ``clock`` ``None``: the machine's.

    Raises ``Conflict`` when another server has the data folder or the database, ``Invalid`` when the port is
    taken.
    """
    data = _prepare_folder(config.server.data)
    _configure_logging(config.server.log_level)
    signal.signal(signal.SIGTERM, _end)
    with ExitStack() as stack:
        url = config.server.db or f"sqlite:///{data / 'starverse.db'}"
        shown_url(url, "server.db")
        database = Database(url)
        stack.callback(database.close)
        ids, wakeups = RandomIds(), Wakeups()
        run = stack.enter_context(RunFolder(data, server_id := ids.uuid7(), alone=not database.shared))
        require_whole(data)
        _migrate(database)
        stack.enter_context(database.hold(alone=False))
        sockets = [listen_tcp(config.server.host, config.server.port)]
        address = _address(config, data, sockets[0])
        ssh = _listen_ssh(stack, config) if config.gateway.enabled else None
        tls = _tls(config, data, run.api_socket)
        me = Server(
            server_id,
            address.url,
            channel_address=tls.advertised if tls else "",
            data_id=read_or_make_secret(data / "data-id"),
        )
        known = KnownServers(me)
        engine = make_engine(config, data, lambda answers: ChannelServer(run.channel_socket, answers, tls))
        engine.keep_free(config.policy.disk_reserve_mib * MIB)
        clock = clock or SystemClock()
        builder = ProcessBuilder(data / "images")
        stack.callback(builder.close)
        platform = Platform(
            database,
            engine,
            clock,
            ids,
            wakeups,
            replace(settings_of(config), **_ssh_address(config, ssh)),
            servers=lambda: known.living,
            channels=known.channels,
            channel_ca=tls.authority() if tls else "",
            images=builder,
            copy_tree=copy_tree,
            copier=RcloneCopier(
                config.policy.disk_reserve_mib * MIB,
                network=config.policy.sync_network,
                reachable=settings_of(config).network_reachable,
            ),
        )
        _prepare_database(platform, known.me)
        if isinstance(engine, SlurmEngine):
            _name_unix_users(platform, engine)
        engine.on_news(lambda: wakeups.wake("observe"))
        _start_engine(engine, config)
        stack.callback(engine.close)
        driver = _make_driver(stack, platform, known, engine)
        driver.run_once("inventory")
        sockets.append(_listen_unix(run.api_socket))
        driver.start()
        stack.callback(driver.stop)
        inside = _open_inside(stack, platform, engine, ssh)
        run.announce(address.url)
        announce(replace(address, ssh=_shown_ssh(platform), unpriced=unpriced_pools(platform)))
        app = make_app(platform, reconciler_status=driver.statuses, inside=inside)
        _answer(http_settings(app, config.server.trusted_proxies), sockets, inside)


def _answer(settings: uvicorn.Config, sockets: list[socket.socket], rooms: Rooms) -> None:
    """Answer people and launchers until the end, on the loop that the settings name."""
    with asyncio.Runner(loop_factory=settings.get_loop_factory()) as runner:
        runner.run(run_http(settings, sockets, rooms))


def _tls(config: Config, data: Path, api_socket: Path) -> TlsSettings | None:
    """How launchers on other nodes reach this server; ``None``: not at all."""
    if not config.server.channel:
        return None
    return TlsSettings(config.server.channel, data / "tls", api_socket)


def _start_engine(engine: FolderEngine, config: Config) -> None:
    """Raises ``Invalid`` where the address of its channel cannot be had."""
    try:
        engine.start()
    except OSError as error:
        if not config.server.channel:
            raise
        expected = f"an address of this machine that is free ({error.strerror})"
        raise Invalid(faults=[FieldFault("server.channel", config.server.channel, expected)]) from error


def _migrate(database: Database) -> None:
    plan = migrate_at_start(database)
    if plan.present is not None and plan.steps:
        log.warning("database migrated", **{"from": plan.present}, to=plan.newest)


def _prepare_database(platform: Platform, me: Server) -> None:
    """What every installation needs, the operator: one server after another."""
    with platform.database.one_at_a_time("start"):
        require_same_data(platform.database, me, LEASE_SECONDS)
        bootstrap.prepare(platform)
        ensure_operator(platform)


def _name_unix_users(platform: Platform, engine: SlurmEngine) -> None:
    """Raises ``Invalid`` where ``slurm.unix_users`` names nobody: another user would be taken."""
    users = engine.unix_users
    ids = ids_of_teams_and_accounts(platform, users, "slurm.unix_users")
    engine.unix_users = {ids[team]: user for team, user in users.items()}


def _make_driver(stack: ExitStack, platform: Platform, known: KnownServers, engine: FolderEngine) -> Driver:
    """The driver of every loop under its lease, and the wake-ups from and to other servers."""
    wakeups, database = platform.wakeups, platform.database
    reconcilers = make_reconcilers(platform)
    leadership = Leadership(database, known, [r.name for r in reconcilers], wakeups)
    driver = Driver(reconcilers, platform.clock, wakeups, leadership)
    if database.shared:

        def hear(word: str) -> None:
            if not heard(word):
                wakeups.wake_here(word)

        hints = Hints(database, known.me.id, hear)
        heard = engine.join_servers(hints.send)
        wakeups.relay = hints.send
        hints.start()
        stack.callback(hints.close)
    leadership.beat()
    leadership.start(driver.statuses)
    stack.callback(leadership.stop)
    return driver


def _listen_ssh(stack: ExitStack, config: Config) -> socket.socket:
    """The socket of the SSH gateway; raises ``Invalid`` where its address is taken."""
    gateway, server = config.gateway, config.server
    port = gateway.port
    if port is None:
        port = SSH_PORT if server.port else 0
    return stack.enter_context(listen_tcp(gateway.host or server.host, port, "gateway.port"))


def _ssh_address(config: Config, listener: socket.socket | None) -> dict[str, Any]:
    """The settings that say where people reach the gateway."""
    if listener is None:
        return {"ssh_port": 0}
    host = config.gateway.host or config.server.host
    everywhere = host in ("0.0.0.0", "::")
    name = config.gateway.name or (socket.gethostname() if everywhere else host)
    return {"ssh_host": name, "ssh_port": listener.getsockname()[1]}


def _shown_ssh(platform: Platform) -> str:
    settings = platform.settings
    return f"{settings.ssh_host}:{settings.ssh_port}" if settings.ssh_port else ""


def _open_inside(
    stack: ExitStack, platform: Platform, engine: FolderEngine, listener: socket.socket | None
) -> Rooms:
    """The ways into instances, and the SSH gateway where there is one. Raises ``Unavailable`` where its keys
    cannot be read or made."""
    try:
        keys = keep_gateway_keys(platform.paths.gateway)
    except (OSError, ValueError) as error:
        raise Unavailable(f"the gateway's keys cannot be had: {error}") from error
    inside = Inside(keys, engine.open_stream)
    stack.callback(inside.close)
    if listener is not None:
        gateway = Gateway(platform, keys, inside, listener)
        gateway.start()
        stack.callback(gateway.close)
    return Rooms(inside)


def _end(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM, which uvicorn raises once more after its last request: all is put away on the way out."""
    raise SystemExit(0)


async def run_http(settings: uvicorn.Config, sockets: list[socket.socket], rooms: Rooms) -> None:
    """Serve until a signal; then hang up inside instances as well."""
    try:
        await uvicorn.Server(settings).serve(sockets=sockets)
    finally:
        await rooms.close()


class RefusedSockets(WebSocketsSansIOProtocol):
    """A whole answer of HTTP instead of a WebSocket is a handshake too: uvicorn logs an error for each."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True


def http_settings(app: object, trusted_proxies: str) -> uvicorn.Config:
    """How HTTP is served. Whom ``X-Forwarded-For`` names is believed from the trusted proxies only."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        ws=RefusedSockets,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=3,
        timeout_keep_alive=30,
        lifespan="on",
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=trusted_proxies,
    )


def _prepare_folder(data: Path) -> Path:
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = data / ".writable"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        fault = FieldFault("server.data", str(data), f"a folder this user can write ({error.strerror})")
        raise Invalid(faults=[fault]) from error
    return data.resolve()


def listen_tcp(host: str, port: int, setting: str = "--port") -> socket.socket:
    """Raises ``Invalid`` where the address is taken.

    A socket that says TCP is one whose connections asyncio has send at once: the second half of an answer
    does not wait for the far end's delayed word that it has the first.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        fault = FieldFault(setting, f"{host}:{port}", f"an address that is free ({error.strerror})")
        variable = f"STARVERSE_{setting.upper().replace('.', '__')}"
        way = f"`{setting} 0`" if setting.startswith("-") else f"`{setting} = 0` (or {variable}=0)"
        hint = f"Another program has it, maybe another server here: {way} takes any that is free."
        raise Invalid(faults=[fault], hint=hint) from error
    return listener


def _listen_unix(path: Path) -> socket.socket:
    """The API for launchers on this machine; only the platform's own user reaches it."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"cannot listen on {path}: {error}", hint="use a --data folder with a shorter path"
        ) from error
    path.chmod(0o600)
    listener.listen(BACKLOG)
    return listener


def _address(config: Config, data: Path, listener: socket.socket) -> Address:
    host, port = config.server.host, listener.getsockname()[1]
    return Address(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", data)


def _configure_logging(level: str) -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=os.fdopen(os.dup(2), "w", buffering=1)),
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
