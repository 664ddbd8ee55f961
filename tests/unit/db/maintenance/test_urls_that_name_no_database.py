"""What is no URL of a database that we can use is refused with what is right, and never with a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from starverse.config import load
from starverse.db.maintenance.filling import shown_url
from starverse.domain.errors import Invalid
from starverse.main import serve

WRONG = [
    "nonsense",
    "mysql://lab:secret@host/db",
    "postgresql://lab:secret@host/db",
    "postgresql+psycopg://host:port/db",
    "sqlite://",
    "sqlite:///:memory:",
    "://",
]


@pytest.mark.parametrize("url", WRONG)
def test_it_is_named_with_its_setting_and_what_would_be_right(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        shown_url(url, "server.db")
    (fault,) = refused.value.faults
    assert (fault.field, fault.expected.partition(" ")[0]) == ("server.db", "sqlite:///FILE")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", WRONG[:2])
def test_a_server_does_not_start_on_it(url: str, tmp_path: Path) -> None:
    config = load(None, {}, {"server.data": str(tmp_path / "data"), "server.db": url}).config
    with pytest.raises(Invalid, match=r"server\.db"):
        serve(config, lambda address: None)
    assert not (tmp_path / "data" / "starverse.lock").exists()
