"""The client, one attribute per resource.

>>> with connect(os.environ) as client:
...     client.jobs.get("123")["state"]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from starverse.client.admin import Admin
from starverse.client.cards import Cards
from starverse.client.disks import Disks
from starverse.client.images import Images
from starverse.client.instances import Instances
from starverse.client.jobs import Jobs
from starverse.client.money import Money
from starverse.client.people import People
from starverse.client.secrets import Secrets
from starverse.client.settings import Settings, load_settings
from starverse.client.shelf import Shelf
from starverse.client.ssh_keys import SshKeys
from starverse.client.transport import Transport


class Client:
    """Synchronous; close it, or use it as a context manager. ``pause`` waits between repeats."""

    def __init__(self, settings: Settings, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.settings = settings
        self._transport = Transport(settings, pause=pause)
        self.people = People(self._transport)
        self.cards = Cards(self._transport)
        self.jobs = Jobs(self._transport)
        self.instances = Instances(self._transport)
        self.disks = Disks(self._transport)
        self.images = Images(self._transport)
        self.ssh_keys = SshKeys(self._transport)
        self.secrets = Secrets(self._transport)
        self.money = Money(self._transport)
        self.shelf = Shelf(self._transport)
        self.admin = Admin(self._transport)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    environ: Mapping[str, str],
    *,
    team: str | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Client:
    """A client for the API and token that the environment or the credentials file names."""
    return Client(load_settings(environ, team=team), pause=pause)
