"""``image ls/show/build/save/verify/rm``: the root environments of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from starverse.cli.remote import exit_codes
from starverse.cli.remote.commands import Group, command, consent_option
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_fields, render_table
from starverse.cli.remote.telling import tell_break, tell_new
from starverse.cli.remote.wording import when
from starverse.client.packing import size_text
from starverse.client.shapes import Image

KINDS = ("venv", "conda", "oci")
DIGEST_SHOWN = 19
TOLD_EVERY_SECONDS = 15


@click.group("image", cls=Group, help="Images: ls, show, build, save, verify, rm.")
def group() -> None:
    """Images: the root environments of workloads."""


@command("List the images of the platform and of the team.")
def ls(session: Session) -> None:
    found = session.client().images.list()
    titles = columns("NAME", "KIND", "STATE", "PYTHON", "CUDA", "DRIVER FROM", ">SIZE", "DIGEST", "OWNER")
    session.emit({"items": found}, lambda: render_table(titles, [_row(one) for one in found]))


def _row(one: Image) -> tuple[object, ...]:
    size = one.get("bytes")
    return (
        one["name"],
        one["kind"],
        one["state"],
        one.get("python"),
        one.get("cuda"),
        one.get("driver_min"),
        size_text(size) if size is not None else None,
        (one.get("digest") or "")[:DIGEST_SHOWN],
        one.get("team") or "platform",
    )


@command("Show an image: digest, size, contents, what it needs of a node.", examples=("image show pytorch",))
@click.argument("name", metavar="IMAGE")
def show(session: Session, name: str) -> None:
    found = session.client().images.get(name)
    session.emit(dict(found), lambda: image_text(found))


def image_text(one: Image) -> str:
    """An image as ``image show`` prints it."""
    size = one.get("bytes")
    head = render_fields(
        [
            ("image", one["name"]),
            ("owner", one.get("team") or "platform"),
            ("kind", one["kind"]),
            ("state", one["state"]),
            ("message", one.get("message")),
            ("digest", one.get("digest")),
            ("size", size_text(size) if size is not None else None),
            ("python", one.get("python")),
            ("cuda", one.get("cuda")),
            ("driver from", one.get("driver_min")),
            ("ordered", when(one.get("asked_at"))),
            ("built", when(one.get("built_at"))),
        ]
    )
    contents = _contents(one.get("contents") or ())
    return f"{head}\n\n{render_table(columns('PACKAGE', 'VERSION'), contents)}" if contents else head


def _contents(contents: Sequence[str]) -> list[tuple[object, ...]]:
    """``name==version`` lines as rows."""
    return [(name, version or None) for name, _, version in (line.partition("==") for line in contents)]


@command(
    "Build an image: a shipped one by its name alone, pinned packages, or a container image.",
    examples=(
        "image build pytorch",
        "image build torch-2 torch==2.13.0 numpy",
        "image build mine --requirements requirements.txt --python 3.12",
        "image build sci --kind conda python=3.12 numpy",
        "image build cuda --kind oci --ref docker.io/library/debian:12",
    ),
)
@click.argument("name", metavar="IMAGE")
@click.argument("packages", metavar="[PACKAGE]...", nargs=-1)
@click.option("--kind", type=click.Choice(KINDS), default="venv", show_default=True)
@click.option("--requirements", type=click.Path(path_type=Path), metavar="FILE", help="As pip takes it.")
@click.option("--ref", metavar="REF", help="Of --kind oci: name and tag or digest.")
@click.option("--channel", "channels", multiple=True, metavar="NAME", help="Of --kind conda.")
@click.option("--python", metavar="VERSION", help="Such as 3.12.")
@click.option("--cuda", metavar="VERSION", help="What it was built for, such as 12.4.")
@click.option("--driver-min", metavar="VERSION", help="Lowest driver of a node that can run it.")
@click.option("--shared", is_flag=True, help="For everybody (operators).")
@click.option("--no-wait", is_flag=True, help="Do not stay until it is built.")
def build(
    session: Session,
    name: str,
    packages: tuple[str, ...],
    kind: str,
    requirements: Path | None,
    ref: str | None,
    channels: tuple[str, ...],
    shared: bool,
    no_wait: bool,
    **needs: str | None,
) -> None:
    if (kind == "oci") != (ref is not None):
        raise click.UsageError("--ref REF goes with --kind oci, and with nothing else")
    given: dict[str, Any] = {
        "packages": list(packages),
        "requirements": (session.folder / requirements).read_text("utf-8") if requirements else "",
        "ref": ref,
        "channels": list(channels),
        **needs,
    }
    recipe = {key: value for key, value in given.items() if value}
    shipped = not recipe and kind == "venv"
    made = session.client().images.build(name, None if shipped else {"kind": kind, **recipe}, shared=shared)
    _follow(session, made, stay=not no_wait)


@command("Save what an instance's owner installed as an image.", examples=("image save lab lab-env",))
@click.argument("instance", metavar="INSTANCE")
@click.argument("name", metavar="IMAGE")
@click.option("--no-wait", is_flag=True, help="Do not stay until it is saved.")
def save(session: Session, instance: str, name: str, no_wait: bool) -> None:
    made = session.client().instances.save_image(instance, name)
    _follow(session, made, stay=not no_wait)


def _follow(session: Session, made: Any, *, stay: bool) -> None:
    """Stay until it is ready or has failed."""
    found: Image = made
    begun = session.now()

    def text_of(one: Image) -> str:
        return _state_text(one, (session.now() - begun).total_seconds())

    tell = tell_new(session, text_of)
    try:
        if stay:
            found = session.client().images.wait(made, on_wait=tell, on_break=tell_break(session))
    except KeyboardInterrupt:
        session.note(f"\n{made['name']} goes on; look: starverse image show {made['name']}")
        session.exit_code = exit_codes.INTERRUPTED
        return
    session.emit(dict(found), lambda: str(found.get("digest") or found["name"]))
    if found["state"] == "failed":
        session.note(f"{found['name']} failed: {found.get('message')}")
        session.exit_code = exit_codes.FAILURE
    else:
        session.note(f"{found['name']} is {found['state']}")


def _state_text(one: Image, seconds: float) -> str:
    """A new line every quarter of a minute, so that who waits sees that it goes on."""
    since = int(seconds) // TOLD_EVERY_SECONDS * TOLD_EVERY_SECONDS
    return f"{one['name']}: {one['state']}" + (f", {since} s so far" if since > 0 else "")


@command("Read every byte of an image again and compare it with its digest.")
@click.argument("name", metavar="IMAGE")
def verify(session: Session, name: str) -> None:
    result = session.client().images.verify(name)
    faults = result.get("faults") or []
    session.emit(
        result,
        lambda: render_fields(
            [
                ("digest", result.get("digest")),
                ("state", result.get("state")),
                *(("fault", f"{fault.get('path')}: {fault.get('kind')}") for fault in faults),
            ]
        ),
    )
    if faults:
        session.exit_code = exit_codes.FAILURE


@command("Remove an image; what runs with it goes on.", examples=("image rm torch-2",))
@click.argument("name", metavar="IMAGE")
@consent_option()
def rm(session: Session, name: str, yes: bool) -> None:
    session.insist(f"Remove the image {name}?", yes=yes)
    session.client().images.remove(name)
    session.emit({"deleted": name}, lambda: "")
    session.note(f"image {name} is gone")


for each in (ls, show, build, save, verify, rm):
    group.add_command(each)
