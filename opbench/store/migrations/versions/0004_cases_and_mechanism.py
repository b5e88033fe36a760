"""Saved cases and case books; similarities of retrieved memories; attention."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "cases",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("outcomes", sa.JSON(), nullable=False),
        sa.Column("ablations", sa.JSON(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cases")),
    )
    op.create_table(
        "case_books",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("cases", sa.JSON(), nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_case_books")),
    )
    op.create_table(
        "similarities",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("memory", sa.String(length=100), nullable=False),
        sa.Column("instance_id", sa.String(length=200), nullable=False),
        sa.Column("embedder", sa.String(length=100), nullable=False),
        sa.Column("identity", sa.String(length=16), nullable=False),
        sa.Column("cosines", sa.JSON(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_similarities_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "memory", "instance_id", "embedder", name=op.f("pk_similarities")),
    )
    op.create_table(
        "attention",
        sa.Column("record_id", sa.Integer(), nullable=False),
        sa.Column("reader", sa.String(length=120), nullable=False),
        sa.Column("text_sha256", sa.String(length=64), nullable=False),
        sa.Column("layers", sa.Integer(), nullable=False),
        sa.Column("heads", sa.Integer(), nullable=False),
        sa.Column("segments", sa.JSON(), nullable=False),
        sa.Column("tokens", sa.JSON(), nullable=False),
        sa.Column("masses", sa.LargeBinary(), nullable=False),
        sa.Column("words", sa.JSON(), nullable=True),
        sa.Column("weights", sa.LargeBinary(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["record_id"], ["records.id"], name=op.f("fk_attention_record_id_records"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("record_id", "reader", name=op.f("pk_attention")),
    )


def downgrade() -> None:
    for table in ("attention", "similarities", "case_books", "cases"):
        op.drop_table(table)
