"""Answers of the API as they look, for tests of the command line: one job, one bill, and so on."""

from __future__ import annotations

from typing import Any

_SHARE = {"disk_bytes_per_second": 250_000_000, "network_bytes_per_second": None}


def job(number: str = "12", **changes: Any) -> dict[str, Any]:
    """A spot job on two cards that runs; ``changes`` replace fields."""
    return {
        "id": f"0190-{number}",
        "number": number,
        "name": "train",
        "team": "vision",
        "account": "wang@example.org",
        "state": "running",
        "reason": "",
        "message": "",
        "tariff": "spot",
        "card": "rtx4090",
        "cards": 2,
        "nodes": 1,
        "fabric": "eth",
        "time_limit_seconds": 7200,
        "submitted_at": "2026-03-10T10:00:00Z",
        "started_at": "2026-03-10T11:00:00Z",
        "ended_at": None,
        "exit_code": None,
        "exit_signal": None,
        "attempts": 1,
        "restart_count": 0,
        "node_list": "node-1",
        "cost_label": None,
        "comment": None,
        "partition": None,
        "submit_dir": "/home/wang/实验",
        "array_index": None,
        "array_number": None,
        "own_number": int(number.partition("_")[0]) + int(number.partition("_")[2] or -1) + 1,
        "dependency_text": "",
        "begin_at": None,
        "cost_so_far_micro": 996_000,
        "cost_so_far": "0.996",
        "lost_work_seconds": 0,
        "checkpoint": None,
        "progress": None,
        "price": {"hour_micro": 996_000, "hour": "0.996"},
        **changes,
    }


def jobs() -> list[dict[str, Any]]:
    """A queue: one runs, one with a Chinese name waits, two tasks of an array wait, two have ended."""
    waiting: dict[str, Any] = {"state": "queued", "started_at": None, "node_list": "", "cost_so_far": "0.00"}
    return [
        job("15_3", name="sweep", reason="no_cards", array_number=15, array_index=3, **waiting),
        job("15_2", name="sweep", reason="no_cards", array_number=15, array_index=2, **waiting),
        job(
            "14", name="评估模型", reason="dependency", dependency_text="afterok:12", cards=0, card=None,
            **waiting,
        ),
        job("12"),
        job(
            "11", name="broken", state="failed", reason="exit_code", exit_code=3,
            ended_at="2026-03-10T11:58:30Z",
        ),
        job("10", name="done", state="succeeded", exit_code=0, ended_at="2026-03-10T11:10:00Z"),
    ]  # fmt: skip


def job_with_runs() -> dict[str, Any]:
    """A job that was reclaimed once and goes on from its checkpoint."""
    cards = [{"id": "c0", "node": "node-1", "index": 0, "model": "rtx4090", "uuid": "u", "declared": True}]
    run = {
        "id": "a1",
        "attempt": 1,
        "state": "ended",
        "cause": "reclaimed",
        "message": "",
        "tariff": "spot",
        "nodes": ["node-1"],
        "cards": cards,
        "placed_at": "2026-03-10T10:59:58Z",
        "ready_at": "2026-03-10T11:00:00Z",
        "ended_at": "2026-03-10T11:20:00Z",
        "notice": None,
        "exit_code": 99,
        "exit_signal": None,
        "resume_from": "",
        "charged_micro": 332_000,
        "charged": "0.332",
        "lost_work_seconds": 4,
    }
    again = {
        **run, "id": "a2", "attempt": 2, "state": "running", "cause": None, "ended_at": None,
        "ready_at": "2026-03-10T11:30:00Z", "exit_code": None, "lost_work_seconds": 0, "charged": "0.00",
    }  # fmt: skip
    return job(
        attempts=2,
        restart_count=1,
        lost_work_seconds=4,
        checkpoint={"step": 40, "attempt": 1, "published_at": "2026-03-10T11:19:56Z"},
        progress="epoch 4/10 loss 0.21",
        allocations=[run, again],
    )


