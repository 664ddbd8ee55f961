"""``launch ps show stop start resize rm clone extend set``: instances from launch to release."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from starverse.cli.remote import exit_codes
from starverse.cli.remote.commands import command, consent_option
from starverse.cli.remote.hour_prices import NO_GPU, price_line
from starverse.cli.remote.instance_text import (
    WORKSPACE,
    instance_text,
    instances_table,
    next_text,
    warnings_of,
)
from starverse.cli.remote.quantities import IdleStop, Length
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import visible
from starverse.cli.remote.telling import tell_break
from starverse.cli.remote.wallet import Amount
from starverse.cli.remote.wording import when
from starverse.client.shapes import Instance

STATES = ("stopped", "queued", "running", "released")
TARIFFS = ("on_demand", "spot")
FABRICS = ("ib", "roce", "eth")
RESTARTS = ("elsewhere", "stay")
_DISK = re.compile(r"([^:/]+)(?::(/.*?))?(?::(ro|rw))?", re.DOTALL)
_EXIT_BY_REASON = {
    "no_cards": exit_codes.NO_CARDS,
    "no_money": exit_codes.NOT_ENOUGH_MONEY,
    "disk_in_use": exit_codes.CONFLICT,
}


class DiskPlace(click.ParamType["dict[str, Any]"]):
    """``NAME[:/path][:ro]``: a disk, where it is to be seen, and whether it can be written there."""

    name = "disk"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        found = _DISK.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not NAME[:/path][:ro] such as home:/data/home:ro", param, ctx)
        made: dict[str, Any] = {"name": found[1], "read_only": found[3] == "ro"}
        return made | ({"path": found[2]} if found[2] else {})


def wait_option() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--wait/--no-wait``, of commands that start something; neither is ``None``."""
    return click.option(
        "--wait/--no-wait",
        default=None,
        help="--wait: where no cards are free, queue for them. --no-wait: do not stay until it is ready.",
    )


