"""How instances read: the list, one of them with its disks and its evidence of activity."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from starverse.cli.remote.tables import columns, render_fields, render_table
from starverse.cli.remote.wording import length, when
from starverse.client.shapes import Activity, Instance

RELEASE_IS_NEAR = timedelta(days=3)
IDLE_VERDICTS = frozenset({"idle", "warned", "due"})
WORKSPACE = "/workspace and /root"
"""What an instance's own disk holds."""


def instances_table(found: Sequence[Instance]) -> str:
    """Instances as ``ps`` lists them."""
    titles = columns(
        "NAME", ">NO", "STATE", "CARDS", "TARIFF", ">CNY/HOUR", ">CNY SO FAR", "NODE", "DISKS", "NEXT"
    )
    rows = [
        (
            one["name"],
            one.get("number"),
            state_text(one),
            cards_text(one),
            tariff_text(one),
            one.get("price_hour") if one["state"] == "running" else None,
            one.get("cost_so_far"),
            one.get("node"),
            [disk["name"] for disk in one.get("disks") or ()],
            next_text(one),
        )
        for one in found
    ]
    return render_table(titles, rows)


def state_text(one: Instance) -> str:
    """The state with its reason; a running one that has a reason is being stopped for it."""
    if not one.get("reason"):
        return one["state"]
    return f"{'stopping' if one['state'] == 'running' else one['state']} ({one['reason']})"


def cards_text(one: Instance) -> str:
    """``2 x rtx4090``; without a GPU the cards that it would have."""
    declared = " (declared)" if one.get("cards_declared") else ""
    return f"{one['cards']} x {one.get('card') or 'any'}{declared}" if one["cards"] else "none"


def tariff_text(one: Instance) -> str:
    return "no_gpu" if one.get("no_gpu") else one["tariff"]


def next_text(one: Instance) -> str | None:
    """What comes by itself, and when."""
    idle = one.get("idle") or {}
    if one["state"] == "running" and idle.get("stops_at") and idle.get("verdict") in IDLE_VERDICTS:
        return f"idle, stops {when(idle['stops_at'])}"
    if one["state"] == "running" and one.get("stops_at"):
        return f"stops {when(one['stops_at'])}"
    if one["state"] == "stopped" and one.get("release_at"):
        return f"release on {when(one['release_at'])}"
    return None


def warnings_of(one: Instance, now: datetime) -> list[str]:
    """What its owner is to hear before: it goes with its files, or stops since nothing is done in it."""
    name, idle, release_at = one["name"], one.get("idle") or {}, one.get("release_at")
    if one["state"] == "running" and idle.get("verdict") == "warned" and idle.get("stops_at"):
        return [f"{name} is idle since {when(idle.get('since'))} and stops at {when(idle['stops_at'])}"]
    if one["state"] != "stopped" or not release_at:
        return []
    if datetime.fromisoformat(release_at) - now >= RELEASE_IS_NEAR:
        return []
    keep = f"start it, or keep it longer: starverse extend {name}"
    return [f"{name} is released with its own files at {when(release_at)}; {keep}"]


def instance_text(one: Instance, activity: Sequence[Activity] = ()) -> str:
    """An instance as ``show`` prints it."""
    policy = one.get("policy") or {}
    ssh = one.get("ssh") or {}
    price = one.get("price_hour")
    parts = [
        render_fields(
            [
                ("instance", f"{one['name']}  ({one.get('number')})"),
                ("state", state_text(one)),
                ("message", one.get("message")),
                ("team", f"{one['team']} ({one['account']})"),
                ("image", one.get("image")),
                ("cards", cards_text(one)),
                ("pool", "/".join(part for part in (one.get("zone"), one.get("fabric")) if part)),
                ("node", one.get("node")),
                ("tariff", tariff_text(one)),
                ("price", f"CNY {price} per hour" if price else None),
                ("cost so far", f"CNY {one['cost_so_far']}" if one.get("cost_so_far") else None),
                ("created", when(one.get("created_at"))),
                ("started", when(one.get("started_at"))),
                ("ready", when(one.get("ready_at"))),
                ("stopped", when(one.get("stopped_at"))),
                ("stops", when(one.get("stops_at"))),
                ("ttl", _ttl(policy)),
                ("idle stop", _idle_stop(policy)),
                ("idle", _idle(one.get("idle") or {})),
                ("if cards go", _restart(policy)),
                ("released on", when(one.get("release_at"))),
                ("datasets", [f"/dataset/{name}" for name in one.get("datasets") or ()]),
                ("secrets", one.get("secrets")),
                ("ssh", ssh.get("command")),
            ]
        )
    ]
    disks = one.get("disks") or []
    if disks:
        parts.append(
            render_table(columns("DISK", "AT", "KIND", "ACCESS", "STATE"), [_disk(d) for d in disks])
        )
    if activity:
        rows = [(each["source"], when(each.get("last_at")), each.get("detail")) for each in activity]
        parts.append(render_table(columns("ACTIVITY", "LAST", "EVIDENCE"), rows))
    return "\n\n".join(parts)


def _disk(disk: Any) -> tuple[object, ...]:
    state = disk.get("state") or ""
    message = disk.get("message") or ""
    return (
        disk["name"],
        disk.get("target"),
        disk.get("kind"),
        "read-only" if disk.get("read_only") else "writable",
        ": ".join(filter(None, (state, message))),
    )


def _ttl(policy: dict[str, Any]) -> str | None:
    """How long each start lasts at most, which counts also for one that is stopped."""
    seconds = policy.get("ttl_seconds")
    return f"{length(seconds)} after each start" if seconds else None


def _idle_stop(policy: dict[str, Any]) -> str | None:
    """``unset``, ``off``, ``default`` or a length; ``0`` reads ``0 s``."""
    value = policy.get("idle_stop")
    if value is None:
        return None
    return f"after {length(value)}" if isinstance(value, int) else str(value)


def _idle(idle: dict[str, Any]) -> str | None:
    """The verdict, the last activity, and what follows without more of it."""
    if not idle.get("verdict"):
        return None
    since, stops = when(idle.get("since")), when(idle.get("stops_at"))
    return (
        str(idle["verdict"])
        + (f", last active {since}" if since else "")
        + (f", stops {stops} if nothing is done" if stops else "")
    )


def _restart(policy: dict[str, Any]) -> str | None:
    words = {"elsewhere": "starts again elsewhere", "stay": "stays stopped"}
    return words.get(str(policy.get("restart")), policy.get("restart"))