def lint() -> dict[str, Any]:
    """A script with an ignored and a refused line."""
    return {
        "effective": [
            {"name": "tariff", "value": "spot", "origin": "the command line"},
            {"name": "gres", "value": "gpu:rtx4090:2", "origin": "line 3"},
            {"name": "time", "value": "24:00:00", "origin": "the default"},
        ],
        "ignored": [{"line": 4, "text": "--mail-type=END", "reason": "no mail is sent"}],
        "refused": [],
        "notices": ["the environment is not taken over"],
        "price": price(),
    }


def price() -> dict[str, Any]:
    """Two cards on spot."""
    return {
        "tariff": "spot",
        "hour_micro": 996_000,
        "hour": "0.996",
        "time_limit_cost_micro": 23_904_000,
        "time_limit_cost": "23.904",
        "text": "",
        "cheaper": ["at night on spot: CNY 0.50 per hour"],
    }


def bill() -> dict[str, Any]:
    """A job with two segments, one of them at night, and one job that still runs."""
    segments = [
        {
            "start": "2026-03-10T14:30:00Z",
            "end": "2026-03-10T15:00:00Z",
            "cards": 2,
            "tariff": "spot",
            "rate_micro_per_card_hour": "498000",
            "factors": {"spot": "0.3"},
            "amount_micro": 498_000,
            "on_demand_micro": 1_660_000,
        },
        {
            "start": "2026-03-10T15:00:00Z",
            "end": "2026-03-10T15:10:00Z",
            "cards": 2,
            "tariff": "spot",
            "rate_micro_per_card_hour": "249000.5",
            "factors": {"spot": "0.3", "night": "0.5"},
            "amount_micro": 83_000,
            "on_demand_micro": 276_666,
        },
    ]
    charge = {
        "id": "ch-1", "job": "12", "attempt": 1, "start": segments[0]["start"], "end": segments[1]["end"],
        "total_micro": 581_000, "segments": segments,
    }  # fmt: skip
    return {
        "total_micro": 581_000,
        "total": "0.581",
        "coupon_micro": 174_300,
        "credit_micro": 406_700,
        "cash_micro": 0,
        "credit_back_micro": 0,
        "written_off_micro": 0,
        "rounding_micro": -1_000,
        "rounded": "0.58",
        "lost_work_seconds": 4,
        "on_demand_total_micro": 1_936_666,
        "saved_micro": 1_355_666,
        "charges": [charge],
        "open": [{"job": "14", "start": "2026-03-10T15:00:00Z", "amount_micro": 100_000}],
    }


def explanation() -> dict[str, Any]:
    """The charge of :func:`bill`, step by step."""
    return {
        **bill()["charges"][0],
        "price_books": [{"id": "pb-1", "effective_from": "2026-01-01T00:00:00Z"}],
        "steps": ["2 cards x 1800 s at CNY 0.498 = CNY 0.498", "a coupon pays at most 30 %: CNY 0.1743"],
        "transfers": [{"id": "tr-1", "kind": "post", "amount_micro": 581_000}],
    }


def offers() -> list[dict[str, Any]]:
    """Two pools, one of declared cards; not all sell every tariff."""

    def priced(**rates: str) -> list[dict[str, str]]:
        return [
            {"tariff": name, "rate": rate, "rate_micro_per_card_hour": rate} for name, rate in rates.items()
        ]

    first = {
        "pool": "bj1/rtx4090/eth", "zone": "bj1", "card": "rtx4090", "fabric": "eth", "cards_total": 8,
        "cards_free": 6, "largest_node_free": 6, "declared": True, "card_share": _SHARE,
        "prices": priced(on_demand="1.66", spot="0.498"), "next_price_change_at": "2026-03-10T15:00:00Z",
    }  # fmt: skip
    second = {
        **first, "pool": "bj1/a100-40g/ib", "card": "a100-40g", "fabric": "ib", "declared": False,
        "prices": priced(on_demand="3.95"), "next_price_change_at": None,
    }  # fmt: skip
    return [first, second]


