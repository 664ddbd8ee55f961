"""What ``--help`` of the whole tree says."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from starverse.cli.remote.commands import LazyGroup
from starverse.cli.remote.entry import run
from starverse.cli.remote.root import root
from starverse.cli.remote.session import Session
from starverse.domain.sbatch.options import BY_NAME, OUR_NAMES, Status
from starverse.testing.command_lines import CommandLine


def groups(found: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every group below a command, itself first."""
    if not isinstance(found, click.Group):
        return
    yield words
    for name in found.list_commands(click.Context(found)):
        below = found.get_command(click.Context(found), name)
        if below is not None:
            yield from groups(below, (*words, name))


@pytest.mark.parametrize("words", groups(root), ids=" ".join)
def test_what_a_command_does_is_never_cut(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--help"], Session(environ={}, stdin=io.StringIO(), folder=tmp_path)) == 0
    text = capsys.readouterr().out
    assert "Commands:" in text
    assert "..." not in text.partition("Commands:")[2]


def test_the_root_knows_its_commands_by_one_line_each() -> None:
    assert isinstance(root, LazyGroup)
    assert all("\n" not in one.help and len(one.help) < 80 for one in root.lazy.values())


def test_submit_explains_every_option_that_sbatch_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert CommandLine("unix:none", tmp_path).run("submit", "--help").code == 0
    text = capsys.readouterr().out
    supported = {name for name in OUR_NAMES if BY_NAME[name].status is Status.SUPPORTED} - {"network"}
    assert supported
    assert {name for name in supported if f"  --{name} " not in text} == set()
