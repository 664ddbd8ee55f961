"""``ssh``, ``exec``, ``open``: into an instance, by the system's OpenSSH, with the program's exit code."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import click

from starverse.cli.remote import openssh
from starverse.cli.remote.commands import asked_for_json, command
from starverse.cli.remote.openssh import Forwards, Target
from starverse.cli.remote.session import Session
from starverse.cli.remote.wording import when
from starverse.client.shapes import Instance

APPS = ("jupyter", "terminal")
PORT_MAX = 65_535


def folder_of_keys(session: Session) -> Path:
    """``~/.ssh`` of who types."""
    home = session.environ.get("HOME")
    return (Path(home) if home else Path.home()) / ".ssh"


def reach(session: Session, name: str) -> tuple[Instance, Target]:
    """The instance and how ssh gets there; refuses where no key of the caller is registered."""
    from starverse.client.errors import Refused
    from starverse.client.settings import Credentials

    client = session.client()
    one = client.instances.get(name)
    if one["state"] != "running":
        hint = f"start it: starverse start {one['name']}" if one["state"] == "stopped" else None
        raise Refused("conflict", f"{one['name']} is {one['state']}", hint=hint)
    registered = client.ssh_keys.list()
    if not registered:
        raise Refused(
            "forbidden", "no SSH key of this account is registered", hint="add one: starverse ssh-key add"
        )
    gateway = client.ssh_keys.gateway()
    place = openssh.known_hosts_file(Credentials.of_user(session.environ).path.parent, client.settings.api)
    openssh.write_if_changed(place, gateway["known_hosts"].rstrip("\n") + "\n")
    identities = openssh.identities_for(folder_of_keys(session), registered)
    return one, openssh.target_of(one, gateway, place, identities)


def words_after(session: Session, words: tuple[str, ...]) -> list[str]:
    """The command, without the ``--`` before it; our own options do not stand there."""
    session.json = asked_for_json(click.get_current_context())
    if words[:1] == ("--",):
        return list(words[1:])
    if words and words[0].startswith("-"):
        raise click.UsageError(f"{words[0]}: options stand before INSTANCE; a command follows `--`")
    return list(words)


@command(
    "Sign in to an instance, or run a command there; ssh's exit code is ours.",
    examples=("ssh lab", "ssh lab -- nvidia-smi -L", "ssh -L 8000:localhost:8000 -N lab"),
    words_follow=True,
)
@click.option("-L", "local", multiple=True, metavar="SPEC", help="Forward a port here to there, as ssh.")
@click.option("-R", "remote", multiple=True, metavar="SPEC", help="Forward a port there to here, as ssh.")
@click.option("-D", "dynamic", multiple=True, metavar="PORT", help="A SOCKS proxy through it, as ssh.")
@click.option("-o", "options", multiple=True, metavar="KEY=VALUE", help="Any option of ssh_config(5).")
@click.option("-t", "terminal", is_flag=True, help="A terminal for the command.")
@click.option("-N", "no_command", is_flag=True, help="No command: forward only.")
@click.option("-v", "verbose", is_flag=True, help="Say what ssh does.")
@click.argument("name", metavar="INSTANCE")
@click.argument("words", metavar="[-- COMMAND]", nargs=-1, type=click.UNPROCESSED)
def ssh(session: Session, name: str, words: tuple[str, ...], **given: Any) -> None:
    command_words = words_after(session, words)
    _, target = reach(session, name)
    argv = openssh.ssh_argv(target, command_words, Forwards(**given))
    if session.json:
        session.emit(_how(argv, target), lambda: "")
        return
    _go_on_as(session, argv)


@command(
    "Run a program in an instance, word by word; its exit code is ours. With --json: what it printed.",
    name="exec",
    examples=("exec lab -- python train.py --epochs 3", "exec -t lab -- htop"),
    words_follow=True,
)
@click.option("-t", "terminal", is_flag=True, help="A terminal for the program.")
@click.argument("name", metavar="INSTANCE")
@click.argument("words", metavar="-- PROGRAM [ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
def exec_(session: Session, name: str, words: tuple[str, ...], terminal: bool) -> None:
    program = words_after(session, words)
    if not program:
        raise click.UsageError("say what to run: starverse exec lab -- nvidia-smi -L")
    _, target = reach(session, name)
    argv = openssh.exec_argv(target, program, terminal=terminal)
    if not session.json:
        _go_on_as(session, argv)
        return
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        check=False,
    )
    session.emit({"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}, lambda: "")
    session.exit_code = done.returncode


def copy_files(session: Session, name: str, source: str, destination: str, *, to_instance: bool) -> None:
    """``cp`` with an instance at one end: scp, whose exit code is the command's."""
    one, target = reach(session, name)
    argv = openssh.scp_argv(target, source, destination, to_instance=to_instance)
    if session.json:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
        session.exit_code = done.returncode
        if done.returncode == 0:
            session.emit({"instance": one["name"], "from": source, "to": destination}, lambda: "")
        return
    _go_on_as(session, argv)


