"""The schema of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from starverse.db.ledger_tables import immutable_transfers_sql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SERIAL_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _accounts()
    _counters()
    _datasets()
    _events()
    _idempotency_keys()
    _ledger_accounts()
    _nodes()
    _price_books()
    _teams()
    _auto_topups()
    _cards()
    _folders()
    _memberships()
    _team_members()
    _tokens()
    _topups()
    _transfers()
    _workspaces()
    _job_specs()
    _jobs()
    _open_holds()
    _refunds()
    _allocations()
    _checkpoints()
    _allocation_cards()
    _allocation_nodes()
    _charges()
    _credit_backs()
    _holds()
    _meters()
    _charge_segments()
    _hold_parts()
    for statement in immutable_transfers_sql(op.get_bind().dialect.name):
        op.execute(statement)


def _accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("operator", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("email = lower(email)", name=op.f("ck_accounts_email_lower")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("email", name=op.f("uq_accounts_email")),
    )


def _counters() -> None:
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
        comment="Numbers that people see (job numbers, Unix users); taken by a conditional update",
    )


def _datasets() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("licence", sa.Text(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("manifest_digest", sa.String(length=80), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.Column("verified_at", sa.BigInteger(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.CheckConstraint("state IN ('added', 'verified', 'damaged')", name=op.f("ck_datasets_state_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_datasets_name_version")),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", SERIAL_KEY, autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=True),
        sa.Column("account_id", sa.String(length=64), nullable=True),
        sa.Column("subject_kind", sa.String(length=16), nullable=False),
        sa.Column("subject_id", sa.String(length=96), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index("ix_events_subject_id", ["subject_id"], unique=False)
        batch_op.create_index("ix_events_team_id_id", ["team_id", "id"], unique=False)


def _idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("resource_id", sa.String(length=96), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "key", name=op.f("pk_idempotency_keys")),
        comment="What a key made, written in the transaction that made it; answers are built anew, never stored",
    )
    with op.batch_alter_table("idempotency_keys", schema=None) as batch_op:
        batch_op.create_index("ix_idempotency_keys_created_at", ["created_at"], unique=False)


def _ledger_accounts() -> None:
    op.create_table(
        "ledger_accounts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=True),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("redeemed_at", sa.BigInteger(), nullable=True),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("debits_pending", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("debits_posted", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("credits_pending", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("credits_posted", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "(redeemed_at IS NOT NULL) = (kind = 'coupon')",
            name=op.f("ck_ledger_accounts_only_coupons_are_redeemed"),
        ),
        sa.CheckConstraint(
            "(team_id IS NOT NULL) = (kind IN ('cash', 'coupon', 'credit'))",
            name=op.f("ck_ledger_accounts_team_owns_its_kinds"),
        ),
        sa.CheckConstraint(
            "expires_at IS NULL OR kind IN ('credit', 'coupon')",
            name=op.f("ck_ledger_accounts_only_gifts_expire"),
        ),
        sa.CheckConstraint(
            "kind IN ('cash', 'credit', 'coupon', 'gateway', 'revenue', 'gifts', 'write_off')",
            name=op.f("ck_ledger_accounts_kind_known"),
        ),
        sa.CheckConstraint(
            "kind NOT IN ('cash', 'coupon', 'credit', 'revenue') OR debits_posted + debits_pending <= credits_posted",
            name=op.f("ck_ledger_accounts_debits_within_credits"),
        ),
        sa.CheckConstraint(
            "kind NOT IN ('gateway', 'gifts', 'write_off') OR credits_posted + credits_pending <= debits_posted",
            name=op.f("ck_ledger_accounts_credits_within_debits"),
        ),
        sa.CheckConstraint(
            "debits_pending >= 0 AND debits_posted >= 0 AND credits_pending >= 0 AND credits_posted >= 0",
            name=op.f("ck_ledger_accounts_counters_not_negative"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_accounts")),
    )
    with op.batch_alter_table("ledger_accounts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_ledger_accounts_team_id"), ["team_id"], unique=False)
        batch_op.create_index(
            "uq_ledger_accounts_cash_of_team",
            ["team_id"],
            unique=True,
            sqlite_where=sa.text("kind = 'cash'"),
            postgresql_where=sa.text("kind = 'cash'"),
        )


def _nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("zone", sa.String(length=32), nullable=False),
        sa.Column("fabric", sa.String(length=8), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("links", sa.Text(), nullable=False),
        sa.Column("up", sa.Boolean(), nullable=False),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("fabric IN ('ib', 'roce', 'eth')", name=op.f("ck_nodes_fabric_known")),
        sa.CheckConstraint("generation >= 0", name=op.f("ck_nodes_generation_counts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
    )


def _price_books() -> None:
    op.create_table(
        "price_books",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("effective_from", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_price_books")),
        sa.UniqueConstraint("effective_from", name=op.f("uq_price_books_effective_from")),
    )


def _teams() -> None:
    op.create_table(
        "teams",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("personal", sa.Boolean(), nullable=False),
        sa.Column("unix_uid", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("unix_uid > 0", name=op.f("ck_teams_unix_uid_not_root")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_teams")),
        sa.UniqueConstraint("name", name=op.f("uq_teams_name")),
        sa.UniqueConstraint("unix_uid", name=op.f("uq_teams_unix_uid")),
    )


def _auto_topups() -> None:
    op.create_table(
        "auto_topups",
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("below_micro", sa.BigInteger(), nullable=False),
        sa.Column("amount_micro", sa.BigInteger(), nullable=False),
        sa.Column("armed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_auto_topups_account_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_auto_topups_team_id")),
        sa.PrimaryKeyConstraint("team_id", name=op.f("pk_auto_topups")),
        comment="One top-up per crossing: fired once, armed again when the money is above the mark",
    )


def _cards() -> None:
    op.create_table(
        "cards",
        sa.Column("id", sa.String(length=96), nullable=False),
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.Column("card_index", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=96), nullable=False),
        sa.Column("model", sa.String(length=32), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("declared", sa.Boolean(), nullable=False),
        sa.Column("healthy", sa.Boolean(), nullable=False),
        sa.Column("quarantined", sa.Boolean(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_cards_node_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cards")),
        sa.UniqueConstraint("node_id", "card_index", name=op.f("uq_cards_node_id_card_index")),
    )


def _folders() -> None:
    op.create_table(
        "folders",
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_folders_team_id")),
        sa.PrimaryKeyConstraint("team_id", "id", name=op.f("pk_folders")),
        comment="Packed submit folders, sha256:<hex>, kept once per content",
    )


def _memberships() -> None:
    op.create_table(
        "memberships",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("member", sa.String(length=32), nullable=True),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_memberships_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_memberships")),
        sa.UniqueConstraint("account_id", "since", name=op.f("uq_memberships_account_id_since")),
        comment="Price-book member class (edu, or NULL for none) of an account from an instant on",
    )


def _team_members() -> None:
    op.create_table(
        "team_members",
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.CheckConstraint("role IN ('owner', 'member')", name=op.f("ck_team_members_role_known")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_team_members_account_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_team_members_team_id")),
        sa.PrimaryKeyConstraint("team_id", "account_id", name=op.f("pk_team_members")),
    )


def _tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=True),
        sa.Column("allocation_id", sa.String(length=64), nullable=True),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("scope IN ('account', 'team', 'workload')", name=op.f("ck_tokens_scope_known")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_tokens_account_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_tokens_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
        comment="SHA-256 digests only; scope workload: the shims inside an allocation, dead with it",
    )
    with op.batch_alter_table("tokens", schema=None) as batch_op:
        batch_op.create_index("ix_tokens_account_id", ["account_id"], unique=False)
        batch_op.create_index("ix_tokens_allocation_id", ["allocation_id"], unique=False)


def _topups() -> None:
    op.create_table(
        "topups",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("provider", sa.String(length=16), nullable=False),
        sa.Column("provider_reference", sa.String(length=128), nullable=False),
        sa.Column("amount_micro", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("automatic", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("paid_at", sa.BigInteger(), nullable=True),
        sa.Column("transfer_id", sa.String(length=64), nullable=True),
        sa.CheckConstraint("state IN ('pending', 'paid', 'failed')", name=op.f("ck_topups_state_known")),
        sa.CheckConstraint("amount_micro > 0", name=op.f("ck_topups_amount_positive")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_topups_account_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_topups_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_topups")),
        sa.UniqueConstraint(
            "provider", "provider_reference", name=op.f("uq_topups_provider_provider_reference")
        ),
    )


def _transfers() -> None:
    op.create_table(
        "transfers",
        sa.Column("sequence", SERIAL_KEY, nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("debit_id", sa.String(length=64), nullable=False),
        sa.Column("credit_id", sa.String(length=64), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=True),
        sa.Column("resolves", sa.String(length=64), nullable=True),
        sa.Column("refunds", sa.String(length=64), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(resolves IS NOT NULL) = (kind IN ('expire_pending', 'post_pending', 'void_pending'))",
            name=op.f("ck_transfers_resolving_kinds_resolve"),
        ),
        sa.CheckConstraint(
            "expires_at IS NULL OR kind = 'pending'", name=op.f("ck_transfers_only_pending_expires")
        ),
        sa.CheckConstraint(
            "kind IN ('posted', 'pending', 'post_pending', 'void_pending', 'expire_pending')",
            name=op.f("ck_transfers_kind_known"),
        ),
        sa.CheckConstraint(
            "purpose IN ('top_up', 'gift', 'coupon', 'charge', 'refund', 'goodwill', 'write_off', 'expiry')",
            name=op.f("ck_transfers_purpose_known"),
        ),
        sa.CheckConstraint(
            "refunds IS NULL OR kind = 'posted'", name=op.f("ck_transfers_only_posted_refunds")
        ),
        sa.CheckConstraint("amount > 0", name=op.f("ck_transfers_amount_positive")),
        sa.CheckConstraint("debit_id <> credit_id", name=op.f("ck_transfers_two_accounts")),
        sa.ForeignKeyConstraint(["credit_id"], ["ledger_accounts.id"], name=op.f("fk_transfers_credit_id")),
        sa.ForeignKeyConstraint(["debit_id"], ["ledger_accounts.id"], name=op.f("fk_transfers_debit_id")),
        sa.ForeignKeyConstraint(["refunds"], ["transfers.id"], name=op.f("fk_transfers_refunds")),
        sa.ForeignKeyConstraint(["resolves"], ["transfers.id"], name=op.f("fk_transfers_resolves")),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_transfers")),
        sa.UniqueConstraint("id", name=op.f("uq_transfers_id")),
    )
    with op.batch_alter_table("transfers", schema=None) as batch_op:
        batch_op.create_index("ix_transfers_credit_id_sequence", ["credit_id", "sequence"], unique=False)
        batch_op.create_index("ix_transfers_debit_id_sequence", ["debit_id", "sequence"], unique=False)
        batch_op.create_index(
            "ix_transfers_refunds",
            ["refunds"],
            unique=False,
            sqlite_where=sa.text("refunds IS NOT NULL"),
            postgresql_where=sa.text("refunds IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_transfers_subject",
            ["subject"],
            unique=False,
            sqlite_where=sa.text("subject IS NOT NULL"),
            postgresql_where=sa.text("subject IS NOT NULL"),
        )
        batch_op.create_index(
            "uq_transfers_resolves",
            ["resolves"],
            unique=True,
            sqlite_where=sa.text("resolves IS NOT NULL"),
            postgresql_where=sa.text("resolves IS NOT NULL"),
        )


def _workspaces() -> None:
    op.create_table(
        "workspaces",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("folder_id", sa.String(length=80), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_workspaces_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspaces")),
        comment="The writable /workspace of a submission; an array's tasks share one, as in Slurm",
    )
    with op.batch_alter_table("workspaces", schema=None) as batch_op:
        batch_op.create_index(
            "ix_workspaces_kept",
            ["created_at"],
            unique=False,
            sqlite_where=sa.text("removed_at IS NULL"),
            postgresql_where=sa.text("removed_at IS NULL"),
        )


def _job_specs() -> None:
    op.create_table(
        "job_specs",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_specs")),
        comment="Specifications, sha256:<hex>, kept once per content: the tasks of an array share one",
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("array_index", sa.Integer(), nullable=True),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("checkpoints_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("cost_label", sa.String(length=256), nullable=True),
        sa.Column("spec_id", sa.String(length=80), nullable=False),
        sa.Column("tariff", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("failed_starts", sa.Integer(), nullable=False),
        sa.Column("reclaims_without_checkpoint", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=True),
        sa.Column("cancel_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("submitted_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("exit_signal", sa.Integer(), nullable=True),
        sa.Column("resume_allowed", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "(state IN ('succeeded', 'failed', 'cancelled')) = (ended_at IS NOT NULL)",
            name=op.f("ck_jobs_ended_has_time"),
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_jobs_state_known"),
        ),
        sa.CheckConstraint(
            "tariff IN ('on_demand', 'spot', 'reserved', 'idle', 'no_gpu', 'day', 'month', 'year')",
            name=op.f("ck_jobs_tariff_known"),
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_jobs_account_id")),
        sa.ForeignKeyConstraint(["checkpoints_id"], ["jobs.id"], name=op.f("fk_jobs_checkpoints_id")),
        sa.ForeignKeyConstraint(["spec_id"], ["job_specs.id"], name=op.f("fk_jobs_spec_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_jobs_team_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_jobs_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index("ix_jobs_number", ["number"], unique=False)
        batch_op.create_index("ix_jobs_state_submitted_at", ["state", "submitted_at"], unique=False)
        batch_op.create_index("ix_jobs_team_id_number", ["team_id", "number"], unique=False)
        batch_op.create_index("ix_jobs_workspace_id", ["workspace_id"], unique=False)
        batch_op.create_index("ix_jobs_checkpoints_id", ["checkpoints_id"], unique=False)
        batch_op.create_index("ix_jobs_ended_at", ["ended_at"], unique=False)
        batch_op.create_index(
            "uq_jobs_one_resume_per_checkpoints",
            ["checkpoints_id"],
            unique=True,
            sqlite_where=sa.text("state IN ('queued', 'running')"),
            postgresql_where=sa.text("state IN ('queued', 'running')"),
        )
    op.create_index(
        "uq_jobs_number_array_index", "jobs", ["number", sa.text("coalesce(array_index, -1)")], unique=True
    )


def _open_holds() -> None:
    op.create_table(
        "open_holds",
        sa.Column("transfer_id", sa.String(length=64), nullable=False),
        sa.Column("debit_id", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["debit_id"], ["ledger_accounts.id"], name=op.f("fk_open_holds_debit_id")),
        sa.ForeignKeyConstraint(["transfer_id"], ["transfers.id"], name=op.f("fk_open_holds_transfer_id")),
        sa.PrimaryKeyConstraint("transfer_id", name=op.f("pk_open_holds")),
    )
    with op.batch_alter_table("open_holds", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_open_holds_debit_id"), ["debit_id"], unique=False)
        batch_op.create_index(
            "ix_open_holds_expires_at",
            ["expires_at"],
            unique=False,
            sqlite_where=sa.text("expires_at IS NOT NULL"),
            postgresql_where=sa.text("expires_at IS NOT NULL"),
        )


def _refunds() -> None:
    op.create_table(
        "refunds",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("topup_id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("amount_micro", sa.BigInteger(), nullable=False),
        sa.Column("transfer_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column(
            "done_at",
            sa.BigInteger(),
            nullable=True,
            comment="When the provider had been told; NULL: it is still pending",
        ),
        sa.CheckConstraint("amount_micro > 0", name=op.f("ck_refunds_amount_positive")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_refunds_team_id")),
        sa.ForeignKeyConstraint(["topup_id"], ["topups.id"], name=op.f("fk_refunds_topup_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refunds")),
    )
    with op.batch_alter_table("refunds", schema=None) as batch_op:
        batch_op.create_index(
            "ix_refunds_pending",
            ["id"],
            unique=False,
            sqlite_where=sa.text("done_at IS NULL"),
            postgresql_where=sa.text("done_at IS NULL"),
        )


def _allocations() -> None:
    op.create_table(
        "allocations",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("tariff", sa.Text(), nullable=False),
        sa.Column("card_model", sa.String(length=32), nullable=True),
        sa.Column("fabric", sa.String(length=8), nullable=False),
        sa.Column("zone", sa.String(length=32), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("placed_at", sa.BigInteger(), nullable=False),
        sa.Column("submitted_at", sa.BigInteger(), nullable=True),
        sa.Column("ready_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("alive_at", sa.BigInteger(), nullable=True),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.Column("funded_until", sa.BigInteger(), nullable=True),
        sa.Column("notice_reason", sa.Text(), nullable=True),
        sa.Column("notice_at", sa.BigInteger(), nullable=True),
        sa.Column("notice_deadline", sa.BigInteger(), nullable=True),
        sa.Column("notice_for", sa.String(length=64), nullable=True),
        sa.Column("stop_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("exit_signal", sa.Integer(), nullable=True),
        sa.Column("resume_from", sa.String(length=128), nullable=False),
        sa.Column("channel_token", sa.String(length=64), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("card_count", sa.Integer(), nullable=False),
        sa.Column("cleaned_at", sa.BigInteger(), nullable=True),
        sa.Column("examined_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "cause IN ('completed', 'user_code', 'out_of_memory', 'card_fault', 'node_lost', 'reclaimed', 'time_limit', 'money', 'cost_max', 'window', 'cancelled', 'start_failed', 'platform')",
            name=op.f("ck_allocations_cause_known"),
        ),
        sa.CheckConstraint(
            "notice_reason IN ('reclaim', 'no_money', 'cost_max', 'window_closed', 'time_limit', 'cancel', 'card_fault')",
            name=op.f("ck_allocations_notice_reason_known"),
        ),
        sa.CheckConstraint(
            "state IN ('placed', 'starting', 'running', 'stopping', 'ended', 'failed_to_start', 'lost')",
            name=op.f("ck_allocations_state_known"),
        ),
        sa.CheckConstraint(
            "tariff IN ('on_demand', 'spot', 'reserved', 'idle', 'no_gpu', 'day', 'month', 'year')",
            name=op.f("ck_allocations_tariff_known"),
        ),
        sa.CheckConstraint(
            "ended_at IS NULL OR ready_at IS NULL OR ended_at >= ready_at",
            name=op.f("ck_allocations_ends_after_ready"),
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_allocations_account_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_allocations_job_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_allocations_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
        sa.UniqueConstraint("job_id", "attempt", name=op.f("uq_allocations_job_id_attempt")),
        comment="One run of a job; closed_at: its last usage is charged and its hold resolved",
    )
    with op.batch_alter_table("allocations", schema=None) as batch_op:
        batch_op.create_index("ix_allocations_state", ["state"], unique=False)
        batch_op.create_index("ix_allocations_team_id", ["team_id"], unique=False)
        batch_op.create_index("ix_allocations_ended_at", ["ended_at"], unique=False)
        batch_op.create_index(
            "ix_allocations_not_examined",
            ["placed_at", "id"],
            unique=False,
            sqlite_where=sa.text("examined_at IS NULL"),
            postgresql_where=sa.text("examined_at IS NULL"),
        )
        batch_op.create_index(
            "ix_allocations_not_cleaned",
            ["placed_at", "id"],
            unique=False,
            sqlite_where=sa.text("cleaned_at IS NULL"),
            postgresql_where=sa.text("cleaned_at IS NULL"),
        )
        batch_op.create_index(
            "ix_allocations_notice_for",
            ["notice_for"],
            unique=False,
            sqlite_where=sa.text("notice_for IS NOT NULL"),
            postgresql_where=sa.text("notice_for IS NOT NULL"),
        )
        batch_op.create_index(
            "uq_allocations_one_open_per_job",
            ["job_id"],
            unique=True,
            sqlite_where=sa.text("state IN ('placed', 'starting', 'running', 'stopping')"),
            postgresql_where=sa.text("state IN ('placed', 'starting', 'running', 'stopping')"),
        )


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("folder", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("published_at", sa.BigInteger(), nullable=False),
        sa.Column("verified_at", sa.BigInteger(), nullable=True),
        sa.Column("loaded_at", sa.BigInteger(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state IN ('writing', 'published', 'abandoned')", name=op.f("ck_checkpoints_state_known")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
        sa.UniqueConstraint("job_id", "folder", name=op.f("uq_checkpoints_job_id_folder")),
    )


def _allocation_cards() -> None:
    op.create_table(
        "allocation_cards",
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("card_id", sa.String(length=96), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["allocation_id"], ["allocations.id"], name=op.f("fk_allocation_cards_allocation_id")
        ),
        sa.ForeignKeyConstraint(["card_id"], ["cards.id"], name=op.f("fk_allocation_cards_card_id")),
        sa.PrimaryKeyConstraint("allocation_id", "card_id", name=op.f("pk_allocation_cards")),
        comment="A card is in one open allocation at most: the database says so",
    )
    with op.batch_alter_table("allocation_cards", schema=None) as batch_op:
        batch_op.create_index(
            "uq_allocation_cards_open_card",
            ["card_id"],
            unique=True,
            sqlite_where=sa.text("open = 1"),
            postgresql_where=sa.text("open"),
        )


def _allocation_nodes() -> None:
    op.create_table(
        "allocation_nodes",
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["allocation_id"], ["allocations.id"], name=op.f("fk_allocation_nodes_allocation_id")
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_allocation_nodes_node_id")),
        sa.PrimaryKeyConstraint("allocation_id", "position", name=op.f("pk_allocation_nodes")),
    )
    with op.batch_alter_table("allocation_nodes", schema=None) as batch_op:
        batch_op.create_index("ix_allocation_nodes_node_id", ["node_id"], unique=False)


def _charges() -> None:
    op.create_table(
        "charges",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("cost_label", sa.String(length=256), nullable=True),
        sa.Column("hour", sa.Integer(), nullable=False),
        sa.Column("start_at", sa.BigInteger(), nullable=False),
        sa.Column("end_at", sa.BigInteger(), nullable=False),
        sa.Column("total_micro", sa.BigInteger(), nullable=False),
        sa.Column("coupon_micro", sa.BigInteger(), nullable=False),
        sa.Column("credit_micro", sa.BigInteger(), nullable=False),
        sa.Column("cash_micro", sa.BigInteger(), nullable=False),
        sa.Column("written_off_micro", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("end_at > start_at", name=op.f("ck_charges_ends_after_start")),
        sa.CheckConstraint(
            "total_micro = coupon_micro + credit_micro + cash_micro + written_off_micro",
            name=op.f("ck_charges_parts_add_up"),
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_charges_account_id")),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocations.id"], name=op.f("fk_charges_allocation_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_charges_job_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_charges_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_charges")),
        sa.UniqueConstraint("allocation_id", "start_at", name=op.f("uq_charges_allocation_id_start_at")),
    )
    with op.batch_alter_table("charges", schema=None) as batch_op:
        batch_op.create_index("ix_charges_job_id", ["job_id"], unique=False)
        batch_op.create_index("ix_charges_team_id_end_at", ["team_id", "end_at"], unique=False)


def _credit_backs() -> None:
    op.create_table(
        "credit_backs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("lost_seconds", sa.Integer(), nullable=False),
        sa.Column("amount_micro", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["allocation_id"], ["allocations.id"], name=op.f("fk_credit_backs_allocation_id")
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_credit_backs_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credit_backs")),
        sa.UniqueConstraint("allocation_id", name=op.f("uq_credit_backs_allocation_id")),
        comment="Seconds since the newest verified checkpoint, given back after a lost node or a card fault",
    )


def _holds() -> None:
    op.create_table(
        "holds",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("hour", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Integer(), nullable=False),
        sa.Column("amount_micro", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("placed_at", sa.BigInteger(), nullable=False),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("state IN ('open', 'posted', 'voided')", name=op.f("ck_holds_state_known")),
        sa.CheckConstraint("amount_micro >= 0", name=op.f("ck_holds_amount_not_negative")),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocations.id"], name=op.f("fk_holds_allocation_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_holds_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_holds")),
        sa.UniqueConstraint("allocation_id", "hour", name=op.f("uq_holds_allocation_id_hour")),
        comment="Hold k covers hour k of an allocation, counted from ready",
    )
    with op.batch_alter_table("holds", schema=None) as batch_op:
        batch_op.create_index("ix_holds_team_id_state", ["team_id", "state"], unique=False)


def _meters() -> None:
    op.create_table(
        "meters",
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("metered_until", sa.BigInteger(), nullable=False),
        sa.Column("accrued", sa.Text(), nullable=False),
        sa.Column("paid", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocations.id"], name=op.f("fk_meters_allocation_id")),
        sa.PrimaryKeyConstraint("allocation_id", name=op.f("pk_meters")),
        comment="Where the meter stands: the exact running total and what coupons paid, as JSON text",
    )


def _charge_segments() -> None:
    op.create_table(
        "charge_segments",
        sa.Column("charge_id", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("start_at", sa.BigInteger(), nullable=False),
        sa.Column("end_at", sa.BigInteger(), nullable=False),
        sa.Column("cards", sa.Integer(), nullable=False),
        sa.Column("rate", sa.Text(), nullable=False),
        sa.Column("factors", sa.Text(), nullable=False),
        sa.Column("amount_micro", sa.BigInteger(), nullable=False),
        sa.Column("price_book_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["charge_id"], ["charges.id"], name=op.f("fk_charge_segments_charge_id")),
        sa.ForeignKeyConstraint(
            ["price_book_id"], ["price_books.id"], name=op.f("fk_charge_segments_price_book_id")
        ),
        sa.PrimaryKeyConstraint("charge_id", "position", name=op.f("pk_charge_segments")),
        comment="rate: micro-yuan per card-hour as numerator/denominator; factors: JSON text, for explain",
    )


def _hold_parts() -> None:
    op.create_table(
        "hold_parts",
        sa.Column("hold_id", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("transfer_id", sa.String(length=64), nullable=False),
        sa.Column("ledger_account_id", sa.String(length=64), nullable=False),
        sa.Column("amount_micro", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["hold_id"], ["holds.id"], name=op.f("fk_hold_parts_hold_id")),
        sa.PrimaryKeyConstraint("hold_id", "position", name=op.f("pk_hold_parts")),
        sa.UniqueConstraint("transfer_id", name=op.f("uq_hold_parts_transfer_id")),
    )
