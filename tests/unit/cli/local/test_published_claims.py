"""Every command in ``docs/claims.md`` prints the amount written beside it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from starverse.cli.local.quote import command

PAGE = Path(__file__).parents[4] / "docs" / "claims.md"
COMMANDS = re.findall(r"^starverse quote (.+?)  # (\S+)$", PAGE.read_text("utf-8"), re.MULTILINE)


def test_the_page_has_its_commands() -> None:
    assert len(COMMANDS) == PAGE.read_text("utf-8").count("\nstarverse quote ") > 20


@pytest.mark.parametrize(("arguments", "amount"), COMMANDS)
def test_command_prints_the_amount_beside_it(arguments: str, amount: str) -> None:
    result = CliRunner().invoke(command, shlex.split(arguments))
    assert result.exit_code == 0
    assert result.stdout.startswith(f"CNY {amount}: ")


def test_the_payers_that_the_page_adds_up() -> None:
    cash, coupons = [], []
    for arguments, _ in COMMANDS:
        if "--coupon 350.00" in arguments:
            text = CliRunner().invoke(command, shlex.split(arguments)).stdout
            paid = re.search(r"^coupon (\S+), credit 0.00, cash (\S+)$", text, re.MULTILINE)
            assert paid is not None
            coupons.append(paid[1])
            cash.append(paid[2])
    assert (coupons, cash) == (["73.872", "49.248"], ["172.368", "114.912"])