def print_file_there(session: Session, name: str, path: str) -> None:
    """``cp INSTANCE:file -``: the file's bytes to stdout."""
    _, target = reach(session, name)
    _go_on_as(session, openssh.exec_argv(target, ["cat", "--", path]))


def _go_on_as(session: Session, argv: list[str]) -> None:
    """Become ssh or scp; says what to install where there is none."""
    try:
        session.exit_code = session.become(argv)
    except FileNotFoundError as error:
        from starverse.client.errors import Refused

        raise Refused(
            "failure", f"{argv[0]} is not installed here", hint="apt-get install openssh-client"
        ) from error


def _how(argv: list[str], target: Target) -> dict[str, Any]:
    return {
        "argv": argv,
        "host": target.host,
        "port": target.port,
        "user": target.user,
        "known_hosts": str(target.known_hosts),
    }


class App(click.ParamType["str | int"]):
    """An app by name, or a port."""

    name = "app"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        text = str(value)
        if text in APPS:
            return text
        if not (text.isascii() and text.isdecimal() and 0 < int(text) <= PORT_MAX):
            self.fail(f"{text!r} is none of {', '.join(APPS)}, nor a port", param, ctx)
        return int(text)


@command(
    "Print an address that opens JupyterLab or a port of an instance; at a terminal, open it in a browser.",
    name="open",
    examples=("open lab jupyter", "open lab 6006 --no-browser", "open lab terminal"),
)
@click.argument("name", metavar="INSTANCE")
@click.argument("app", metavar="jupyter|terminal|PORT", type=App())
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def open_(session: Session, name: str, app: str | int, no_browser: bool) -> None:
    shows = not no_browser and not session.json and session.stdout.isatty()
    if app == "terminal":
        _open_terminal(session, name, here=shows)
        return
    link = session.client().instances.app_link(name, app)
    session.emit(dict(link), lambda: link["url"])
    until = when(link.get("expires_at"))
    session.note("whoever opens this address gets in" + (f"; it is good until {until}" if until else ""))
    if shows and session.browse(link["url"]):
        session.note("opened in the browser")


def _open_terminal(session: Session, name: str, *, here: bool) -> None:
    """At a terminal that terminal, by ssh; else the address of the WebSocket, for programs that speak it."""
    if here:
        _, target = reach(session, name)
        _go_on_as(session, openssh.ssh_argv(target))
        return
    client = session.client()
    one = client.instances.get(name)
    if client.settings.socket_path is not None:
        raise click.UsageError("a WebSocket needs an API at http:// or https://; use starverse ssh")
    url = f"ws{client.settings.api.removeprefix('http')}/api/v1/instances/{one['id']}/terminal"
    session.emit({"url": url}, lambda: url)
    session.note(f"a WebSocket that takes your token; in a terminal: starverse ssh {one['name']}")
