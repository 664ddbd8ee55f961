"""``admin price/account/team/ledger/status/node/card/dataset``: what operators do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from starverse.cli.remote import datasets, exit_codes, fabric
from starverse.cli.remote.commands import Group, LazyCommand, LazyGroup, command, yes_option
from starverse.cli.remote.jobs import DECLARED_MARK
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_fields, render_table
from starverse.cli.remote.wallet import Amount
from starverse.cli.remote.wording import when, yuan

OPERATOR_TOKEN_FILE = "operator-token"
API_URL_FILE = "api-url"
MESSAGE_SHOWN = 60
"""Characters of what a reconciler says, in its row of ``admin status``."""


_MAINTENANCE = "starverse.cli.local.maintenance"

group = LazyGroup(
    "admin",
    help="What operators do.",
    lazy={
        "backup": LazyCommand(_MAINTENANCE, "Back the platform up into a new folder; it may run.", "backup"),
        "restore": LazyCommand(_MAINTENANCE, "Restore a backup; no server may run.", "restore"),
        "migrate": LazyCommand(_MAINTENANCE, "Bring the database to this version's schema.", "migrate"),
        "disk": LazyCommand("starverse.cli.remote.admin_disks", "Disks that are stuck: ls, clear.", "group"),
        "move": LazyCommand(_MAINTENANCE, "Move the database: SQLite to PostgreSQL, or back.", "move"),
    },
)


def _subgroup(name: str, summary: str) -> click.Group:
    made = Group(name, help=summary)
    group.add_command(made)
    return made


price = _subgroup("price", "Price books: versions that are never changed, only followed.")
account = _subgroup("account", "Accounts.")
team = _subgroup("team", "Teams and gifts.")
ledger = _subgroup("ledger", "The books.")
node = _subgroup("node", "Nodes.")
dataset = _subgroup("dataset", "The shelf.")
dataset.add_command(datasets.add)
group.add_command(fabric.group)


@command("List the price books by the time they come into force.", name="ls")
def price_ls(session: Session) -> None:
    books = session.client().admin.price_books()
    session.emit(
        {"items": books},
        lambda: render_table(
            columns("ID", "IN FORCE FROM", "NOW", "PUBLISHED", "BY"),
            [
                (
                    b.get("id"),
                    when(b.get("effective_from")),
                    "in force" if b.get("in_effect") else None,
                    when(b.get("created_at")),
                    b.get("created_by"),
                )
                for b in books
            ],
        ),
    )


@command("Print a price book as YAML; without ID the one in force.", name="show")
@click.argument("book_id", metavar="[ID]", required=False)
def price_show(session: Session, book_id: str | None) -> None:
    admin = session.client().admin
    if book_id is None:
        book_id = next((str(b["id"]) for b in admin.price_books() if b.get("in_effect")), "none in force")
    found = admin.price_book(book_id)
    session.emit(found, lambda: str(found.get("yaml", "")).rstrip("\n"))


@command(
    "Publish a price book; every fault in it is named and nothing changes when there is one.", name="set"
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@yes_option()
def price_set(session: Session, file: Path, yes: bool) -> None:
    session.confirm(f"Publish {file}?", yes=yes)
    made = session.client().admin.set_price_book(file.read_text(encoding="utf-8"))
    since = when(made.get("effective_from"))
    session.emit(made, lambda: str(made.get("id", "")))
    for warning in made.get("warnings") or ():
        session.note(f"warning: {warning}")
    session.note(f"published, in force from {since}" if since else "published")


@command("List accounts.", name="ls")
def account_ls(session: Session) -> None:
    accounts = list(session.client().admin.accounts())
    rows = [
        (a.get("email"), a.get("operator"), a.get("member"), a.get("disabled"), when(a.get("created_at")))
        for a in accounts
    ]
    titles = columns("EMAIL", "OPERATOR", "MEMBER", "DISABLED", "SINCE")
    session.emit({"items": accounts}, lambda: render_table(titles, rows))


@command("Change an account.", name="set")
@click.argument("email")
@click.option("--member", metavar="CLASS", help="Member class of the price book, such as edu.")
@click.option("--no-member", is_flag=True, help="Take the member class away.")
@click.option(
    "--disabled/--enabled", default=None, help="Whether it may sign in; what a disabled one runs stops."
)
@click.option("--operator/--no-operator", default=None)
@click.option("--password", "new_password", is_flag=True, help="Ask for a new password.")
@yes_option()
def account_set(
    session: Session,
    email: str,
    member: str | None,
    no_member: bool,
    disabled: bool | None,
    operator: bool | None,
    new_password: bool,
    yes: bool,
) -> None:
    flags = {"member": "" if no_member else member, "disabled": disabled, "operator": operator}
    changes: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    if new_password:
        changes["password"] = session.secret(
            "New password: ", "STARVERSE_NEW_PASSWORD", again="Password again: "
        )
    if not changes:
        raise click.UsageError("say what to change, such as --member edu")
    if disabled:
        session.confirm(f"Disable {email}, and stop its instances and jobs?", yes=yes)
    _tell_account(session, session.client().admin.set_account(email, changes))


@command(
    "Make an account an operator, with the token that the server left in its data folder.", name="operator"
)
@click.argument("email")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Data folder of the server. [default: of this machine]",
)
@click.option("--off", is_flag=True, help="No longer an operator.")
def account_operator(session: Session, email: str, data: Path | None, off: bool) -> None:
    changes = {"operator": not off}
    data = data or _local_data_folder(session)
    if data is None:
        _tell_account(session, session.client().admin.set_account(email, changes))
        return
    from starverse.client.api import Client
    from starverse.client.settings import Settings, normal_api

    token = (data / OPERATOR_TOKEN_FILE).read_text(encoding="utf-8").strip()
    url_file = data / API_URL_FILE
    api = url_file.read_text(encoding="utf-8") if url_file.exists() else session.client().settings.api
    with Client(Settings(normal_api(api), token)) as client:
        _tell_account(session, client.admin.set_account(email, changes))


def _local_data_folder(session: Session) -> Path | None:
    """The data folder of a server on this machine, where its operator token may be read."""
    configured = session.environ.get("STARVERSE_SERVER__DATA")
    if configured:
        folder = Path(configured)
    else:
        import platformdirs

        folder = Path(platformdirs.user_data_dir("starverse"))
    return folder if os.access(folder / OPERATOR_TOKEN_FILE, os.R_OK) else None


def _tell_account(session: Session, found: dict[str, Any]) -> None:
    shown = ("email", "operator", "member", "disabled")
    session.emit(found, lambda: render_fields([(name, found.get(name)) for name in shown]))


@command("List teams with their money.", name="ls")
def team_ls(session: Session) -> None:
    teams = list(session.client().admin.teams())
    rows = [
        (t.get("name"), t.get("personal"), yuan(t.get("free_micro")), yuan(t.get("held_micro")))
        for t in teams
    ]
    titles = columns("NAME", "PERSONAL", ">FREE CNY", ">HELD CNY")
    session.emit({"items": teams}, lambda: render_table(titles, rows))


@command("Give a team credit or a coupon.", name="grant")
@click.argument("team_name", metavar="TEAM")
@click.argument("kind", type=click.Choice(("credit", "coupon")))
@click.argument("amount", type=Amount())
@click.option("--reason", required=True, help="Stands in the ledger.")
@click.option("--expires-at", metavar="ISO", help="Default: never.")
@yes_option()
def team_grant(
    session: Session, team_name: str, kind: str, amount: str, reason: str, expires_at: str | None, yes: bool
) -> None:
    session.confirm(f"Give {team_name} a {kind} of CNY {amount}?", yes=yes)
    grant = {"kind": kind, "amount": amount, "reason": reason}
    if expires_at is not None:
        grant["expires_at"] = expires_at
    made = session.client().admin.grant(team_name, grant)
    session.emit(made, lambda: str(made.get("id", "")))
    session.note(f"team {team_name} has a {kind} of CNY {amount}")


@command("Check every invariant of the ledger by name.", name="check")
def ledger_check(session: Session) -> None:
    found = session.client().admin.ledger_check()
    checks = found.get("invariants") or found.get("items") or []
    rows = [(c.get("name"), "holds" if c.get("holds") else "BROKEN", c.get("detail")) for c in checks]
    sound = bool(found.get("holds", all(c.get("holds") for c in checks)))

    def text() -> str:
        verdict = "all invariants hold" if sound else "an invariant is broken: stop and look"
        return (
            render_table(columns("INVARIANT", "STATE", "DETAIL"), rows) + "\n\n" if rows else ""
        ) + verdict

    session.emit(found, text)
    session.exit_code = exit_codes.OK if sound else exit_codes.FAILURE


@command("List the ledger accounts and their balances.", name="accounts")
def ledger_accounts(session: Session) -> None:
    accounts = list(session.client().admin.ledger_accounts())
    rows = [
        (a.get("id"), a.get("kind"), a.get("team"), yuan(a.get("posted_micro")), yuan(a.get("pending_micro")))
        for a in accounts
    ]
    titles = columns("ID", "KIND", "TEAM", ">POSTED", ">PENDING")
    session.emit({"items": accounts}, lambda: render_table(titles, rows))


@command("Show the reconcilers, the engine, the disk and the clock.", name="status")
def status(session: Session) -> None:
    found = session.client().admin.status()
    session.emit(found, lambda: _status_text(found))


def _status_text(found: dict[str, Any]) -> str:
    parts = []
    reconcilers = found.get("reconcilers") or []
    if reconcilers:
        rows = [
            (
                r.get("name"),
                r.get("state"),
                when(r.get("last_run_at")),
                r.get("runs"),
                r.get("failures"),
                _short(r.get("message")),
            )
            for r in reconcilers
        ]
        titles = columns("RECONCILER", "STATE", "LAST RUN", ">RUNS", ">FAILURES", "MESSAGE")
        parts.append(render_table(titles, rows))
    for name, value in found.items():
        if name == "reconcilers":
            continue
        fields = list(value.items()) if isinstance(value, dict) else [("", value)]
        parts.append(render_fields([(f"{name} {field}".strip(), inner) for field, inner in fields]))
    return "\n\n".join(part for part in parts if part)


def _short(message: str | None) -> str | None:
    """The beginning of what a round says of itself, in one line; ``--json`` has all of it."""
    line = " ".join((message or "").split())
    return line if len(line) <= MESSAGE_SHOWN else f"{line[: MESSAGE_SHOWN - 3]}..."


@command("List nodes with their cards.", name="ls")
def node_ls(session: Session) -> None:
    nodes = session.client().admin.nodes()
    rows = []
    for found in nodes:
        cards = found.get("cards") or []
        free = sum(card.get("state") == "free" for card in cards)
        models = sorted({str(card["model"]) + ("*" if card.get("declared") else "") for card in cards})
        state = f"{found['state']}, drained" if found.get("drained") else found["state"]
        rows.append(
            (
                found["id"],
                found["zone"],
                found["fabric"],
                state,
                models,
                free,
                len(cards),
                found.get("message"),
            )
        )
    titles = columns("NODE", "ZONE", "FABRIC", "STATE", "CARDS", ">FREE", ">OF", "MESSAGE")
    session.emit({"items": nodes}, lambda: render_table(titles, rows))
    if any(card.get("declared") for found in nodes for card in found.get("cards") or ()):
        session.note(DECLARED_MARK)


@command("Show a node's cards with their ids and who uses them.", name="show")
@click.argument("node_id", metavar="NODE")
def node_show(session: Session, node_id: str) -> None:
    found = session.client().admin.node(node_id)
    rows = [
        (
            c["id"],
            c.get("index"),
            c["model"],
            c.get("state"),
            c.get("declared"),
            c.get("job"),
            c.get("message"),
        )
        for c in found.get("cards") or ()
    ]
    titles = columns("CARD", ">INDEX", "MODEL", "STATE", "DECLARED", "JOB", "MESSAGE")
    session.emit(dict(found), lambda: render_table(titles, rows))


@command("Start nothing new on a node; what runs there goes on.", name="drain")
@click.argument("node_id", metavar="NODE")
def node_drain(session: Session, node_id: str) -> None:
    session.emit(session.client().admin.drain_node(node_id, drained=True), lambda: "")
    session.note(f"{node_id} takes no new work")


@command("Use a drained node again.", name="undrain")
@click.argument("node_id", metavar="NODE")
def node_undrain(session: Session, node_id: str) -> None:
    session.emit(session.client().admin.drain_node(node_id, drained=False), lambda: "")
    session.note(f"{node_id} takes work again")


@command("Take a card out of use, or give it back.", name="card")
@click.argument("card_id", metavar="CARD")
@click.option("--quarantine/--release", "quarantined", default=None, help="Out of use, or in use again.")
def card(session: Session, card_id: str, quarantined: bool | None) -> None:
    if quarantined is None:
        raise click.UsageError("say --quarantine or --release")
    session.emit(session.client().admin.quarantine_card(card_id, quarantined=quarantined), lambda: "")
    session.note(f"{card_id} is {'out of use' if quarantined else 'in use again'}")


for parent, members in (
    (price, (price_ls, price_show, price_set)),
    (account, (account_ls, account_set, account_operator)),
    (team, (team_ls, team_grant)),
    (ledger, (ledger_check, ledger_accounts)),
    (node, (node_ls, node_show, node_drain, node_undrain)),
    (group, (status, card)),
):
    for member in members:
        parent.add_command(member)