def policy_options() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """When it stops by itself, and what follows when its cards go."""
    options = (
        click.option(
            "--ttl", type=Length(), metavar="TIME", help="Stop this long after a start: 2h; 0: never."
        ),
        click.option(
            "--idle-stop",
            type=IdleStop(),
            metavar="TIME",
            help="Stop when idle for so long: 30m, 0, default (the operator's), off, unset.",
        ),
        click.option(
            "--restart",
            type=click.Choice(RESTARTS),
            help="After a reclaim or the loss of its node: start elsewhere, or stay stopped.",
        ),
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@command(
    "Rent a GPU host: an instance that lives until it is stopped.",
    examples=(
        "launch --card rtx4090 --image pytorch",
        "launch --card rtx4090 --cards 2 --dataset digits --disk home --name lab",
        "launch --card rtx4090 --tariff spot --restart elsewhere --ttl 2h --yes",
    ),
)
@click.option("--card", required=True, metavar="MODEL", help="Such as rtx4090; see `starverse offers`.")
@click.option("--cards", type=click.IntRange(1), default=1, show_default=True, metavar="N")
@click.option("--name", metavar="NAME", help="Default: made for you.")
@click.option("--image", metavar="IMAGE", help="See `starverse image ls`.")
@click.option("--dataset", "datasets", multiple=True, metavar="NAME", help="At /dataset/NAME, read-only.")
@click.option(
    "--disk",
    "disks",
    multiple=True,
    type=DiskPlace(),
    metavar="NAME[:/path][:ro]",
    help="Default: /data/NAME.",
)
@click.option(
    "--secret", "secrets", multiple=True, metavar="NAME", help="The file /run/starverse/secrets/NAME."
)
@click.option("--tariff", type=click.Choice(TARIFFS), default="on_demand", show_default=True)
@click.option("--price-max", type=Amount(), metavar="YUAN", help="Highest price of a card-hour (spot).")
@click.option("--fabric", type=click.Choice(FABRICS))
@click.option("--zone", metavar="ZONE")
@click.option("--cpus", type=click.IntRange(1), metavar="N")
@click.option("--memory-gib", type=click.IntRange(1), metavar="N")
@policy_options()
@wait_option()
@consent_option()
def launch(session: Session, *, wait: bool | None, yes: bool, **asked: Any) -> None:
    card, cards, tariff = asked["card"], asked["cards"], asked["tariff"]
    offers = session.client().cards.offers(card=card, fabric=asked["fabric"], zone=asked["zone"])
    line = price_line(offers, card=card, cards=cards, tariff=tariff)
    if line is None:
        _refuse_unsold(session, asked)
    if asked["image"] and session.asks() and not yes:
        session.client().images.get(asked["image"])  # one that is not there is said before the question
    session.note(str(line))
    session.insist(f"Launch it with {cards} x {card}?", yes=yes)
    made = session.client().instances.launch(_request(asked) | {"wait": bool(wait)})
    session.note(f"instance {made['name']} ({made.get('number')})")
    _after_start(session, made, stay=wait is not False)
    refresh_ssh_config(session)


def _request(asked: dict[str, Any]) -> dict[str, Any]:
    """The body of the request: what was not given is left out, the server has the defaults."""
    names = {"ttl": "ttl_seconds"}
    return {
        names.get(name, name): list(value) if isinstance(value, tuple) else value
        for name, value in asked.items()
        if value not in (None, ()) and (name, value) != ("ttl", 0)
    }


def _refuse_unsold(session: Session, asked: dict[str, Any]) -> None:
    """Nobody sells what was asked for: said before anything is sent, with what there is."""
    from starverse.client.errors import Refused

    sold = sorted(
        {
            f"{offer['pool']} ({', '.join(line['tariff'] for line in offer['prices'])})"
            for offer in session.client().cards.offers()
            if offer["prices"]
        }
    )
    where = " ".join(str(asked[name]) for name in ("zone", "fabric") if asked.get(name))
    what = f"{asked['card']} on {asked['tariff']}" + (f" in {where}" if where else "")
    raise Refused("invalid", f"no pool sells {what}", hint=f"there is: {'; '.join(sold) or 'nothing'}")


@command("List instances: state, cards, price, what comes next.", examples=("ps", "ps --all --json"))
@click.option("--state", "states", multiple=True, type=click.Choice(STATES))
@click.option("--all", "released", is_flag=True, help="Those that were released, too.")
def ps(session: Session, states: tuple[str, ...], released: bool) -> None:
    found = list(session.client().instances.list(states=states, released=released))
    session.emit({"items": found}, lambda: instances_table(found))
    for line in (text for one in found for text in warnings_of(one, session.now())):
        session.note(line)


@command(
    "Show an instance: state, price, disks, how to sign in, and when each source was last active.",
    examples=("show lab",),
)
@click.argument("name", metavar="INSTANCE")
def show(session: Session, name: str) -> None:
    instances = session.client().instances
    found = instances.get(name)
    activity = instances.activity(found["id"]) if found["state"] == "running" else []
    session.emit({**found, "activity": activity}, lambda: instance_text(found, activity))
    for line in warnings_of(found, session.now()):
        session.note(line)


@command(
    "Stop instances: cards go back and cost nothing; their files stay until the release date.",
    examples=("stop lab",),
)
@click.argument("names", metavar="INSTANCE...", nargs=-1, required=True)
@click.option("--no-wait", is_flag=True, help="Do not stay until it has stopped.")
def stop(session: Session, names: tuple[str, ...], no_wait: bool) -> None:
    from starverse.cli.remote.several import do_to_each
    from starverse.client.instances import has_stopped

    instances = session.client().instances
    done = do_to_each(names, instances.stop)
    stopping = done.answers
    if not no_wait:
        stopping = [instances.wait(one["id"], has_stopped, on_break=tell_break(session)) for one in stopping]
    for one in stopping:
        kept = when(one.get("release_at"))
        word = "stopped" if has_stopped(one) else "stopping"
        session.note(f"{one['name']} {word}" + (f"; its files are kept until {kept}" if kept else ""))
    done.emit(session, {"items": stopping})


@command(
    "Start a stopped instance on the same files and as many cards, or without cards for less.",
    examples=("start lab", "start lab --no-gpu --yes"),
)
@click.argument("name", metavar="INSTANCE")
@click.option("--no-gpu", is_flag=True, help="No cards, half a core, 2 GiB: for copying and looking.")
@click.option("--tariff", type=click.Choice(TARIFFS), help="Default: as before.")
@wait_option()
@consent_option()
def start(
    session: Session, name: str, no_gpu: bool, tariff: str | None, wait: bool | None, yes: bool
) -> None:
    if no_gpu and tariff:
        raise click.UsageError("--no-gpu has a tariff of its own: leave --tariff out")
    found = session.client().instances.get(name)
    _tell_price(session, found, tariff=NO_GPU if no_gpu else tariff or found["tariff"])
    session.insist(f"Start {found['name']}{' without cards' if no_gpu else ''}?", yes=yes)
    request: dict[str, Any] = {"no_gpu": no_gpu, "wait": bool(wait)}
    started = session.client().instances.start(found["id"], request | ({"tariff": tariff} if tariff else {}))
    _after_start(session, started, stay=wait is not False)


@command(
    "Give an instance other cards on the same files; one that runs is stopped and started for it.",
    examples=("resize lab --cards 4",),
)
@click.argument("name", metavar="INSTANCE")
@click.option("--cards", type=click.IntRange(1), required=True, metavar="N")
@click.option("--card", metavar="MODEL", help="Default: the same model.")
@wait_option()
@consent_option()
def resize(session: Session, name: str, cards: int, card: str | None, wait: bool | None, yes: bool) -> None:
    found = session.client().instances.get(name)
    running = found["state"] in ("running", "queued")
    _tell_price(session, found, card=card, cards=cards)
    question = f"Give {found['name']} {cards} x {card or found['card']}?"
    if running:
        question += " What runs in it now ends; its files stay."
    session.insist(question, yes=yes)
    request = {"cards": cards, "wait": bool(wait)} | ({"card": card} if card else {})
    resized = session.client().instances.resize(found["id"], request)
    if running:
        _after_start(session, resized, stay=wait is not False)
        return
    session.emit(dict(resized), lambda: resized["name"])
    session.note(f"{resized['name']} has {cards} x {resized.get('card')} at its next start")


def _tell_price(
    session: Session, found: Instance, *, tariff: str | None = None, card: str | None = None, cards: int = 0
) -> None:
    """The price of an instance as it would run next; where no pool sells that, the server says so."""
    model, count = card or found.get("card") or "", cards or found["cards"]
    fabric, zone = found.get("fabric"), found.get("zone")
    offers = session.client().cards.offers(card=model, fabric=fabric, zone=zone)
    line = price_line(offers, card=model, cards=count, tariff=tariff or found["tariff"])
    session.note(line or f"no pool sells {model} on {tariff or found['tariff']} now")


def _after_start(session: Session, made: Instance, *, stay: bool) -> None:
    """Stay until it can be reached, or has stopped; Ctrl-C leaves it as it is."""
    from starverse.client.instances import has_started, is_up

    found = made
    if stay and not has_started(made):
        try:
            found = session.client().instances.wait(
                made["id"], has_started, on_change=_tell_change(session), on_break=tell_break(session)
            )
        except KeyboardInterrupt:
            session.note(f"\n{made['name']} goes on; end it: starverse stop {made['name']}")
            session.exit_code = exit_codes.INTERRUPTED
            return
    session.emit(dict(found), lambda: found["name"])
    if is_up(found):
        session.note(f"{found['name']} is ready; sign in: starverse ssh {found['name']}")
        if next_text(found):
            session.note(f"it {next_text(found)}")
    elif stay:
        why = found.get("message") or found.get("reason") or "it says no reason"
        session.note(f"{found['name']} is {found['state']}: {visible(why)}")
        session.exit_code = _EXIT_BY_REASON.get(str(found.get("reason")), exit_codes.FAILURE)
    else:
        session.note(f"{found['name']} is {found['state']}; look: starverse show {found['name']}")


def _tell_change(session: Session) -> Callable[[Instance], None]:
    def tell(one: Instance) -> None:
        if one["state"] == "queued" and one.get("reason") not in ("new", "starting"):
            session.note(f"waiting: {visible(one.get('message') or one.get('reason') or 'for cards')}")

    return tell


@command(
    "Release instances: their own files are gone for good; disks that were plugged in stay.",
    examples=("rm lab",),
)
@click.argument("names", metavar="INSTANCE...", nargs=-1, required=True)
@consent_option()
def rm(session: Session, names: tuple[str, ...], yes: bool) -> None:
    from starverse.cli.remote.several import do_to_each

    instances = session.client().instances
    found = [instances.get(name) for name in names]
    session.insist(
        "\n".join([*map(_loss, found), f"Release {', '.join(one['name'] for one in found)}?"]), yes=yes
    )
    by_id = {one["id"]: one for one in found}

    def remove(instance_id: str) -> str:
        instances.remove(instance_id)
        one = by_id[instance_id]
        ends = one["state"] in ("running", "queued")
        session.note(f"{one['name']} {'stops and is released then' if ends else 'is released'}")
        return one["name"]

    done = do_to_each(by_id, remove)
    refresh_ssh_config(session)
    done.emit(session, {"released": done.answers})


def _loss(one: Instance) -> str:
    """What goes with an instance, and what does not."""
    parts = [f"{one['name']}: lost for good: everything in {WORKSPACE}"]
    if one["state"] in ("running", "queued"):
        parts.append("what runs in it ends")
    kept = [disk["name"] for disk in one.get("disks") or ()]
    if kept:
        parts.append(f"kept: disk {', '.join(kept)}")
    return "; ".join(parts)


@command(
    "Copy a stopped instance with its files; shared disks are had by both, block disks by the first alone.",
    examples=("clone lab --name lab-2",),
)
@click.argument("name", metavar="INSTANCE")
@click.option("--name", "new_name", metavar="NAME", help="Default: made for you.")
@click.option("--no-wait", is_flag=True, help="Do not stay until its files are copied.")
def clone(session: Session, name: str, new_name: str | None, no_wait: bool) -> None:
    instances = session.client().instances
    made = instances.clone(name, new_name)
    if not no_wait:
        made = instances.wait(
            made["id"], lambda one: one.get("reason") != "cloning", on_break=tell_break(session)
        )
    if made["state"] == "released":
        from starverse.client.errors import Refused

        raise Refused("conflict", f"{made['name']} was not made: {made.get('message') or 'it was released'}")
    session.emit(dict(made), lambda: made["name"])
    session.note(f"{made['name']} is a copy of {name}; start it: starverse start {made['name']}")
    refresh_ssh_config(session)


@command("Put off the date on which a stopped instance is released.", examples=("extend lab --days 30",))
@click.argument("name", metavar="INSTANCE")
@click.option("--days", type=click.IntRange(1), default=7, show_default=True, metavar="N")
def extend(session: Session, name: str, days: int) -> None:
    found = session.client().instances.extend(name, days)
    session.emit(dict(found), lambda: str(when(found.get("release_at")) or ""))
    session.note(f"{found['name']} is kept until {when(found.get('release_at'))}")


@command(
    "Change when an instance stops by itself, what follows a reclaim, or its name.",
    name="set",
    examples=("set lab --idle-stop 30m", "set lab --idle-stop off --ttl 8h"),
)
@click.argument("name", metavar="INSTANCE")
@policy_options()
@click.option("--name", "new_name", metavar="NAME")
def set_(
    session: Session,
    name: str,
    ttl: int | None,
    idle_stop: str | int | None,
    restart: str | None,
    new_name: str | None,
) -> None:
    asked = {"ttl_seconds": ttl, "idle_stop": idle_stop, "restart": restart, "name": new_name}
    changes = {key: value for key, value in asked.items() if value is not None}
    if not changes:
        raise click.UsageError("say what to change, such as --idle-stop 30m")
    found = session.client().instances.change(name, changes)
    session.emit(dict(found), lambda: instance_text(found))
    if new_name:
        refresh_ssh_config(session)


def refresh_ssh_config(session: Session) -> None:
    """Where ``ssh-config install`` was called: the names of now. A fault there is told, no more."""
    from starverse.cli.remote import ssh_config
    from starverse.client.errors import ClientError

    try:
        ssh_config.refresh(session)
    except (OSError, ClientError) as error:
        session.note(f"note: the file of `starverse ssh-config` is as it was: {error}")
