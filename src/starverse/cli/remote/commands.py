"""The kinds of click commands that the tree is made of.

Every command takes ``--json`` and ``--team``. A lazy group knows its commands by name, module and one line of
help, so that ``--help`` imports none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from starverse.cli.remote.session import Session

ALIASES: Mapping[str, str] = {"list": "ls", "delete": "rm"}
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command lives: imported when it is called, and only then."""

    module: str
    help: str
    attribute: str = "command"

    def load(self) -> click.Command:
        loaded = getattr(importlib.import_module(self.module), self.attribute)
        if not isinstance(loaded, click.Command):
            raise TypeError(f"{self.module}.{self.attribute} is not a command")
        return loaded


def common_options() -> list[click.Parameter]:
    """``--json`` and ``--team``, which every command takes."""
    return [
        click.Option(
            ["--json", "as_json"],
            is_flag=True,
            expose_value=False,
            callback=_set_json,
            help="Print stable JSON, errors too.",
        ),
        click.Option(
            ["--team"],
            expose_value=False,
            callback=_set_team,
            metavar="NAME",
            help="Act for this team instead of the token's own.",
        ),
    ]


class Command(click.Command):
    """A command with the common options."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        settings["context_settings"] = {**CONTEXT_SETTINGS, **(settings.get("context_settings") or {})}
        super().__init__(*arguments, **settings)
        self.params = [*self.params, *common_options()]


class WholeLines(click.Group):
    """A group whose help shows the first paragraph of each command whole, over as many lines as it needs."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.told_commands())

    def told_commands(self) -> list[tuple[str, str]]:
        """Each command beside what it does."""
        return [(name, _first_paragraph(made)) for name, made in sorted(self.commands.items())]


class Group(WholeLines):
    """A group of commands with the habitual aliases."""

    command_class = Command

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        settings["context_settings"] = {**CONTEXT_SETTINGS, **(settings.get("context_settings") or {})}
        super().__init__(*arguments, **settings)
        self.params = [*self.params, *common_options()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in ALIASES:
            found = super().get_command(ctx, ALIASES[cmd_name])
        return found


class LazyGroup(Group):
    """Commands that are imported by name when they are called, after those that are there already."""

    def __init__(self, *arguments: Any, lazy: Mapping[str, LazyCommand], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self.lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self.lazy.get(ALIASES.get(cmd_name, cmd_name))
        return super().get_command(ctx, cmd_name) if found is None else found.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and ALIASES.get(args[0]) not in known and args[0][:1] != "-":
            raise click.exceptions.NoSuchCommand(args[0], possibilities=known, ctx=ctx)
        return super().resolve_command(ctx, args)

    def told_commands(self) -> list[tuple[str, str]]:
        return [*super().told_commands(), *((name, made.help) for name, made in self.lazy.items())]


def _first_paragraph(made: click.Command) -> str:
    return " ".join((made.help or "").partition("\n\n")[0].split())


def command(
    summary: str, *, name: str | None = None, examples: Sequence[str] = (), words_follow: bool = False
) -> Callable[[Callable[..., None]], Command]:
    """Decorate a function whose first argument is the :class:`Session`; ``summary`` is its help.

    ``examples`` are command lines without ``starverse``. ``words_follow``: what stands after the first
    argument is taken as it is, options too.
    """
    told = [summary]
    if examples:
        told.append("\b\nExamples:\n" + "\n".join(f"  starverse {one}" for one in examples))
    settings = {"allow_interspersed_args": False} if words_follow else {}

    def decorate(function: Callable[..., None]) -> Command:
        made = click.command(name, cls=Command, help="\n\n".join(told), context_settings=settings)(
            _with_session(function)
        )
        assert isinstance(made, Command)
        return made

    return decorate


def yes_option() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--yes``, of every command that destroys or spends."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask. Nobody is asked where no terminal is.")


def asked_for_json(ctx: click.Context) -> bool:
    """Whether ``--json`` is an option of ours on this command line, not a word of somebody else's."""
    given = click.core.ParameterSource.COMMANDLINE
    around: click.Context | None = ctx
    while around is not None:
        if around.get_parameter_source("as_json") is given:
            return True
        around = around.parent
    return False


def consent_option() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--yes`` of commands that do nothing without it where no terminal is (:meth:`Session.insist`)."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask; needed where no terminal is.")


def session_of(ctx: click.Context) -> Session:
    """The session of this run."""
    session = ctx.find_object(Session)
    if session is None:
        raise RuntimeError("commands run under cli.remote.entry.run, which makes the session")
    return session


def _with_session(function: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any, **options: Any) -> None:
        function(session_of(click.get_current_context()), *arguments, **options)

    call.__name__ = function.__name__.removesuffix("_command")
    call.__doc__ = function.__doc__
    call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    return call


def _set_json(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        session_of(ctx).json = True


def _set_team(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value:
        session_of(ctx).team = value
