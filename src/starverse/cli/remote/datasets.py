"""``dataset ls/show/add/verify``: the shelf."""

from __future__ import annotations

from typing import Any

import click

from starverse.cli.remote import exit_codes
from starverse.cli.remote.commands import Group, command
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_fields, render_table
from starverse.client.packing import size_text


@click.group("dataset", cls=Group, help="Public, checksummed data that every job can mount.")
def group() -> None:
    """Public, checksummed data that every job can mount."""


@command("List the shelf.")
def ls(session: Session) -> None:
    found = session.client().shelf.datasets()
    session.emit(
        {"items": found},
        lambda: render_table(
            columns("NAME", ">FILES", ">SIZE", "STATE", "LICENCE", "TITLE"),
            [
                (
                    d["name"],
                    d.get("files"),
                    size_text(d.get("bytes") or 0),
                    d.get("state"),
                    d.get("licence"),
                    d.get("title"),
                )
                for d in found
            ],
        ),
    )


@command("Show one dataset: where it comes from, its licence and its checksums.")
@click.argument("name")
def show(session: Session, name: str) -> None:
    found = _shown(session.client().shelf.dataset(name))
    plain = [(key, value) for key, value in found.items() if not isinstance(value, (dict, list))]
    session.emit(found, lambda: render_fields([*plain, ("mounted at", f"/dataset/{name}")]))


@command("Import a folder of the host onto the shelf (operators).")
@click.argument("name")
@click.argument("path")
@click.option("--title", required=True)
@click.option("--source", required=True, help="Where it comes from: address or citation.")
@click.option("--licence", required=True)
def add(session: Session, name: str, path: str, title: str, source: str, licence: str) -> None:
    folder = str((session.folder / path).resolve())
    request = {"name": name, "path": folder, "title": title, "source": source, "licence": licence}
    made = _shown(session.client().shelf.add_dataset(request))
    session.emit(made, lambda: str(made.get("name", name)))
    session.note(f"on the shelf; jobs mount it with --dataset {name} at /dataset/{name}")


@command("Read every byte again and compare it with the manifest.")
@click.argument("name")
def verify(session: Session, name: str) -> None:
    result = session.client().shelf.verify_dataset(name)
    result = _shown({**(result.get("dataset") or {}), **result})
    faults = result.get("faults") or []
    session.emit(
        result,
        lambda: render_fields(
            [
                ("state", result.get("state")),
                ("files", result.get("files")),
                ("size", size_text(int(result.get("bytes") or 0))),
                *(("fault", _fault_text(fault)) for fault in faults),
            ]
        ),
    )
    if faults:
        session.exit_code = exit_codes.FAILURE
        session.note(f"to mend it, put the same content there again: starverse dataset add {name} PATH ...")


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    """``version`` names the form of the answer in all that ``--json`` prints."""
    return {"dataset_version" if field == "version" else field: value for field, value in found.items()}


def _fault_text(fault: dict[str, Any]) -> str:
    detail = f" ({fault['detail']})" if fault.get("detail") else ""
    return f"{fault.get('path')}: {fault.get('kind')}{detail}"


for each in (ls, show, add, verify):
    group.add_command(each)
