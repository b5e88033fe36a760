"""Scores that people give, why an execution ended early, and indexes for reading runs of a hundred thousand records."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_NARROW = [
    "run_id",
    "configuration_id",
    "instance_id",
    "status",
    "state",
    "error_kind",
    "finish_reason",
    "retrieval_ms",
    "post_ms",
    "response_ms",
    "retrieval_reused",
    "post_reused",
    "response_reused",
    "concurrency",
    "post_prompt_tokens",
    "post_completion_tokens",
    "response_prompt_tokens",
    "response_completion_tokens",
    "cost_usd",
    "finished_at",
]


def upgrade() -> None:
    op.create_table(
        "human_scores",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("configuration_id", sa.Integer(), nullable=False),
        sa.Column("instance_id", sa.String(length=200), nullable=False),
        sa.Column("response_sha256", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("rater", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["configurations.id"],
            name=op.f("fk_human_scores_configuration_id_configurations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_human_scores_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_human_scores")),
    )
    op.create_index("ix_human_scores_record", "human_scores", ["run_id", "configuration_id", "instance_id"])
    op.add_column("runs", sa.Column("halted", sa.Text(), nullable=True))
    op.drop_index("ix_records_run_status", table_name="records")
    op.create_index("ix_records_status", "records", ["run_id", "configuration_id", "status", "finished_at"])
    op.create_index("ix_records_narrow", "records", _NARROW)
    op.create_index("ix_scores_narrow", "scores", ["record_id", "judge", "metric", "value", "retriable"])
    op.create_index(
        "ix_scores_missing",
        "scores",
        ["record_id"],
        sqlite_where=sa.text("value IS NULL"),
        postgresql_where=sa.text("value IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_scores_missing", table_name="scores")
    op.drop_index("ix_scores_narrow", table_name="scores")
    op.drop_index("ix_records_narrow", table_name="records")
    op.drop_index("ix_records_status", table_name="records")
    op.create_index("ix_records_run_status", "records", ["run_id", "status"])
    # Not as a batch: that would make the table anew in SQLite, and dropping the old one would delete all that is its.
    op.drop_column("runs", "halted")
    op.drop_index("ix_human_scores_record", table_name="human_scores")
    op.drop_table("human_scores")
