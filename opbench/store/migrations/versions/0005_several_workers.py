"""Several workers on one run: who leads, and who does which shard."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("workers", sa.Column("leader", sa.String(length=32), nullable=True))
    op.create_table(
        "leases",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(length=32), nullable=False),
        sa.Column("taken_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_leases_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "shard", name=op.f("pk_leases")),
    )


def downgrade() -> None:
    op.drop_table("leases")
    op.drop_column("workers", "leader")