def nodes() -> list[dict[str, Any]]:
    """One node partly in use, one idle, one drained."""

    def node(name: str, busy: int, **changes: Any) -> dict[str, Any]:
        cards = [
            {"id": f"{name}-{i}", "index": i, "model": "rtx4090", "state": "busy" if i < busy else "free",
             "declared": True}
            for i in range(8)
        ]  # fmt: skip
        return {
            "id": name, "zone": "bj1", "fabric": "eth", "state": "up", "drained": False, "message": "",
            "cpus": 64, "memory_bytes": 512 * 1024**3, "cards": cards, "card_share": _SHARE,
            **changes,
        }  # fmt: skip

    return [
        node("node-1", 2),
        node("node-2", 0),
        node("node-3", 0, drained=True, message="风扇坏了", fabric="ib"),
    ]


def wallet() -> dict[str, Any]:
    """Some of everything."""
    return {
        "team": "vision",
        "cash_micro": 50_000_000,
        "cash": "50.00",
        "credits": [{"id": "g", "left_micro": 9_593_300, "left": "9.5933", "expires_at": None}],
        "coupons": [{"id": "k", "left_micro": 1, "left": "0.000001", "expires_at": "2026-04-01T00:00:00Z"}],
        "held_micro": 996_000,
        "held": "0.996",
        "free_micro": 58_597_300,
        "free": "58.5973",
        "burn_micro_per_hour": 996_000,
        "runway_seconds": 211_797,
        "warnings": ["less than three days at this rate"],
    }


def why() -> dict[str, Any]:
    """A job that waits for cards."""
    return {
        "reason": "no_cards",
        "message": "8 cards of rtx4090 on one node are needed",
        "facts": ["6 of 8 are free on node-1", {"pool": "bj1/rtx4090/eth", "queued before": 2}],
        "what_helps": ["ask for 6 cards: it would start now"],
        "earliest_start_at": "2026-03-10T13:00:00Z",
        "start_estimate": {
            "earliest_at": "2026-03-10T10:20:00Z",
            "expected_at": "2026-03-10T11:05:00Z",
            "latest_at": "2026-03-10T12:40:00Z",
        },
    }


def instance(name: str = "lab", **changes: Any) -> dict[str, Any]:
    """An instance on two cards that runs, with a disk and a dataset; ``changes`` replace fields."""
    return {
        "id": f"0191-{name}",
        "number": 31,
        "name": name,
        "team": "vision",
        "account": "wang@example.org",
        "state": "running",
        "reason": "",
        "message": "",
        "image": "pytorch",
        "card": "rtx4090",
        "cards": 2,
        "fabric": "eth",
        "zone": "bj1",
        "tariff": "on_demand",
        "no_gpu": False,
        "node": "node-1",
        "price_hour_micro": 3_320_000,
        "price_hour": "3.32",
        "cost_so_far_micro": 1_660_000,
        "cost_so_far": "1.66",
        "cards_declared": True,
        "disks": [
            {"name": "home", "target": "/data/home", "kind": "shared", "read_only": False,
             "state": "attached", "message": ""},
        ],
        "datasets": ["digits"],
        "secrets": [],
        "policy": {"idle_stop": 1800, "ttl_seconds": None, "restart": "elsewhere"},
        "idle": {"verdict": "active", "since": "2026-03-10T11:59:50Z", "stops_at": None, "warned": False},
        "created_at": "2026-03-10T10:00:00Z",
        "started_at": "2026-03-10T11:29:59Z",
        "ready_at": "2026-03-10T11:30:00Z",
        "stops_at": "2026-03-10T13:30:00Z",
        "stopped_at": None,
        "release_at": None,
        "ssh": {"host": "gpu.example.org", "port": 2222, "user": name,
                "command": f"ssh {name}@gpu.example.org -p 2222"},
        **changes,
    }  # fmt: skip


