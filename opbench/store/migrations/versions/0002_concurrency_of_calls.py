"""Calls know at which concurrency they were made, since a reused call keeps its latency."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("calls") as calls:
        calls.add_column(sa.Column("concurrency", sa.Integer(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("calls") as calls:
        calls.drop_column("concurrency")
