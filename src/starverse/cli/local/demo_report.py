"""What the demo claims, checked one by one and printed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starverse.cli.local.demo_ground import Ground

ACCURACY_MIN = 0.95
WHERE_NEXT = """Keep a platform up:   make up CARDS=rtx4090:8   (or: starverse up --declare-cards rtx4090:8)
Where to look next:   README.md, ARCHITECTURE.md, docs/, starverse --help, starverse doctor"""


@dataclass(slots=True)
class Outcome:
    """What the demo has to show for itself."""

    wallet_at_start: dict[str, Any]
    job: dict[str, Any]
    rival: dict[str, Any]
    rival_log: str
    bill: dict[str, Any]
    bill_text: str
    record: dict[str, Any]
    ledger: dict[str, Any]
    log: list[str]
    weights: bytes
    reference: bytes
    dataset: dict[str, Any]
    ground: Ground


def report(outcome: Outcome, say: Callable[[str], None]) -> list[str]:
    """Print every claim with what was found; the claims that are not true."""
    failed = []
    say("\nWhat this run shows")
    for claim, holds, found in _claims(outcome):
        say(f"  {'ok  ' if holds else 'NOT '} {claim}: {found}")
        if not holds:
            failed.append(claim)
    say("\nThe run record (starverse job record 1)")
    for line in _record_lines(outcome):
        say(f"  {line}")
    return failed


def _claims(o: Outcome) -> list[tuple[str, bool, str]]:
    accuracy = _accuracy(o.log)
    runs = o.job["allocations"]
    causes = [run["cause"] for run in runs]
    resumed = [run["resume_from"] for run in runs[1:]]
    mine, reference = (hashlib.sha256(content).hexdigest() for content in (o.weights, o.reference))
    bill, on_demand = o.bill["total_micro"], o.bill["on_demand_total_micro"]
    charged = sum(s["amount_micro"] for charge in o.bill["charges"] for s in charge["segments"])
    credit = o.wallet_at_start["free_micro"]
    declared = [card["declared"] for run in runs for card in run["cards"]]
    return [
        ("the sign-up credit stood in the wallet", credit == 10_000_000, f"CNY {credit / 1e6:.2f}"),
        (
            "the dataset is on the shelf, verified",
            o.dataset["state"] == "verified",
            f"{o.dataset['files']} files",
        ),
        (
            "cards are marked as declared" if o.ground.declared else "cards are the engine's own",
            bool(declared) and all(card is o.ground.declared for card in declared),
            f"{len(declared)} of {len(declared)}",
        ),
        (
            "the spot job was reclaimed and went on",
            causes == ["reclaimed", "completed"],
            " -> ".join(map(str, causes)),
        ),
        (
            "it resumed from a verified checkpoint",
            bool(resumed) and all(resumed),
            ", ".join(map(str, resumed)),
        ),
        (
            f"the on-demand job ran on {o.ground.rival_cards} cards",
            o.rival["state"] == "succeeded" and o.rival["cards"] == o.ground.rival_cards,
            f"{o.rival['cards']} cards, {o.rival['state']}",
        ),
        *(
            (f"its log says `{text.strip()}`", text in o.rival_log, "yes" if text in o.rival_log else "no")
            for text in o.ground.rival_log
        ),
        ("the spot job finished", o.job["state"] == "succeeded", o.job["state"]),
        (
            "accuracy on held-out digits",
            accuracy >= ACCURACY_MIN,
            f"{accuracy:.4f} (at least {ACCURACY_MIN})",
        ),
        (
            "final weights equal an uninterrupted run's, bit for bit",
            mine == reference,
            f"sha256 {mine[:16]}...",
        ),
        ("lost work", o.job["lost_work_seconds"] <= 10, f"{o.job['lost_work_seconds']} s"),
        (
            "the bill's segments add up",
            charged == bill,
            f"CNY {bill / 1e6:.6f} in {len(o.bill['charges'])} charges",
        ),
        (
            "spot cost less than on demand",
            0 < bill < on_demand,
            f"CNY {bill / 1e6:.6f} against {on_demand / 1e6:.6f}",
        ),
        (
            "the books balance",
            not o.ledger.get("broken") and o.ledger.get("sound", True),
            "ledger check sound",
        ),
        ("the log streamed with its progress", any("epoch" in line for line in o.log), f"{len(o.log)} lines"),
    ]


def _accuracy(log: list[str]) -> float:
    found = [re.search(r"held-out accuracy (\d\.\d+)", line) for line in log]
    values = [float(match[1]) for match in found if match]
    return values[-1] if values else 0.0


def _record_lines(o: Outcome) -> list[str]:
    record = o.record
    return [
        f"script sha256 {record['script']['sha256'][:16]}...  folder {str(record['folder'])[:23]}...",
        *(f"dataset {d['name']} v{d['version']} {str(d['manifest'])[:23]}..." for d in record["datasets"]),
        *(
            f"run {run['attempt']}: {len(run['cards'])} x {run['cards'][0]['model']}, from "
            f"{run['resume_from'] or 'nothing'}, {run['cause']}, lost {run['lost_work_seconds']} s"
            for run in record["runs"]
        ),
        f"checkpoints {len(record['checkpoints'])}, cost CNY {record['cost']}",
    ]