def stopped(name: str = "lab", **changes: Any) -> dict[str, Any]:
    """An instance that was stopped by its owner, with its release date."""
    return instance(
        name,
        **{
            "state": "stopped", "reason": "asked", "node": None, "started_at": None,
            "ready_at": None, "stops_at": None, "idle": None,
            "stopped_at": "2026-03-10T11:45:00Z", "release_at": "2026-03-25T11:45:00Z",
            "disks": [
                {"name": "home", "target": "/data/home", "kind": "shared", "read_only": False,
                 "state": None, "message": ""},
            ],
            **changes,
        },
    )  # fmt: skip


def instances() -> list[dict[str, Any]]:
    """One runs, one runs without cards and is idle, one waits, one is stopped."""
    idle = {"verdict": "warned", "since": "2026-03-10T11:00:00Z", "stops_at": "2026-03-10T12:30:00Z",
            "warned": True}  # fmt: skip
    return [
        instance(),
        instance(
            "copying", number=30, no_gpu=True, price_hour="0.498", stops_at=None, idle=idle, disks=[],
            cost_so_far="0.083",
        ),
        instance(
            "waiting", number=29, state="queued", reason="no_cards", ready_at=None, started_at=None,
            node=None, stops_at=None, tariff="spot", cost_so_far="0.00", disks=[],
        ),
        stopped("baseline", number=28),
    ]  # fmt: skip


def activity() -> list[dict[str, Any]]:
    """Evidence of a busy instance."""
    return [
        {"source": "cards", "last_at": "2026-03-10T11:59:50Z", "detail": "card 0 at 97 %"},
        {"source": "ssh", "last_at": "2026-03-10T11:40:00Z", "detail": "1 session"},
        {"source": "jupyter", "last_at": None, "detail": ""},
    ]


def ssh_key(name: str = "laptop", **changes: Any) -> dict[str, Any]:
    """A key that was used."""
    return {
        "id": f"k-{name}",
        "name": name,
        "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIF1 wang@laptop",
        "fingerprint": "SHA256:2QvJ0n2oD5oRr0p6cS0yLqk0mYf9d2kBxXkR0e1c4mE",
        "created_at": "2026-03-01T00:00:00Z",
        "last_used_at": "2026-03-10T11:31:00Z",
        **changes,
    }


def gateway() -> dict[str, Any]:
    """Where people's ssh goes."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFca starverse"
    return {
        "host": "gpu.example.org",
        "port": 2222,
        "ca_public_key": key,
        "known_hosts": f"@cert-authority [gpu.example.org]:2222 {key}",
    }


def disk(name: str = "home", **changes: Any) -> dict[str, Any]:
    """A shared disk of 100 GiB that one instance has; ``changes`` replace fields."""
    return {
        "id": f"d-{name}",
        "name": name,
        "team": "vision",
        "account": "wang@example.org",
        "kind": "shared",
        "gib": 100,
        "state": "ready",
        "message": "",
        "made_from": None,
        "created_at": "2026-03-01T00:00:00Z",
        "deleted_at": None,
        "restorable_until": None,
        "used_bytes": 12 * 1024**3,
        "used_files": 4711,
        "used_at": "2026-03-10T11:55:00Z",
        "hard_quota": False,
        "growing": False,
        "over_quota": False,
        "snapshot_schedule": "0 3 * * *",
        "snapshots_kept": 7,
        "snapshot_due_at": "2026-03-10T19:00:00Z",
        "price_month_micro": 20_000_000,
        "price_month": "20.00",
        "attachments": [
            {"id": "at-1", "instance": "lab", "instance_id": "0191-lab", "job": "32", "allocation_id": "a-1",
             "target": "/data/home", "read_only": False, "state": "attached", "reason": "", "message": "",
             "asked_at": "2026-03-10T11:30:00Z", "attached_at": "2026-03-10T11:30:01Z", "detach_by": None,
             "ended_at": None},
        ],
        "instances": [
            {"instance": "lab", "instance_id": "0191-lab", "target": "/data/home", "read_only": False},
            {"instance": "baseline", "instance_id": "0191-baseline", "target": "/data/home",
             "read_only": True},
        ],
        **changes,
    }  # fmt: skip


def disks() -> list[dict[str, Any]]:
    """A shared one in use, a block disk with a Chinese name that is full, one being made."""
    apart: dict[str, Any] = {"attachments": [], "instances": [], "snapshot_schedule": None}
    return [
        disk(),
        disk("数据库", kind="block", gib=20, used_bytes=20 * 1024**3, hard_quota=True, **apart),
        disk("new", gib=1024, state="making", used_bytes=None, used_files=None, used_at=None, **apart),
    ]


def disk_prices() -> dict[str, Any]:
    """The shipped price book's."""
    return {
        "block_gib_month": "0.30", "block_gib_month_micro": 300_000, "shared_gib_month": "0.20",
        "shared_gib_month_micro": 200_000, "free_gib": 50,
    }  # fmt: skip


