"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "calls",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=True),
        sa.Column("response", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.String(length=32), nullable=True),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("completion_tokens", sa.Integer(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("duration_ms", sa.Float(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_calls")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("study_hash", sa.String(length=64), nullable=False),
        sa.Column("study", sa.JSON(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("request", sa.String(length=16), nullable=False),
        sa.Column("recorded", sa.Boolean(), nullable=False),
        sa.Column("text_left_out", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_table(
        "configurations",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("memory", sa.Text(), nullable=False),
        sa.Column("mitigation", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_configurations_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_configurations")),
        sa.UniqueConstraint("run_id", "model", "memory", "mitigation", name=op.f("uq_configurations_run_id")),
    )
    op.create_table(
        "instances",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("instance_id", sa.String(length=200), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("benchmark", sa.String(length=16), nullable=False),
        sa.Column("user_id", sa.String(length=200), nullable=False),
        sa.Column("first_speaker", sa.Boolean(), nullable=False),
        sa.Column("subtype", sa.String(length=32), nullable=False),
        sa.Column("question", sa.Text(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_instances_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "instance_id", name=op.f("pk_instances")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("heartbeat_at", sa.Float(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("stats", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_workers_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_table(
        "records",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("configuration_id", sa.Integer(), nullable=False),
        sa.Column("instance_id", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=8), nullable=False),
        sa.Column("error_kind", sa.String(length=32), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("response", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.String(length=32), nullable=True),
        sa.Column("draft", sa.Text(), nullable=True),
        sa.Column("critique", sa.Text(), nullable=True),
        sa.Column("retrieved", sa.JSON(), nullable=True),
        sa.Column("context", sa.JSON(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=True),
        sa.Column("state_reason", sa.Text(), nullable=True),
        sa.Column("counts", sa.JSON(), nullable=True),
        sa.Column("retrieval_ms", sa.Float(), nullable=True),
        sa.Column("post_ms", sa.Float(), nullable=True),
        sa.Column("response_ms", sa.Float(), nullable=True),
        sa.Column("retrieval_reused", sa.Boolean(), nullable=True),
        sa.Column("post_reused", sa.Boolean(), nullable=True),
        sa.Column("response_reused", sa.Boolean(), nullable=True),
        sa.Column("concurrency", sa.Integer(), nullable=True),
        sa.Column("post_prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("post_completion_tokens", sa.Integer(), nullable=True),
        sa.Column("response_prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("response_completion_tokens", sa.Integer(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["configurations.id"],
            name=op.f("fk_records_configuration_id_configurations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_records_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_records")),
        sa.UniqueConstraint("configuration_id", "instance_id", name=op.f("uq_records_configuration_id")),
    )
    op.create_index("ix_records_run_status", "records", ["run_id", "status"], unique=False)
    op.create_table(
        "user_scores",
        sa.Column("configuration_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.String(length=200), nullable=False),
        sa.Column("metric", sa.String(length=32), nullable=False),
        sa.Column("judge", sa.String(length=100), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["configurations.id"],
            name=op.f("fk_user_scores_configuration_id_configurations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("configuration_id", "user_id", "metric", "judge", name=op.f("pk_user_scores")),
    )
    op.create_table(
        "embeddings",
        sa.Column("record_id", sa.Integer(), nullable=False),
        sa.Column("embedder", sa.String(length=100), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["record_id"], ["records.id"], name=op.f("fk_embeddings_record_id_records"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("record_id", "embedder", name=op.f("pk_embeddings")),
    )
    op.create_table(
        "record_calls",
        sa.Column("record_id", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("call_key", sa.String(length=64), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("reused", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["call_key"], ["calls.key"], name=op.f("fk_record_calls_call_key_calls")),
        sa.ForeignKeyConstraint(
            ["record_id"], ["records.id"], name=op.f("fk_record_calls_record_id_records"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("record_id", "ordinal", name=op.f("pk_record_calls")),
    )
    op.create_table(
        "scores",
        sa.Column("record_id", sa.Integer(), nullable=False),
        sa.Column("judge", sa.String(length=100), nullable=False),
        sa.Column("metric", sa.String(length=32), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("raw", sa.Text(), nullable=True),
        sa.Column("retriable", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["record_id"], ["records.id"], name=op.f("fk_scores_record_id_records"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("record_id", "judge", "metric", name=op.f("pk_scores")),
    )


def downgrade() -> None:
    op.drop_table("scores")
    op.drop_table("record_calls")
    op.drop_table("embeddings")
    op.drop_table("user_scores")
    op.drop_index("ix_records_run_status", table_name="records")
    op.drop_table("records")
    op.drop_table("workers")
    op.drop_table("instances")
    op.drop_table("configurations")
    op.drop_table("runs")
    op.drop_table("calls")
