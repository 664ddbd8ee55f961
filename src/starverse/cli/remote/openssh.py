"""How the system's ssh and scp are called for an instance: pure, so that it can be tested word by word.

The gateway is one host for all instances; the user name says which one is meant. Its host key is signed by
the platform's authority, which a file of known hosts of our own trusts, so that nobody is asked to believe a
fingerprint and no line of the user's own files counts.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starverse.client.shapes import Gateway, Instance, SshKey

ALIVE_SECONDS = 30
"""How often a silent connection is asked whether it is there, so that no address translation forgets it."""


EXIT_AS_SHELLS_DO = """trap : INT QUIT; "$@"; exit $?"""
"""What runs a program at the other end, so that one killed by signal N exits 128+N, as in every shell: ssh
itself has 255 for that, which is also its own failure."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to: ``user`` names the instance. ``identities``: key files to try first."""

    host: str
    port: int
    user: str
    known_hosts: Path
    identities: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Forwards:
    """What ``ssh`` is given beside the target, as typed."""

    local: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    terminal: bool = False
    no_command: bool = False
    verbose: bool = False

    def words(self) -> list[str]:
        words = [word for value in self.local for word in ("-L", value)]
        words += [word for value in self.remote for word in ("-R", value)]
        words += [word for value in self.dynamic for word in ("-D", value)]
        words += [word for value in self.options for word in ("-o", value)]
        flags = ((self.terminal, "-t"), (self.no_command, "-N"), (self.verbose, "-v"))
        return words + [flag for given, flag in flags if given]


def target_of(one: Instance, gateway: Gateway, known_hosts: Path, identities: Sequence[Path] = ()) -> Target:
    """The instance's own words where it has them, else the gateway's."""
    told = one.get("ssh") or {}
    return Target(
        host=str(told.get("host") or gateway["host"]),
        port=int(told.get("port") or gateway["port"]),
        user=str(told.get("user") or one["name"]),
        known_hosts=known_hosts,
        identities=tuple(identities),
    )


def common_options(known_hosts: Path) -> list[tuple[str, str]]:
    """What every connection has, in the words of ``ssh_config(5)``."""
    return [
        ("UserKnownHostsFile", quoted(str(known_hosts))),
        ("GlobalKnownHostsFile", "/dev/null"),
        ("StrictHostKeyChecking", "yes"),
        ("UpdateHostKeys", "no"),
        ("ForwardAgent", "no"),
        ("ForwardX11", "no"),
        ("ServerAliveInterval", str(ALIVE_SECONDS)),
    ]


def ssh_argv(target: Target, command: Sequence[str] = (), forwards: Forwards | None = None) -> list[str]:
    """``ssh`` as it is run. The words of ``command`` are joined by spaces at the other end, as ssh does."""
    words = ["ssh", *_option_words(target), "-p", str(target.port), *(forwards or Forwards()).words()]
    return [*words, "-l", target.user, "--", target.host, *command]


def exec_argv(target: Target, command: Sequence[str], *, terminal: bool = False) -> list[str]:
    """``ssh`` that runs these very words: each reaches the program as it was typed here. The exit code is the
    program's, 128+N where signal N killed it."""
    import shlex

    there = shlex.join(["sh", "-c", EXIT_AS_SHELLS_DO, "exec", *command])

    words = ["ssh", *_option_words(target), "-o", "BatchMode=yes", "-p", str(target.port)]
    return [*words, "-t" if terminal else "-T", "-l", target.user, "--", target.host, there]


def scp_argv(target: Target, source: str, destination: str, *, to_instance: bool) -> list[str]:
    """``scp``, folders too. The path at the instance is relative to ``/root`` unless it begins with ``/``."""
    words = ["scp", *_option_words(target), "-o", "BatchMode=yes", "-P", str(target.port), "-r", "--"]
    host = f"[{target.host}]" if ":" in target.host else target.host
    there = f"{target.user}@{host}:"
    return [*words, source, there + destination] if to_instance else [*words, there + source, destination]


def quoted(text: str) -> str:
    """A file name as ``ssh_config(5)`` takes it: spaces kept, ``%`` standing for itself."""
    doubled = text.replace("%", "%%")
    return f'"{doubled}"' if any(character.isspace() for character in doubled) else doubled


def identities_for(folder: Path, registered: Sequence[SshKey]) -> list[Path]:
    """Key files of ``folder`` (``~/.ssh``) whose public half is registered; where the private one is not
    beside it, the public one, by which ssh finds it in the agent."""
    wanted = {key_body(key["public_key"]) for key in registered}
    found = [path for path in public_keys(folder) if key_body(read_key(path)) in wanted]
    return [private if (private := path.with_suffix("")).exists() else path for path in found]


def public_keys(folder: Path) -> list[Path]:
    """The ``*.pub`` files of a folder that hold a public key; certificates are none."""
    if not folder.is_dir():
        return []
    return [
        path
        for path in sorted(folder.glob("*.pub"))
        if not path.name.endswith("-cert.pub") and path.is_file() and key_body(read_key(path))
    ]


def read_key(path: Path) -> str:
    """The file's first line that says something, ``""`` where it cannot be read."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in lines if line.strip() and not line.startswith("#")), "")


def key_body(line: str) -> str:
    """Kind and key without the comment; ``""`` where the line is no public key."""
    kind, _, rest = line.strip().partition(" ")
    body = rest.strip().partition(" ")[0]
    known = kind.startswith(("ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"))
    return f"{kind} {body}" if known and body.startswith("AAAA") else ""


def known_hosts_file(folder: Path, api: str) -> Path:
    """Where the lines for one API's gateway are kept, below the configuration folder."""
    return folder / f"known_hosts-{hashlib.sha256(api.encode()).hexdigest()[:12]}"


def write_if_changed(path: Path, text: str) -> bool:
    """Whether a file for its owner alone had to be written, because it did not hold this text."""
    data = text.encode("utf-8", "surrogateescape")
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_bytes(path, data, mode=0o600)
    return True


def write_bytes(path: Path, data: bytes, *, mode: int) -> None:
    """Write aside, flush, rename: whoever reads meanwhile, or after a crash, sees the old or the new."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _option_words(target: Target) -> list[str]:
    options = common_options(target.known_hosts)
    options += [("IdentityFile", quoted(str(path))) for path in target.identities]
    return [word for name, value in options for word in ("-o", f"{name}={value}")]
