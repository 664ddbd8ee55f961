"""Where the API is and who asks: the environment, else the credentials file.

The base URL is ``STARVERSE_API`` (``http://...``, ``https://...`` or ``unix:/path``), else the API of the
last sign-in, else :data:`DEFAULT_API`. The token is ``STARVERSE_TOKEN``, else the content of
``STARVERSE_TOKEN_FILE``, else what the credentials file holds for this API. A token of the file is only ever
sent to the API that gave it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starverse.client.errors import Refused

DEFAULT_API = "http://127.0.0.1:8750"
CREDENTIALS_VERSION = 1


@dataclass(frozen=True, slots=True)
class Settings:
    """``token`` ``None``: not signed in. ``team`` ``None``: the token's own team."""

    api: str
    token: str | None = field(default=None, repr=False)
    team: str | None = None

    @property
    def socket_path(self) -> str | None:
        """The Unix socket of a ``unix:/path`` API, ``None`` for TCP."""
        return self.api.removeprefix("unix:") if self.api.startswith("unix:") else None


@dataclass(frozen=True, slots=True)
class SignIn:
    """What a sign-in leaves behind for one API."""

    token: str = field(repr=False)
    email: str
    team: str | None = None


class Credentials:
    """The 0600 file that ``register`` and ``login`` write; absent until then."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_user(cls, environ: Mapping[str, str]) -> Credentials:
        """``starverse/credentials.json`` in the XDG configuration folder of this user."""
        configured = environ.get("XDG_CONFIG_HOME", "")
        if configured.startswith("/"):
            return cls(Path(configured) / "starverse" / "credentials.json")
        import platformdirs

        return cls(Path(platformdirs.user_config_dir("starverse", appauthor=False)) / "credentials.json")

    def default_api(self) -> str | None:
        """The API of the last sign-in."""
        api = self._read().get("default")
        return api if isinstance(api, str) else None

    def sign_in(self, api: str) -> SignIn | None:
        entry = self._apis().get(api)
        if not isinstance(entry, dict) or not isinstance(entry.get("token"), str):
            return None
        return SignIn(entry["token"], str(entry.get("email", "")), entry.get("team"))

    def remember(self, api: str, sign_in: SignIn) -> None:
        """Write a sign-in and make its API the default one."""
        entry = {"token": sign_in.token, "email": sign_in.email, "team": sign_in.team}
        self._write(api, {**self._apis(), api: entry})

    def forget(self, api: str) -> None:
        """Remove the sign-in of one API; harmless when there is none."""
        apis = self._apis()
        if apis.pop(api, None) is not None:
            self._write(next(iter(apis), api), apis)

    def _apis(self) -> dict[str, Any]:
        apis = self._read().get("apis")
        return dict(apis) if isinstance(apis, dict) else {}

    def _read(self) -> dict[str, Any]:
        try:
            raw = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Refused(
                "invalid",
                f"the credentials file {self.path} cannot be read: {error}",
                hint="mend or remove it, then run `starverse login EMAIL`",
            ) from error
        return raw if isinstance(raw, dict) else {}

    def _write(self, default: str, apis: dict[str, Any]) -> None:
        text = json.dumps({"version": CREDENTIALS_VERSION, "default": default, "apis": apis}, indent=2)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".credentials-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def normal_api(api: str) -> str:
    """The API address in one spelling; raises :class:`Refused` when it is not one."""
    address = api.strip().rstrip("/").removesuffix("/api/v1")
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        address = "unix:/" + path.lstrip("/") if path.startswith("/") else ""
    elif not address.startswith(("http://", "https://")) or address.endswith("://"):
        address = ""
    if not address:
        raise Refused(
            "invalid",
            f"STARVERSE_API is {api!r}",
            hint="write http://HOST:PORT, https://HOST or unix:/path/to/socket",
        )
    return address


def load_settings(
    environ: Mapping[str, str], *, credentials: Credentials | None = None, team: str | None = None
) -> Settings:
    """What the next requests use; raises :class:`Refused` for an address or a token file that is unusable."""
    stored = credentials or Credentials.of_user(environ)
    configured = environ.get("STARVERSE_API")
    api = normal_api(configured) if configured else stored.default_api() or DEFAULT_API
    team = team or environ.get("STARVERSE_TEAM") or None
    token = environ.get("STARVERSE_TOKEN") or _token_of_file(environ.get("STARVERSE_TOKEN_FILE"))
    if token is None:
        sign_in = stored.sign_in(api)
        if sign_in is not None:
            token, team = sign_in.token, team or sign_in.team
    return Settings(api, token.strip() if token else None, team)


def _token_of_file(name: str | None) -> str | None:
    if not name:
        return None
    try:
        text = Path(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            "unauthenticated",
            f"the token file {name} cannot be read: {error}",
            hint="STARVERSE_TOKEN_FILE names a file that holds one token",
        ) from error
    return text or None
