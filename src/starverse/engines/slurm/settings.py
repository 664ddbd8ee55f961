"""What an operator sets about the cluster, and how it is reached."""

from __future__ import annotations

import getpass
import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starverse.domain.errors import FieldFault, Invalid
from starverse.engines.slurm.combined import Combined
from starverse.engines.slurm.commands import Commands
from starverse.engines.slurm.rest import Rest
from starverse.engines.slurm.tokens import Tokens
from starverse.engines.slurm.transport import Transport


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """The section ``[slurm]``. Texts that are ``""`` are found out.

    ``partitions`` are the platform's own, empty: all. ``models`` maps gres types to our model names,
    ``unix_users`` ids of teams and accounts to the users of the nodes that their workloads run as.
    ``python`` is the interpreter with this package on the nodes. ``absent_seconds``: so long a job has to be
    missing from the queue before it counts as over without a word; ``news_seconds_max``: so old the newest
    look at the queue may be.
    """

    conf: str = ""
    commands: str = ""
    transport: str = "auto"
    rest_url: str = ""
    jwt_key: str = ""
    user: str = ""
    partitions: tuple[str, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    unix_users: Mapping[str, str] = field(default_factory=dict)
    zone: str = "slurm"
    python: str = sys.executable
    declared: bool = False
    poll_seconds: float = 1.0
    call_seconds_max: float = 10.0
    absent_seconds: float = 3.0
    news_seconds_max: float = 15.0


def connect(settings: SlurmSettings) -> Transport:
    """The transport that the settings name; ``auto``: slurmrestd where its address is set, and the commands.

    Raises :class:`Invalid` where something is missing for it.
    """
    kind = settings.transport
    if kind == "auto":
        kind = "both" if settings.rest_url else "commands"
    commands = None
    if kind in ("both", "commands"):
        commands = Commands(settings.commands, settings.conf, call_seconds_max=settings.call_seconds_max)
        if kind == "commands":
            return commands
    missing = [name for name in ("rest_url", "jwt_key") if not getattr(settings, name)]
    if missing:
        faults = [FieldFault(f"slurm.{name}", "", "set, to reach slurmrestd") for name in missing]
        raise Invalid(faults=faults)
    tokens = Tokens(Path(settings.jwt_key), _own_name(settings.user))
    rest = Rest(settings.rest_url, tokens, call_seconds_max=settings.call_seconds_max)
    return rest if commands is None else Combined(rest, commands)


def _own_name(name: str) -> str:
    """The user that slurmrestd is asked as: jobs of anybody else could not read the platform's folders."""
    if not name:
        return getpass.getuser()
    try:
        own = pwd.getpwnam(name).pw_uid == os.geteuid()
    except KeyError:
        own = False
    if not own:
        raise Invalid(faults=[FieldFault("slurm.user", name, "the Unix user that the platform runs as")])
    return name


def unix_uid_of(settings: SlurmSettings, ids: Sequence[str], unix_uid: int | None) -> int | None:
    """Whom a workload runs as: the user set for the first of ``ids`` that has one (its account's id, then its
    team's), else what the platform chose.

    Raises :class:`Invalid` where that is not safe: only root may become somebody else, nobody becomes root.
    """
    whose = next((one for one in ids if settings.unix_users.get(one)), None)
    if whose is None:
        return unix_uid
    name, place = settings.unix_users[whose], f"slurm.unix_users ({whose})"
    try:
        found = pwd.getpwnam(name).pw_uid
    except KeyError as error:
        raise Invalid(faults=[FieldFault(place, name, "a Unix user of this machine")]) from error
    if found == 0:
        raise Invalid(faults=[FieldFault(place, name, "a user other than root")])
    if os.geteuid() not in (0, found):
        raise Invalid(faults=[FieldFault(place, name, "no other user, unless the platform runs as root")])
    return found if os.geteuid() == 0 else None