def disk_usage() -> dict[str, Any]:
    """Of a disk that is partly free of charge."""
    return {
        "name": "home", "kind": "shared", "gib": 100, "used_bytes": 12 * 1024**3, "used_files": 4711,
        "used_at": "2026-03-10T11:55:00Z", "over_quota": False, "hard_quota": False, "free_gib": 50,
        "price_month_micro": 10_000_000, "price_month": "10.00", "charged_this_month_micro": 3_010_000,
        "charged_this_month": "3.01", "charged_until": "2026-03-10T11:00:00Z",
    }  # fmt: skip


def snapshot(name: str = "before", **changes: Any) -> dict[str, Any]:
    """A snapshot that was asked for."""
    return {
        "id": f"s-{name}", "name": name, "state": "made", "message": "", "scheduled": False,
        "bytes": 11 * 1024**3, "gib": 100, "asked_at": "2026-03-09T19:00:00Z",
        "made_at": "2026-03-09T19:00:04Z", **changes,
    }  # fmt: skip


def sync(state: str = "running", **changes: Any) -> dict[str, Any]:
    """A copy from a remote that is a quarter through."""
    return {
        "id": "y-1", "disk": "home", "secret": "s3", "bytes_per_second_max": None, "schedule_of": None,
        "attempts": 1, "due_at": None, "cancel_requested_at": None, "bytes_per_second": None,
        "seconds_left": None, "direction": "pull", "remote": "s3:bucket/数据", "folder": "data",
        "state": state, "message": "", "bytes_done": 256 * 1024**2, "bytes_total": 1024**3, "files_done": 3,
        "files_total": 12,
        "verify": True, "verified_at": None, "schedule": None, "asked_at": "2026-03-10T11:50:00Z",
        "started_at": "2026-03-10T11:50:01Z", "ended_at": None, **changes,
    }  # fmt: skip


def image(name: str = "pytorch", **changes: Any) -> dict[str, Any]:
    """An image of the platform that is ready."""
    return {
        "id": f"i-{name}",
        "name": name,
        "team": None,
        "kind": "venv",
        "recipe": {"kind": "venv", "packages": ["torch==2.13.0"]},
        "recipe_digest": "sha256:11aa" + "0" * 60,
        "state": "ready",
        "message": "",
        "digest": "sha256:9f2c" + "0" * 60,
        "bytes": 1_900_000_000,
        "contents": ["numpy==2.4.0", "torch==2.13.0"],
        "python": "3.11.9",
        "cuda": "12.6",
        "driver_min": "560.28",
        "asked_at": "2026-03-01T00:00:00Z",
        "built_at": "2026-03-01T00:03:00Z",
        **changes,
    }
