"""Links that open an app of an instance in a browser.

A link carries a sealed ticket that is good for a minute; the proxy turns it into a cookie for that one
instance and port. Both are sealed with a key of the data folder, so that any server of it can read them and
nothing is kept. What they allow is looked up again while they are used.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from cryptography.fernet import Fernet, InvalidToken

from starverse.app.identity import Identity
from starverse.app.inside import InsideInstances
from starverse.app.platform import Platform
from starverse.app.secret_files import read_or_make_secret
from starverse.app.ssh_access import Visit, Way, admit_by_sign_in, require_running
from starverse.domain.errors import FieldFault, Invalid, Unauthenticated

LINK_SECONDS = 60
SESSION_SECONDS = 12 * 3600
JUPYTER = "jupyter"
JUPYTER_PORT = 8888
_KEY_FILE = "apps.secret"


@dataclass(frozen=True, slots=True)
class AppVisit:
    """Someone's way to one port inside. ``whole_path``: the app knows below which path it is shown, and
    ``authorization`` is what it asks for (``""``: nothing)."""

    visit: Visit
    port: int
    whole_path: bool = False
    authorization: str = ""

    @property
    def prefix(self) -> str:
        """The path below which the app is shown, with its last slash."""
        return prefix_of(self.visit.instance_id, self.port)


@dataclass(frozen=True, slots=True)
class AppLink:
    """``path`` is to be opened on this installation's address until ``expires_at``."""

    path: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class _Wanted:
    visit: Visit
    allocation_id: str
    port: int
    jupyter: bool


def prefix_of(instance_id: str, port: int) -> str:
    return f"/apps/{instance_id}/{port}/"


def find_app(platform: Platform, identity: Identity, ref: str, app: str | int) -> _Wanted:
    """The running instance and the port that are meant; raises ``Invalid``, ``NotFound`` or ``Conflict``."""
    jupyter = app == JUPYTER
    text = str(JUPYTER_PORT if jupyter else app)
    port = int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 else 0
    if isinstance(app, bool) or not 1 <= port <= 65535:
        expected = f"{JUPYTER}, or a port from 1 to 65535"
        raise Invalid(faults=[FieldFault("app", str(app)[:40], expected)])
    visit = admit_by_sign_in(platform, identity, ref)
    return _Wanted(visit, require_running(platform, visit), port, jupyter)


async def make_link(platform: Platform, wanted: _Wanted, inside: InsideInstances) -> AppLink:
    """A link; JupyterLab is started first where it is the app. Raises ``Unreachable``."""
    prefix = prefix_of(wanted.visit.instance_id, wanted.port)
    if wanted.jupyter:
        lab = await inside.start_jupyter(wanted.allocation_id, prefix, wanted.port)
        visit = AppVisit(wanted.visit, lab.port, True, f"token {lab.token}")
    else:
        visit = AppVisit(wanted.visit, wanted.port)
    now = platform.clock.now()
    ticket = _seal(platform, "link", visit, now)
    path = f"{visit.prefix}?starverse-link={ticket}"
    return AppLink(path, now + timedelta(seconds=LINK_SECONDS))


def open_link(platform: Platform, ticket: str, instance_id: str, port: int) -> tuple[AppVisit, str]:
    """Whom a link's ticket lets in, and what to keep in the cookie; raises :class:`Unauthenticated`."""
    visit = _unseal(platform, "link", ticket, LINK_SECONDS, (instance_id, port))
    return visit, _seal(platform, "session", visit, platform.clock.now())


def read_session(platform: Platform, cookie: str, instance_id: str, port: int) -> AppVisit:
    """Whom a cookie lets in; raises :class:`Unauthenticated`."""
    return _unseal(platform, "session", cookie, SESSION_SECONDS, (instance_id, port))


def _seal(platform: Platform, kind: str, visit: AppVisit, now: datetime) -> str:
    content = json.dumps({"kind": kind, **asdict(visit)}).encode()
    return _box(platform).encrypt_at_time(content, int(now.timestamp())).decode()


def _unseal(platform: Platform, kind: str, sealed: str, seconds: int, place: tuple[str, int]) -> AppVisit:
    now = int(platform.clock.now().timestamp())
    try:
        content = json.loads(_box(platform).decrypt_at_time(sealed.encode(), seconds, now))
    except (InvalidToken, UnicodeEncodeError) as error:
        raise Unauthenticated(
            "This link is not valid any more.", hint="`starverse open` makes one"
        ) from error
    if content.pop("kind") != kind or (content["visit"]["instance_id"], content["port"]) != place:
        raise Unauthenticated("This link is for something else.", hint="`starverse open` makes one")
    visit = content.pop("visit")
    return AppVisit(Visit(Way(**visit.pop("way")), **visit), **content)


def _box(platform: Platform) -> Fernet:
    return Fernet(read_or_make_secret(platform.paths.gateway / _KEY_FILE) + "=")
