"""Building benchmarks, people's reviews of them, and judges set against people."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_TABLES = (
    "judgements",
    "judgings",
    "response_set_items",
    "response_sets",
    "review_answers",
    "review_assignments",
    "reviewers",
    "review_items",
    "reviews",
    "candidates",
    "build_units",
    "builds",
)


def upgrade() -> None:
    op.create_table(
        "builds",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("request", sa.String(length=16), nullable=False),
        sa.Column("halted", sa.Text(), nullable=True),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("heartbeat_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builds")),
    )
    op.create_table(
        "response_sets",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.JSON(), nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_response_sets")),
    )
    op.create_table(
        "reviews",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("build_id", sa.String(length=32), nullable=True),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("maker", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("closed_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reviews")),
    )
    op.create_table(
        "build_units",
        sa.Column("build_id", sa.String(length=32), nullable=False),
        sa.Column("unit", sa.String(length=300), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("user_id", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=8), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("output", sa.JSON(), nullable=True),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("prompt_sha256", sa.String(length=64), nullable=False),
        sa.Column("calls", sa.JSON(), nullable=False),
        sa.Column("repaired", sa.Boolean(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("completion_tokens", sa.Integer(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("duration_ms", sa.Float(), nullable=True),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["build_id"], ["builds.id"], name=op.f("fk_build_units_build_id_builds"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("build_id", "unit", name=op.f("pk_build_units")),
    )
    op.create_table(
        "candidates",
        sa.Column("build_id", sa.String(length=32), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("unit", sa.String(length=300), nullable=False),
        sa.Column("user_id", sa.String(length=200), nullable=False),
        sa.Column("subtype", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=True),
        sa.Column("topic", sa.Text(), nullable=True),
        sa.Column("subtopic", sa.Text(), nullable=True),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("explanation", sa.Text(), nullable=True),
        sa.Column("falsifies", sa.Text(), nullable=True),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("generator", sa.Text(), nullable=False),
        sa.Column("prompt_sha256", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("decided_by", sa.String(length=40), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("details", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["build_id"], ["builds.id"], name=op.f("fk_candidates_build_id_builds"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("build_id", "id", name=op.f("pk_candidates")),
    )
    op.create_index("ix_candidates_state", "candidates", ["build_id", "state", "subtype"], unique=False)
    op.create_table(
        "judgings",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("set_id", sa.String(length=32), nullable=True),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("judge", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("repeats", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_judgings_run_id_runs"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["set_id"], ["response_sets.id"], name=op.f("fk_judgings_set_id_response_sets"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judgings")),
    )
    op.create_index("ix_judgings_of", "judgings", ["set_id", "run_id"], unique=False)
    op.create_table(
        "response_set_items",
        sa.Column("set_id", sa.String(length=32), nullable=False),
        sa.Column("item", sa.String(length=300), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.String(length=200), nullable=False),
        sa.Column("subtype", sa.String(length=32), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("human", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["set_id"],
            ["response_sets.id"],
            name=op.f("fk_response_set_items_set_id_response_sets"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("set_id", "item", name=op.f("pk_response_set_items")),
    )
    op.create_table(
        "review_items",
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("item", sa.String(length=200), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.String(length=200), nullable=False),
        sa.Column("subtype", sa.String(length=32), nullable=False),
        sa.Column("candidate", sa.String(length=64), nullable=True),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("known", sa.String(length=16), nullable=True),
        sa.ForeignKeyConstraint(
            ["review_id"], ["reviews.id"], name=op.f("fk_review_items_review_id_reviews"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("review_id", "item", name=op.f("pk_review_items")),
    )
    op.create_index(
        "ix_review_items_narrow",
        "review_items",
        ["review_id", "item", "ordinal", "user_id", "subtype", "known"],
        unique=False,
    )
    op.create_table(
        "reviewers",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("link_sha256", sa.String(length=64), nullable=True),
        sa.Column("sign_in", sa.Text(), nullable=True),
        sa.Column("joined_at", sa.Float(), nullable=False),
        sa.Column("left_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["review_id"], ["reviews.id"], name=op.f("fk_reviewers_review_id_reviews"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reviewers")),
        sa.UniqueConstraint("link_sha256", name=op.f("uq_reviewers_link_sha256")),
        sa.UniqueConstraint("review_id", "name", name=op.f("uq_reviewers_review_id")),
    )
    op.create_table(
        "judgements",
        sa.Column("judging_id", sa.String(length=32), nullable=False),
        sa.Column("item", sa.String(length=300), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("response_sha256", sa.String(length=64), nullable=False),
        sa.Column("metric", sa.String(length=32), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("raw", sa.Text(), nullable=True),
        sa.Column("retriable", sa.Boolean(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("completion_tokens", sa.Integer(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("duration_ms", sa.Float(), nullable=True),
        sa.Column("reused", sa.Boolean(), nullable=True),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["judging_id"], ["judgings.id"], name=op.f("fk_judgements_judging_id_judgings"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("judging_id", "item", "repeat", name=op.f("pk_judgements")),
    )
    op.create_table(
        "review_answers",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("item", sa.String(length=200), nullable=False),
        sa.Column("reviewer_id", sa.String(length=32), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("base_score", sa.Float(), nullable=True),
        sa.Column("memory_score", sa.Float(), nullable=True),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("flagged", sa.Boolean(), nullable=False),
        sa.Column("first", sa.String(length=8), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("press", sa.String(length=64), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["review_id"], ["reviews.id"], name=op.f("fk_review_answers_review_id_reviews"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["reviewer_id"], ["reviewers.id"], name=op.f("fk_review_answers_reviewer_id_reviewers"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_review_answers")),
        sa.UniqueConstraint("press", name=op.f("uq_review_answers_press")),
    )
    op.create_index("ix_review_answers_item", "review_answers", ["review_id", "item"], unique=False)
    op.create_table(
        "review_assignments",
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("item", sa.String(length=200), nullable=False),
        sa.Column("reviewer_id", sa.String(length=32), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("assigned_at", sa.Float(), nullable=False),
        sa.Column("released_at", sa.Float(), nullable=True),
        sa.Column("answered_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["review_id"], ["reviews.id"], name=op.f("fk_review_assignments_review_id_reviews"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["reviewer_id"],
            ["reviewers.id"],
            name=op.f("fk_review_assignments_reviewer_id_reviewers"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("review_id", "item", "reviewer_id", name=op.f("pk_review_assignments")),
    )
    op.create_index(
        "uq_review_assignments_place",
        "review_assignments",
        ["review_id", "item", "place"],
        unique=True,
        sqlite_where=sa.text("released_at IS NULL"),
        postgresql_where=sa.text("released_at IS NULL"),
    )


def downgrade() -> None:
    for table in _TABLES:
        op.drop_table(table)
