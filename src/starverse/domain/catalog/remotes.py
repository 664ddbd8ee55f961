"""What of rclone's remotes a sync may name: ``NAME:path`` of a secret's configuration, or ``:backend:path``.

A remote is written into the database, shown to people and put on a command line, so that it never holds
credentials: those come from the configuration, which is a secret. Refused is what reaches the files of the
machine that runs the sync rather than a remote, and what runs programs there; the sandbox shows neither
anyway.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from dataclasses import dataclass

REMOTE_BYTES_MAX = 4096
WRAPPED_MAX = 5
"""So deep a backend may wrap another one (``crypt`` over ``chunker`` over ``s3``)."""

Sections = Mapping[str, Mapping[str, str]]

LOCAL_BACKENDS = frozenset({"alias", "cache", "combine", "local", "memory", "union"})
"""They show files of the machine that runs rclone, or keep nothing."""

WRAPPING_BACKENDS = frozenset({"chunker", "compress", "crypt", "hasher"})
"""They keep their files in another remote, which their option ``remote`` names."""

PLAIN_BACKENDS = frozenset(
    """
    acd azureblob azurefiles b2 box drive dropbox fichier filefabric filescom ftp gcs gofile
    google-cloud-storage google-photos gphotos hdfs hidrive http imagekit internetarchive jottacloud koofr
    linkbox mailru mega netstorage onedrive opendrive oracleobjectstorage oos pcloud pikpak pixeldrain
    premiumizeme protondrive putio qingstor quatrix s3 seafile sftp sharefile sia smb storj sugarsync swift
    tardigrade ulozto uptobox webdav yandex zoho
    """.split()  # noqa: SIM905 (a list of words reads better)
)

IN_PLACE_BACKENDS = frozenset({"ftp", "hdfs", "sftp", "smb", "webdav"})
"""A file that is being sent has its final name there already, whole or not; elsewhere it appears whole."""

REMOTE, ASIDE = "starverse-remote", "starverse-aside"
"""How the configuration that rclone gets calls the remote."""

_ON_THE_FLY = re.compile(r":([a-zA-Z0-9_-]+(?: [a-zA-Z0-9_-]+)*)")
_SECTION = re.compile(r"[\w.+@][\w.+@ -]*")
_OPTION = re.compile(r",([a-z0-9_]+)(?:=(\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*'|[^,:\"']*))?", re.IGNORECASE)
_CREDENTIAL = re.compile(
    r"pass|secret|token|key|auth|cred|bearer|cookie|sas_url|session|otp|client_id|account_id|^user_project",
    re.IGNORECASE,
)
_RUNS_PROGRAMS = re.compile(r"command$|^ssh$|^proxy_command", re.IGNORECASE)
_EXPECTED = "NAME:path of the configuration in the secret, or :backend,option=value:path"


@dataclass(frozen=True, slots=True)
class Remote:
    """``section`` names a part of the configuration; ``""``: ``backend`` says what it is. ``options`` are
    given with it, ``path`` is what is below."""

    section: str
    backend: str
    options: tuple[tuple[str, str], ...]
    path: str


def read_remote(text: str) -> Remote:
    """What a remote says; raises ``ValueError`` with what would be right. Repeats no value of an option."""
    if not text.isprintable() or not 1 <= len(text.encode("utf-8", "surrogatepass")) <= REMOTE_BYTES_MAX:
        raise ValueError(f"{_EXPECTED}, of at most {REMOTE_BYTES_MAX} bytes, printable")
    on_the_fly = _ON_THE_FLY.match(text)
    section = None if on_the_fly else _SECTION.match(text)
    named = on_the_fly or section
    if named is None:
        raise ValueError(_EXPECTED)
    options, at = [], named.end()
    while found := _OPTION.match(text, at):
        options.append((found[1].lower(), _unquoted(found[2] or "true")))
        at = found.end()
    if text[at : at + 1] != ":":
        raise ValueError(_EXPECTED)
    remote = Remote(
        section=section[0] if section else "",
        backend=on_the_fly[1].lower() if on_the_fly else "",
        options=tuple(options),
        path=text[at + 1 :],
    )
    _check_options(remote)
    if remote.backend:
        _check_backend(remote.backend)
        if remote.backend in WRAPPING_BACKENDS:
            raise ValueError(f"{remote.backend} as a part of the configuration in the secret")
    return remote


def without_options(text: str) -> str:
    """A remote as it may be shown where it is refused: without the values of its options."""
    return _OPTION.sub(lambda found: f",{found[1]}=...", text)


def read_config(text: str) -> dict[str, dict[str, str]]:
    """The sections of an ``rclone.conf``; raises ``ValueError`` without repeating anything of it."""
    if text.startswith(("# Encrypted", "RCLONE_ENCRYPT")):
        raise ValueError("a configuration without a password (`rclone config show` prints it)")
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), default_section="\0")
    try:
        parser.read_string(text)
    except configparser.Error:
        raise ValueError("an rclone.conf, as `rclone config show` prints it") from None
    return {name: {key.lower(): value for key, value in parser[name].items()} for name in parser.sections()}


def backend_of(remote: Remote, sections: Sections) -> str:
    """The backend that keeps the files in the end, after those that wrap it.

    Raises ``ValueError`` with what would be right, where the configuration has no such part or names what is
    refused.
    """
    if remote.backend:
        return remote.backend
    name = remote.section
    for _ in range(WRAPPED_MAX):
        section = sections.get(name)
        if section is None:
            raise ValueError(f"a part of the configuration: {', '.join(sorted(sections)) or 'it has none'}")
        backend = section.get("type", "").lower()
        _check_backend(backend)
        programs = sorted(key for key in section if _RUNS_PROGRAMS.search(key))
        if programs:
            raise ValueError(f"a configuration without {programs[0]}: nothing is run here for it")
        if section.get("env_auth", "").lower() == "true":
            raise ValueError("a configuration with its credentials, without env_auth")
        if backend not in WRAPPING_BACKENDS:
            return backend
        inner = _SECTION.match(section.get("remote", ""))
        if inner is None or section["remote"][inner.end() : inner.end() + 1] != ":":
            raise ValueError(f"a configuration whose {backend} wraps another part of it, as NAME:path")
        name = inner[0]
    raise ValueError(f"at most {WRAPPED_MAX} backends that wrap one another")


def whole_config(remote: Remote, sections: Sections) -> str:
    """The configuration for one sync: what the remote says as the part ``remote``, and the same again as
    ``aside``, so that what was sent aside can be given its name by the remote itself."""
    own = dict(sections.get(remote.section, {})) or {"type": remote.backend}
    own |= dict(remote.options)
    parts = {**sections, REMOTE: own, ASIDE: own}
    lines = []
    for name, options in parts.items():
        lines += [f"[{name}]", *(f"{key} = {value}" for key, value in options.items()), ""]
    return "\n".join(lines)


def hidden_values(sections: Sections) -> tuple[str, ...]:
    """Every value that must not be shown where rclone's own words are, the longest first."""
    values = {
        value
        for section in sections.values()
        for key, value in section.items()
        if key not in _SHOWN and len(value) >= 4
    }
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


