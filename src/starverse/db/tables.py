"""Every table by subject, but those that the other ``*_tables.py`` of this folder hold.

Constraints repeat the rules.

Columns that are never searched may hold JSON text (``spec``, ``links``); what is queried is a column.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from starverse.db import (
    disk_tables,
    fabric_tables,
    history_tables,
    instance_tables,
    ledger_tables,
    server_tables,
)
from starverse.db.metadata import EnumText, IdText, MicroYuan, SerialKey, UtcTime, metadata, one_of
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import EndCause, NoticeReason
from starverse.domain.workloads.states import AllocationState, CheckpointState, JobState

__all__ = [
    "disk_tables",
    "fabric_tables",
    "history_tables",
    "instance_tables",
    "ledger_tables",
    "metadata",
    "server_tables",
]

# --- people -------------------------------------------------------------------------------------------

accounts = Table(
    "accounts",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("email", String(254), nullable=False, unique=True),
    Column("password_hash", Text, nullable=False),
    Column("operator", Boolean, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    CheckConstraint("email = lower(email)", name="email_lower"),
)

memberships = Table(
    "memberships",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("account_id", IdText, ForeignKey("accounts.id"), nullable=False),
    Column("member", String(32)),
    Column("since", UtcTime, nullable=False),
    UniqueConstraint("account_id", "since"),
    comment="Price-book member class (edu, or NULL for none) of an account from an instant on",
)

teams = Table(
    "teams",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("personal", Boolean, nullable=False),
    Column("unix_uid", Integer, nullable=False, unique=True),
    Column("created_at", UtcTime, nullable=False),
    CheckConstraint("unix_uid > 0", name="unix_uid_not_root"),
)

team_members = Table(
    "team_members",
    metadata,
    Column("team_id", IdText, ForeignKey("teams.id"), primary_key=True),
    Column("account_id", IdText, ForeignKey("accounts.id"), primary_key=True),
    Column("role", String(16), nullable=False),
    CheckConstraint("role IN ('owner', 'member')", name="role_known"),
    Index("ix_team_members_account_id", "account_id"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("account_id", IdText, ForeignKey("accounts.id"), nullable=False),
    Column("team_id", IdText, ForeignKey("teams.id")),
    Column("allocation_id", IdText),
    Column("name", String(64), nullable=False),
    Column("scope", String(16), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime),
    Column("revoked_at", UtcTime),
    CheckConstraint("scope IN ('account', 'team', 'workload')", name="scope_known"),
    Index("ix_tokens_account_id", "account_id"),
    Index("ix_tokens_allocation_id", "allocation_id"),
    comment="SHA-256 digests only; scope workload: the shims inside an allocation, dead with it",
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("account_id", IdText, primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("request_digest", String(64), nullable=False),
    Column("resource_id", String(96), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Index("ix_idempotency_keys_created_at", "created_at"),
    comment="What a key made, written in the transaction that made it; answers are built anew, never stored",
)

# --- prices -------------------------------------------------------------------------------------------

price_books = Table(
    "price_books",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("effective_from", UtcTime, nullable=False, unique=True),
    Column("content", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("created_by", IdText),
)

# --- cluster ------------------------------------------------------------------------------------------

nodes = Table(
    "nodes",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("zone", String(32), nullable=False),
    Column("fabric", String(8), nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("links", Text, nullable=False),
    Column("up", Boolean, nullable=False),
    Column("drained", Boolean, nullable=False),
    Column("message", Text, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
    Column("driver", String(32), nullable=False, server_default=""),
    CheckConstraint("fabric IN ('ib', 'roce', 'eth')", name="fabric_known"),
    CheckConstraint("generation >= 0", name="generation_counts"),
)

cards = Table(
    "cards",
    metadata,
    Column("id", String(96), primary_key=True),
    Column("node_id", String(64), ForeignKey("nodes.id"), nullable=False),
    Column("card_index", Integer, nullable=False),
    Column("uuid", String(96), nullable=False),
    Column("model", String(32), nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("declared", Boolean, nullable=False),
    Column("healthy", Boolean, nullable=False),
    Column("quarantined", Boolean, nullable=False),
    Column("quarantined_because", Text, nullable=False, server_default=""),
    Column("message", Text, nullable=False),
    UniqueConstraint("node_id", "card_index"),
)

# --- jobs ---------------------------------------------------------------------------------------------

counters = Table(
    "counters",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", BigInteger, nullable=False),
    comment="Numbers that people see (job numbers, Unix users); taken by a conditional update",
)

folders = Table(
    "folders",
    metadata,
    Column("team_id", IdText, ForeignKey("teams.id"), primary_key=True),
    Column("id", String(80), primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    comment="Packed submit folders, sha256:<hex>, kept once per content",
)

workspaces = Table(
    "workspaces",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("folder_id", String(80)),
    Column("created_at", UtcTime, nullable=False),
    Column("removed_at", UtcTime),
    Index(
        "ix_workspaces_kept",
        "created_at",
        sqlite_where=text("removed_at IS NULL"),
        postgresql_where=text("removed_at IS NULL"),
    ),
    comment="The writable /workspace of a submission; an array's tasks share one, as in Slurm",
)

job_specs = Table(
    "job_specs",
    metadata,
    Column("id", String(80), primary_key=True),
    Column("content", Text, nullable=False),
    comment="Specifications, sha256:<hex>, kept once per content: the tasks of an array share one",
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("array_index", Integer),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("account_id", IdText, ForeignKey("accounts.id"), nullable=False),
    Column("workspace_id", IdText, ForeignKey("workspaces.id"), nullable=False),
    Column("checkpoints_id", IdText, ForeignKey("jobs.id"), nullable=False),
    Column("name", String(256), nullable=False),
    Column("cost_label", String(256)),
    Column("spec_id", String(80), ForeignKey("job_specs.id"), nullable=False),
    Column("tariff", EnumText(Tariff), nullable=False),
    Column("state", EnumText(JobState), nullable=False),
    Column("reason", String(32), nullable=False),
    Column("message", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("failed_starts", Integer, nullable=False),
    Column("reclaims_without_checkpoint", Integer, nullable=False),
    Column("not_before", UtcTime),
    Column("cancel_requested_at", UtcTime),
    Column("submitted_at", UtcTime, nullable=False),
    Column("started_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("exit_code", Integer),
    Column("exit_signal", Integer),
    Column("resume_allowed", Boolean, nullable=False),
    Column("task_number", BigInteger),
    Column("instance_id", IdText),
    one_of("tariff", Tariff),
    one_of("state", JobState),
    CheckConstraint(
        "(state IN ('succeeded', 'failed', 'cancelled')) = (ended_at IS NOT NULL)", name="ended_has_time"
    ),
    Index("ix_jobs_number", "number"),
    Index("uq_jobs_number_array_index", "number", text("coalesce(array_index, -1)"), unique=True),
    Index("uq_jobs_task_number", "task_number", unique=True),
    Index("ix_jobs_state_submitted_at", "state", "submitted_at"),
    Index("ix_jobs_team_id_number", "team_id", "number"),
    Index("ix_jobs_team_id_state", "team_id", "state"),
    Index("ix_jobs_workspace_id", "workspace_id"),
    Index("ix_jobs_checkpoints_id", "checkpoints_id"),
    Index("ix_jobs_ended_at", "ended_at"),
    Index("ix_jobs_instance_id", "instance_id"),
    Index(
        "uq_jobs_one_resume_per_checkpoints",
        "checkpoints_id",
        unique=True,
        sqlite_where=text("state IN ('queued', 'running')"),
        postgresql_where=text("state IN ('queued', 'running')"),
    ),
)

# --- allocations --------------------------------------------------------------------------------------

allocations = Table(
    "allocations",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("job_id", IdText, ForeignKey("jobs.id"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("account_id", IdText, ForeignKey("accounts.id"), nullable=False),
    Column("tariff", EnumText(Tariff), nullable=False),
    Column("card_model", String(32)),
    Column("fabric", String(8), nullable=False),
    Column("zone", String(32), nullable=False),
    Column("state", EnumText(AllocationState), nullable=False),
    Column("cause", EnumText(EndCause)),
    Column("message", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("placed_at", UtcTime, nullable=False),
    Column("submitted_at", UtcTime),
    Column("ready_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("alive_at", UtcTime),
    Column("closed_at", UtcTime),
    Column("funded_until", UtcTime),
    Column("notice_reason", EnumText(NoticeReason)),
    Column("notice_at", UtcTime),
    Column("notice_deadline", UtcTime),
    Column("notice_for", IdText),
    Column("stop_requested_at", UtcTime),
    Column("exit_code", Integer),
    Column("exit_signal", Integer),
    Column("resume_from", String(128), nullable=False),
    Column("channel_token", String(64), nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("card_count", Integer, nullable=False),
    Column("cleaned_at", UtcTime),
    Column("examined_at", UtcTime),
    Column("signal_count", BigInteger),
    Column("signal_name", String(16)),
    Column("signal_to", String(8)),
    UniqueConstraint("job_id", "attempt"),
    one_of("tariff", Tariff),
    one_of("state", AllocationState),
    one_of("cause", EndCause),
    one_of("notice_reason", NoticeReason),
    CheckConstraint("ended_at IS NULL OR ready_at IS NULL OR ended_at >= ready_at", name="ends_after_ready"),
    Index("ix_allocations_state", "state"),
    Index("ix_allocations_team_id", "team_id"),
    Index("ix_allocations_ended_at", "ended_at"),
    Index("ix_allocations_closed_at", "closed_at"),
    Index(
        "ix_allocations_without_cards",
        "state",
        sqlite_where=text("card_count = 0"),
        postgresql_where=text("card_count = 0"),
    ),
    Index(
        "ix_allocations_not_examined",
        "placed_at",
        "id",
        sqlite_where=text("examined_at IS NULL"),
        postgresql_where=text("examined_at IS NULL"),
    ),
    Index(
        "ix_allocations_not_cleaned",
        "placed_at",
        "id",
        sqlite_where=text("cleaned_at IS NULL"),
        postgresql_where=text("cleaned_at IS NULL"),
    ),
    Index(
        "ix_allocations_notice_for",
        "notice_for",
        sqlite_where=text("notice_for IS NOT NULL"),
        postgresql_where=text("notice_for IS NOT NULL"),
    ),
    Index(
        "uq_allocations_one_open_per_job",
        "job_id",
        unique=True,
        sqlite_where=text("state IN ('placed', 'starting', 'running', 'stopping')"),
        postgresql_where=text("state IN ('placed', 'starting', 'running', 'stopping')"),
    ),
    comment="One run of a job; closed_at: its last usage is charged and its hold resolved",
)

allocation_nodes = Table(
    "allocation_nodes",
    metadata,
    Column("allocation_id", IdText, ForeignKey("allocations.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("node_id", String(64), ForeignKey("nodes.id"), nullable=False),
    Index("ix_allocation_nodes_node_id", "node_id"),
)

allocation_cards = Table(
    "allocation_cards",
    metadata,
    Column("allocation_id", IdText, ForeignKey("allocations.id"), primary_key=True),
    Column("card_id", String(96), ForeignKey("cards.id"), primary_key=True),
    Column("open", Boolean, nullable=False),
    Index(
        "uq_allocation_cards_open_card",
        "card_id",
        unique=True,
        sqlite_where=text("open = 1"),
        postgresql_where=text("open"),
    ),
    comment="A card is in one open allocation at most: the database says so",
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("job_id", IdText, ForeignKey("jobs.id"), nullable=False),
    Column("folder", String(128), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("state", EnumText(CheckpointState), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("published_at", UtcTime, nullable=False),
    Column("verified_at", UtcTime),
    Column("loaded_at", UtcTime),
    Column("message", Text, nullable=False),
    Column("removed_at", UtcTime),
    UniqueConstraint("job_id", "folder"),
    one_of("state", CheckpointState),
)

# --- money --------------------------------------------------------------------------------------------

holds = Table(
    "holds",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("allocation_id", IdText, ForeignKey("allocations.id"), nullable=False),
    Column("hour", Integer, nullable=False),
    Column("seconds", Integer, nullable=False),
    Column("amount_micro", MicroYuan, nullable=False),
    Column("state", String(8), nullable=False),
    Column("placed_at", UtcTime, nullable=False),
    Column("resolved_at", UtcTime),
    UniqueConstraint("allocation_id", "hour"),
    CheckConstraint("state IN ('open', 'posted', 'voided')", name="state_known"),
    CheckConstraint("amount_micro >= 0", name="amount_not_negative"),
    Index("ix_holds_team_id_state", "team_id", "state"),
    comment="Hold k covers hour k of an allocation, counted from ready",
)

hold_parts = Table(
    "hold_parts",
    metadata,
    Column("hold_id", IdText, ForeignKey("holds.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("transfer_id", IdText, nullable=False, unique=True),
    Column("ledger_account_id", IdText, nullable=False),
    Column("amount_micro", MicroYuan, nullable=False),
)

meters = Table(
    "meters",
    metadata,
    Column("allocation_id", IdText, ForeignKey("allocations.id"), primary_key=True),
    Column("metered_until", UtcTime, nullable=False),
    Column("accrued", Text, nullable=False),
    Column("paid", Text, nullable=False),
    comment="Where the meter stands: the exact running total and what coupons paid, as JSON text",
)

charges = Table(
    "charges",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("job_id", IdText, ForeignKey("jobs.id"), nullable=False),
    Column("allocation_id", IdText, ForeignKey("allocations.id"), nullable=False),
    Column("account_id", IdText, ForeignKey("accounts.id"), nullable=False),
    Column("cost_label", String(256)),
    Column("hour", Integer, nullable=False),
    Column("start_at", UtcTime, nullable=False),
    Column("end_at", UtcTime, nullable=False),
    Column("total_micro", MicroYuan, nullable=False),
    Column("coupon_micro", MicroYuan, nullable=False),
    Column("credit_micro", MicroYuan, nullable=False),
    Column("cash_micro", MicroYuan, nullable=False),
    Column("written_off_micro", MicroYuan, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    UniqueConstraint("allocation_id", "start_at"),
    CheckConstraint("end_at > start_at", name="ends_after_start"),
    CheckConstraint(
        "total_micro = coupon_micro + credit_micro + cash_micro + written_off_micro", name="parts_add_up"
    ),
    Index("ix_charges_team_id_end_at", "team_id", "end_at"),
    Index("ix_charges_job_id", "job_id"),
)

charge_segments = Table(
    "charge_segments",
    metadata,
    Column("charge_id", IdText, ForeignKey("charges.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("start_at", UtcTime, nullable=False),
    Column("end_at", UtcTime, nullable=False),
    Column("cards", Integer, nullable=False),
    Column("rate", Text, nullable=False),
    Column("factors", Text, nullable=False),
    Column("amount_micro", MicroYuan, nullable=False),
    Column("price_book_id", IdText, ForeignKey("price_books.id"), nullable=False),
    comment="rate: micro-yuan per card-hour as numerator/denominator; factors: JSON text, for explain",
)

credit_backs = Table(
    "credit_backs",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("allocation_id", IdText, ForeignKey("allocations.id"), nullable=False, unique=True),
    Column("lost_seconds", Integer, nullable=False),
    Column("amount_micro", MicroYuan, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    comment="Seconds since the newest verified checkpoint, given back after a lost node or a card fault",
)

topups = Table(
    "topups",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("account_id", IdText, ForeignKey("accounts.id"), nullable=False),
    Column("provider", String(16), nullable=False),
    Column("provider_reference", String(128), nullable=False),
    Column("amount_micro", MicroYuan, nullable=False),
    Column("state", String(8), nullable=False),
    Column("automatic", Boolean, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("paid_at", UtcTime),
    Column("transfer_id", IdText),
    UniqueConstraint("provider", "provider_reference"),
    CheckConstraint("state IN ('pending', 'paid', 'failed')", name="state_known"),
    CheckConstraint("amount_micro > 0", name="amount_positive"),
)

refunds = Table(
    "refunds",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("topup_id", IdText, ForeignKey("topups.id"), nullable=False),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("amount_micro", MicroYuan, nullable=False),
    Column("transfer_id", IdText, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("done_at", UtcTime, comment="When the provider had been told; NULL: it is still pending"),
    CheckConstraint("amount_micro > 0", name="amount_positive"),
    Index(
        "ix_refunds_pending",
        "id",
        sqlite_where=text("done_at IS NULL"),
        postgresql_where=text("done_at IS NULL"),
    ),
)

auto_topups = Table(
    "auto_topups",
    metadata,
    Column("team_id", IdText, ForeignKey("teams.id"), primary_key=True),
    Column("account_id", IdText, ForeignKey("accounts.id"), nullable=False),
    Column("below_micro", MicroYuan, nullable=False),
    Column("amount_micro", MicroYuan, nullable=False),
    Column("armed", Boolean, nullable=False),
    comment="One top-up per crossing: fired once, armed again when the money is above the mark",
)

# --- shelf --------------------------------------------------------------------------------------------

datasets = Table(
    "datasets",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("name", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("state", String(12), nullable=False),
    Column("title", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("licence", Text, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("manifest_digest", String(80), nullable=False),
    Column("files", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("added_at", UtcTime, nullable=False),
    Column("verified_at", UtcTime),
    Column("message", Text, nullable=False),
    UniqueConstraint("name", "version"),
    CheckConstraint("state IN ('added', 'verified', 'damaged')", name="state_known"),
)

# --- what happened ------------------------------------------------------------------------------------

events = Table(
    "events",
    metadata,
    Column("id", SerialKey, primary_key=True, autoincrement=True),
    Column("at", UtcTime, nullable=False),
    Column("team_id", IdText),
    Column("account_id", IdText),
    Column("subject_kind", String(16), nullable=False),
    Column("subject_id", String(96), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("reason", String(32), nullable=False),
    Column("message", Text, nullable=False),
    Index("ix_events_subject_id", "subject_id"),
    Index("ix_events_team_id_id", "team_id", "id"),
)
