"""Disks, who has them, their snapshots and copies, what they cost; images."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _make_disks()
    _make_images()
    _make_disk_charges()
    _make_disk_meters()
    _make_disk_sizes()
    _make_disk_snapshots()
    _make_disk_syncs()
    _make_instance_disks()
    _make_attachments()


def _make_disks() -> None:
    op.create_table(
        "disks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("gib", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column(
            "made_from",
            sa.String(length=64),
            nullable=True,
            comment="The snapshot that it began as; NULL: it began empty",
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("purged_at", sa.BigInteger(), nullable=True),
        sa.Column(
            "made_gib",
            sa.Integer(),
            nullable=True,
            comment="The size that its storage has; NULL: it has none yet",
        ),
        sa.Column("used_bytes", sa.BigInteger(), nullable=True),
        sa.Column("used_files", sa.BigInteger(), nullable=True),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.Column("hard_quota", sa.Boolean(), nullable=False),
        sa.Column("snapshot_schedule", sa.String(length=64), nullable=True),
        sa.Column("snapshots_kept", sa.Integer(), nullable=True),
        sa.Column("snapshot_due_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(state IN ('deleted', 'purged')) = (deleted_at IS NOT NULL)",
            name=op.f("ck_disks_deleted_has_time"),
        ),
        sa.CheckConstraint("kind IN ('block', 'shared')", name=op.f("ck_disks_kind_known")),
        sa.CheckConstraint(
            "state IN ('making', 'ready', 'failed', 'deleted', 'purged')", name=op.f("ck_disks_state_known")
        ),
        sa.CheckConstraint("gib > 0", name=op.f("ck_disks_gib_positive")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_disks_account_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_disks_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_disks")),
    )
    op.create_index("ix_disks_snapshot_due_at", "disks", ["snapshot_due_at"])
    op.create_index("ix_disks_state", "disks", ["state"])
    op.create_index(
        "uq_disks_team_id_name",
        "disks",
        ["team_id", "name"],
        unique=True,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )


def _make_images() -> None:
    op.create_table(
        "images",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column(
            "team_id", sa.String(length=64), nullable=True, comment="NULL: of the platform, for everybody"
        ),
        sa.Column("account_id", sa.String(length=64), nullable=True),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("recipe", sa.Text(), nullable=False),
        sa.Column("recipe_digest", sa.String(length=80), nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("contents", sa.Text(), nullable=False),
        sa.Column("python", sa.String(length=32), nullable=False),
        sa.Column("cuda", sa.String(length=16), nullable=False),
        sa.Column("driver_min", sa.String(length=32), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("built_at", sa.BigInteger(), nullable=True),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("kind IN ('venv', 'conda', 'oci', 'saved')", name=op.f("ck_images_kind_known")),
        sa.CheckConstraint("state <> 'ready' OR digest IS NOT NULL", name=op.f("ck_images_ready_has_digest")),
        sa.CheckConstraint(
            "state IN ('queued', 'building', 'ready', 'failed', 'removed')",
            name=op.f("ck_images_state_known"),
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_images_account_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_images_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_images")),
        comment="recipe: what it is built from; contents: its packages with versions, JSON; digest names its bytes",
    )
    op.create_index("ix_images_state", "images", ["state"])
    op.create_index(
        "uq_images_team_name",
        "images",
        [sa.text("coalesce(team_id, '')"), "name"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )


def _make_disk_charges() -> None:
    op.create_table(
        "disk_charges",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("disk_id", sa.String(length=64), nullable=False),
        sa.Column("start_at", sa.BigInteger(), nullable=False),
        sa.Column("end_at", sa.BigInteger(), nullable=False),
        sa.Column("total_micro", sa.BigInteger(), nullable=False),
        sa.Column("coupon_micro", sa.BigInteger(), nullable=False),
        sa.Column("credit_micro", sa.BigInteger(), nullable=False),
        sa.Column("cash_micro", sa.BigInteger(), nullable=False),
        sa.Column("written_off_micro", sa.BigInteger(), nullable=False),
        sa.Column("segments", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("end_at > start_at", name=op.f("ck_disk_charges_ends_after_start")),
        sa.CheckConstraint(
            "total_micro = coupon_micro + credit_micro + cash_micro + written_off_micro",
            name=op.f("ck_disk_charges_parts_add_up"),
        ),
        sa.ForeignKeyConstraint(["disk_id"], ["disks.id"], name=op.f("fk_disk_charges_disk_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_disk_charges_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_disk_charges")),
        sa.UniqueConstraint("disk_id", "start_at", name=op.f("uq_disk_charges_disk_id_start_at")),
        comment="segments: GiB, price and seconds of each part, as JSON text, for explain",
    )
    op.create_index("ix_disk_charges_team_id_end_at", "disk_charges", ["team_id", "end_at"])


def _make_disk_meters() -> None:
    op.create_table(
        "disk_meters",
        sa.Column("disk_id", sa.String(length=64), nullable=False),
        sa.Column("metered_until", sa.BigInteger(), nullable=False),
        sa.Column("accrued", sa.Text(), nullable=False),
        sa.Column("paid", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["disk_id"], ["disks.id"], name=op.f("fk_disk_meters_disk_id")),
        sa.PrimaryKeyConstraint("disk_id", name=op.f("pk_disk_meters")),
        comment="Where a disk's meter stands: the exact running total and what coupons paid, as JSON text",
    )


def _make_disk_sizes() -> None:
    op.create_table(
        "disk_sizes",
        sa.Column("disk_id", sa.String(length=64), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("gib", sa.Integer(), nullable=False),
        sa.CheckConstraint("gib >= 0", name=op.f("ck_disk_sizes_gib_not_negative")),
        sa.ForeignKeyConstraint(["disk_id"], ["disks.id"], name=op.f("fk_disk_sizes_disk_id")),
        sa.PrimaryKeyConstraint("disk_id", "since", name=op.f("pk_disk_sizes")),
        comment="What is charged from an instant on; 0 from the deletion on. Never changed: bills follow from it",
    )


def _make_disk_snapshots() -> None:
    op.create_table(
        "disk_snapshots",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("disk_id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=True),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("scheduled", sa.Boolean(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("gib", sa.Integer(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=True),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state IN ('making', 'made', 'failed', 'removed')", name=op.f("ck_disk_snapshots_state_known")
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_disk_snapshots_account_id")),
        sa.ForeignKeyConstraint(["disk_id"], ["disks.id"], name=op.f("fk_disk_snapshots_disk_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_disk_snapshots_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_disk_snapshots")),
    )
    op.create_index("ix_disk_snapshots_disk_id", "disk_snapshots", ["disk_id"])
    op.create_index("ix_disk_snapshots_state", "disk_snapshots", ["state"])
    op.create_index(
        "uq_disk_snapshots_disk_id_name",
        "disk_snapshots",
        ["disk_id", "name"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )


def _make_disk_syncs() -> None:
    op.create_table(
        "disk_syncs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("disk_id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("remote", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("secret_name", sa.String(length=64), nullable=True),
        sa.Column("bytes_per_second_max", sa.BigInteger(), nullable=True),
        sa.Column("verify", sa.Boolean(), nullable=False),
        sa.Column("schedule", sa.String(length=64), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("cancel_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("bytes_done", sa.BigInteger(), nullable=False),
        sa.Column("bytes_total", sa.BigInteger(), nullable=True),
        sa.Column("files_done", sa.BigInteger(), nullable=False),
        sa.Column("files_total", sa.BigInteger(), nullable=True),
        sa.Column("verified_at", sa.BigInteger(), nullable=True),
        sa.Column(
            "schedule_of",
            sa.String(length=64),
            nullable=True,
            comment="The scheduled sync that this is one run of; NULL: asked for",
        ),
        sa.Column(
            "holder",
            sa.String(length=64),
            nullable=True,
            comment="The server that runs it, by its own id of this start",
        ),
        sa.Column(
            "lease_until",
            sa.BigInteger(),
            nullable=True,
            comment="By the database's clock; past it another server takes it up",
        ),
        sa.Column("bytes_per_second", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(state = 'running') = (holder IS NOT NULL)", name=op.f("ck_disk_syncs_running_is_held")
        ),
        sa.CheckConstraint("direction IN ('pull', 'push')", name=op.f("ck_disk_syncs_direction_known")),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_disk_syncs_state_known"),
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_disk_syncs_account_id")),
        sa.ForeignKeyConstraint(["disk_id"], ["disks.id"], name=op.f("fk_disk_syncs_disk_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_disk_syncs_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_disk_syncs")),
    )
    op.create_index("ix_disk_syncs_disk_id", "disk_syncs", ["disk_id"])
    op.create_index("ix_disk_syncs_due_at", "disk_syncs", ["due_at"])
    op.create_index("ix_disk_syncs_state", "disk_syncs", ["state"])
    op.create_index(
        "uq_disk_syncs_one_running",
        "disk_syncs",
        ["disk_id", "direction"],
        unique=True,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )


def _make_instance_disks() -> None:
    op.create_table(
        "instance_disks",
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("disk_id", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["disk_id"], ["disks.id"], name=op.f("fk_instance_disks_disk_id")),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_instance_disks_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", "disk_id", name=op.f("pk_instance_disks")),
        sa.UniqueConstraint("instance_id", "target", name=op.f("uq_instance_disks_instance_id_target")),
        comment="What an instance has at each start; what it has now are its allocation's attachments",
    )
    op.create_index("ix_instance_disks_disk_id", "instance_disks", ["disk_id"])


def _make_attachments() -> None:
    op.create_table(
        "attachments",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("disk_id", sa.String(length=64), nullable=False),
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("exclusive", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("attached_at", sa.BigInteger(), nullable=True),
        sa.Column("detach_by", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state IN ('attaching', 'attached', 'refused', 'detaching', 'detached', 'stuck')",
            name=op.f("ck_attachments_state_known"),
        ),
        sa.ForeignKeyConstraint(
            ["allocation_id"], ["allocations.id"], name=op.f("fk_attachments_allocation_id")
        ),
        sa.ForeignKeyConstraint(["disk_id"], ["disks.id"], name=op.f("fk_attachments_disk_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_attachments_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attachments")),
        comment="A disk at an allocation, which owns it. exclusive: a block disk, which has one writer at most",
    )
    op.create_index("ix_attachments_allocation_id", "attachments", ["allocation_id"])
    op.create_index("ix_attachments_disk_id", "attachments", ["disk_id"])
    op.create_index("ix_attachments_state", "attachments", ["state"])
    op.create_index(
        "uq_attachments_one_per_target",
        "attachments",
        ["allocation_id", "target"],
        unique=True,
        sqlite_where=sa.text("state IN ('attaching', 'attached', 'detaching', 'stuck')"),
        postgresql_where=sa.text("state IN ('attaching', 'attached', 'detaching', 'stuck')"),
    )
    op.create_index(
        "uq_attachments_one_writer",
        "attachments",
        ["disk_id"],
        unique=True,
        sqlite_where=sa.text("exclusive = 1 AND state IN ('attaching', 'attached', 'detaching', 'stuck')"),
        postgresql_where=sa.text("exclusive AND state IN ('attaching', 'attached', 'detaching', 'stuck')"),
    )