_SHOWN = frozenset({"type", "provider", "region", "vendor", "host", "port", "endpoint", "shell_type"})
_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


def shown(message: str, hidden: tuple[str, ...]) -> str:
    """rclone's words without values of the configuration, and without who is named in a URL."""
    message = _IN_URL.sub("", message)
    for value in hidden:
        message = message.replace(value, "***")
    return "".join(letter if letter.isprintable() else " " for letter in message)


def _check_options(remote: Remote) -> None:
    for name, _ in remote.options:
        if _CREDENTIAL.search(name):
            raise ValueError(f"a remote without {name}: credentials belong into a secret (an rclone.conf)")
        if _RUNS_PROGRAMS.search(name):
            raise ValueError(f"a remote without {name}: nothing is run here for it")
        if name in ("remote", "upstreams", "type"):
            raise ValueError(f"a remote without {name}")
    address = dict(remote.options).get("url", "") or dict(remote.options).get("endpoint", "")
    if _IN_URL.search(address):
        raise ValueError("a URL without a user: credentials belong into a secret (an rclone.conf)")


def _check_backend(backend: str) -> None:
    if backend in LOCAL_BACKENDS:
        raise ValueError(f"a remote; {backend} is none")
    if backend.replace(" ", "-") not in PLAIN_BACKENDS | WRAPPING_BACKENDS:
        raise ValueError("a backend of rclone, such as s3, sftp or webdav")


def _unquoted(value: str) -> str:
    if value[:1] in ("'", '"') and value[-1:] == value[:1] and len(value) > 1:
        return value[1:-1].replace(value[0] * 2, value[0])
    return value
