"""What people do with OpenSSH, through the gateway, against a real sshd behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from starverse.testing.gateway_sites import GatewaySite, Visitor, open_gateway_site

pytestmark = pytest.mark.serial


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySite]:
    with open_gateway_site("sqlite", tmp_path_factory.mktemp("gateway")) as opened:
        yield opened


@pytest.fixture(scope="module")
def wang(site: GatewaySite) -> Visitor:
    """Someone with a running instance ``digits``."""
    who = site.world.team("wang")
    site.instance(who, "digits")
    return site.visitor(who)


@pytest.mark.parametrize(
    ("command", "code"), [("true", 0), ("exit 7", 7), ("kill -TERM $$", 255), ("no-such-command", 127)]
)
def test_the_exit_code_is_the_command_s(wang: Visitor, command: str, code: int) -> None:
    done = wang.run("digits", command)
    assert done.returncode == code, done.stderr


def test_both_streams_come_apart_and_input_goes_in(wang: Visitor) -> None:
    done = wang.run("digits", "cat; echo said >&2; exit 3", input=b"asked")
    assert (done.stdout, done.stderr, done.returncode) == (b"asked", b"said\n", 3)
