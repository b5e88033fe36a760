"""The store's tables: one schema for SQLite and PostgreSQL, changed through the migrations in `migrations/` only.

Status is never kept: it is computed from `records` against `configurations` × `instances`.
Scores are 0 to 1, durations milliseconds, costs US dollars, times Unix seconds (UTC).
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: An execution of a study. `request` is what people asked of it (go, pause, stop); a worker obeys it.
runs = Table(
    "runs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("study_hash", String(64), nullable=False),
    Column("study", JSON, nullable=False),
    Column("provenance", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("request", String(16), nullable=False, default="go"),
    # True for results that came from a bundle: recorded elsewhere, not by this store.
    Column("recorded", Boolean, nullable=False, default=False),
    # True when questions, memories and responses were left out (the benchmark's text is not ours to share).
    Column("text_left_out", Boolean, nullable=False, default=False),
    # Why the last execution ended before its work did (its budget was reached, …): a sentence; null when it didn't.
    Column("halted", Text),
)

#: How the ids of runs begin whose rows still come in from a file (`incoming.py`). Nobody is shown these.
INCOMING = "incoming-"
SHOWN = ~runs.c.id.startswith(INCOMING)

configurations = Table(
    "configurations",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("model", Text, nullable=False),
    Column("memory", Text, nullable=False),
    Column("mitigation", Text, nullable=False),
    UniqueConstraint("run_id", "model", "memory", "mitigation"),
)

#: The slice of a run; every configuration is planned on all of it.
instances = Table(
    "instances",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("instance_id", String(200), primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Column("benchmark", String(16), nullable=False),
    Column("user_id", String(200), nullable=False),
    Column("first_speaker", Boolean, nullable=False),
    Column("subtype", String(32), nullable=False),
    Column("question", Text),
    Column("answer", Text),
)

#: What one configuration did with one instance. `status` is done or error; an error has no response.
records = Table(
    "records",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("configuration_id", ForeignKey("configurations.id", ondelete="CASCADE"), nullable=False),
    Column("instance_id", String(200), nullable=False),
    Column("status", String(8), nullable=False),
    Column("error_kind", String(32)),
    Column("error", Text),
    Column("response", Text),
    Column("finish_reason", String(32)),
    # Self-Critic: the draft that was revised, and the critique.
    Column("draft", Text),
    Column("critique", Text),
    # [{text, date, score}] in rank order; null for BASE.
    Column("retrieved", JSON),
    # The lines that the response model saw: [{text, date, sources}].
    Column("context", JSON),
    # kept, nothing, failed (pre-generation) or revised, unchanged, failed (Self-Critic); null without post-processor.
    Column("state", String(16)),
    Column("state_reason", Text),
    Column("counts", JSON),
    # Null where the stage did not happen: BASE retrieves nothing, `none` post-processes nothing.
    Column("retrieval_ms", Float),
    Column("post_ms", Float),
    Column("response_ms", Float),
    # True when the stage's time was taken when the call was made for another record, or in an earlier run.
    Column("retrieval_reused", Boolean),
    Column("post_reused", Boolean),
    Column("response_reused", Boolean),
    # Of the response's call: what the latency was taken at, wherever the call was made.
    Column("concurrency", Integer),
    Column("post_prompt_tokens", Integer),
    Column("post_completion_tokens", Integer),
    Column("response_prompt_tokens", Integer),
    Column("response_completion_tokens", Integer),
    # What post-processing and response cost by list price, reused calls included; null when a price is unknown.
    Column("cost_usd", Float),
    Column("finished_at", Float, nullable=False),
    UniqueConstraint("configuration_id", "instance_id"),
    # What a run's status is counted from.
    Index("ix_records_status", "run_id", "configuration_id", "status", "finished_at"),
    # All that analysis reads of a record, so that its texts, a hundred times as wide, aren't read with it.
    Index(
        "ix_records_narrow",
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
    ),
)

#: The call store: every answer under the hash of all that determines it. Errors are never here.
calls = Table(
    "calls",
    metadata,
    Column("key", String(64), primary_key=True),
    # chat (a study's), library (a chat call of a memory library), retrieval, or embedding (the response is base64 of
    # float32, little endian)
    Column("kind", String(16), nullable=False),
    Column("model", Text, nullable=False),
    Column("request", JSON),
    Column("response", Text),
    Column("finish_reason", String(32)),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("cost_usd", Float),
    Column("duration_ms", Float, nullable=False),
    # Requests at a time that the run let through to the model when the call was made.
    Column("concurrency", Integer),
    Column("attempts", Integer, nullable=False),
    Column("made_at", Float, nullable=False),
)

#: Which calls a record rests on, in order; `reused` when the call was made for another record.
record_calls = Table(
    "record_calls",
    metadata,
    Column("record_id", ForeignKey("records.id", ondelete="CASCADE"), primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("call_key", ForeignKey("calls.key"), nullable=False),
    # retrieval, post, response, judge
    Column("stage", String(16), nullable=False),
    Column("reused", Boolean, nullable=False),
)

#: A judge's numbers for a record; `value` null means missing, with the reason.
scores = Table(
    "scores",
    metadata,
    Column("record_id", ForeignKey("records.id", ondelete="CASCADE"), primary_key=True),
    Column("judge", String(100), primary_key=True),
    Column("metric", String(32), primary_key=True),
    Column("value", Float),
    Column("reason", Text),
    Column("raw", Text),
    # True when the judge's call failed in transport: the next start asks it again.
    Column("retriable", Boolean, nullable=False, default=False),
    # All that analysis reads of a score, without the judge's words.
    Index("ix_scores_narrow", "record_id", "judge", "metric", "value", "retriable"),
    # The few that are missing, which every look at a run's status asks for.
    Index(
        "ix_scores_missing",
        "record_id",
        sqlite_where=text("value IS NULL"),
        postgresql_where=text("value IS NULL"),
    ),
)

#: Embeddings of responses to repetition questions: float32, L2-normalised, little endian.
embeddings = Table(
    "embeddings",
    metadata,
    Column("record_id", ForeignKey("records.id", ondelete="CASCADE"), primary_key=True),
    Column("embedder", String(100), primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)

#: Scores of a user as a whole: repetition (paper, section 3.2.3).
user_scores = Table(
    "user_scores",
    metadata,
    Column("configuration_id", ForeignKey("configurations.id", ondelete="CASCADE"), primary_key=True),
    Column("user_id", String(200), primary_key=True),
    Column("metric", String(32), primary_key=True),
    Column("judge", String(100), primary_key=True),
    Column("value", Float),
    Column("n", Integer, nullable=False),
    Column("reason", Text),
)

#: Scores that people give, beside the judge's: only added to, so that they are their own history.
human_scores = Table(
    "human_scores",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("configuration_id", ForeignKey("configurations.id", ondelete="CASCADE"), nullable=False),
    Column("instance_id", String(200), nullable=False),
    # SHA-256 (hex) of the response that was judged: a record may be made again and then hold another one.
    Column("response_sha256", String(64), nullable=False),
    # Null withdraws what the rater said before.
    Column("value", Float),
    Column("note", Text, nullable=False),
    Column("rater", Text, nullable=False),
    Column("made_at", Float, nullable=False),
    Index("ix_human_scores_record", "run_id", "configuration_id", "instance_id"),
)

#: Processes at work on a run; a row without a fresh heartbeat is a process that died.
workers = Table(
    "workers",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("heartbeat_at", Float, nullable=False),
    Column("concurrency", Integer, nullable=False),
    # Requests sent, retries by kind, calls reused: what the page shows beside the progress.
    Column("stats", JSON, nullable=False),
    # Of a process that does a part of a run: the worker that leads it. Null for the leader, and for a sole process.
    Column("leader", String(32)),
)

#: Which of a run's workers does which shard of its instances (`opbench.running.shards`). A lease lasts until its shard
#: is done or its worker is gone; whether records are done is told by the records alone.
leases = Table(
    "leases",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("worker_id", String(32), nullable=False),
    Column("taken_at", Float, nullable=False),
)

#: Live cases that somebody saved: what was asked and what came of it, as `opbench.cases` writes them.
cases = Table(
    "cases",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("spec", JSON, nullable=False),
    # A list, one a column; and the leave-one-outs.
    Column("outcomes", JSON, nullable=False),
    Column("ablations", JSON, nullable=False),
    Column("provenance", JSON, nullable=False),
    Column("maker", Text, nullable=False),
    Column("made_at", Float, nullable=False),
)

#: Several cases in an order, for a paper or a meeting.
case_books = Table(
    "case_books",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False),
    Column("note", Text, nullable=False),
    # Ids of cases, in order.
    Column("cases", JSON, nullable=False),
    Column("maker", Text, nullable=False),
    Column("made_at", Float, nullable=False),
)

#: Cosine of an instance's question and each memory that a system retrieved for it, all by one embedder. The memory
#: system `random` is the control where the run has none of that name.
similarities = Table(
    "similarities",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("memory", String(100), primary_key=True),
    Column("instance_id", String(200), primary_key=True),
    Column("embedder", String(100), primary_key=True),
    # Head of the digest of the embedder's identity: under its name another may stand one day.
    Column("identity", String(16), nullable=False),
    # A list of numbers from -1 to 1 in rank order; empty for an empty retrieval.
    Column("cosines", JSON, nullable=False),
    Column("made_at", Float, nullable=False),
)

#: Attention of a local model that reads a record's prompt and its response (`opbench.mechanism.attention`).
attention = Table(
    "attention",
    metadata,
    Column("record_id", ForeignKey("records.id", ondelete="CASCADE"), primary_key=True),
    # The reading model's name and the head of its digest, and the version of the definition.
    Column("reader", String(120), primary_key=True),
    # SHA-256 (hex) of prompt and response as read: a record may be made again.
    Column("text_sha256", String(64), nullable=False),
    Column("layers", Integer, nullable=False),
    Column("heads", Integer, nullable=False),
    # Names of the segments in the order of `masses`, and tokens of each.
    Column("segments", JSON, nullable=False),
    Column("tokens", JSON, nullable=False),
    # float32, little endian, 2 x layers x heads x segments: share of attention, averaged over the response's tokens,
    # and from the prompt's last token alone.
    Column("masses", LargeBinary, nullable=False),
    # The prompt token by token: [[segment, text], …] (null where texts are left out), and float32 averaged over layers,
    # heads and the response's tokens.
    Column("words", JSON),
    Column("weights", LargeBinary, nullable=False),
    Column("made_at", Float, nullable=False),
)

#: Benchmarks made from histories (`opbench.construction`): what was asked for, and who is at work on it.
builds = Table(
    "builds",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False),
    # `opbench.construction.spec.BuildSpec`, and the digests of data, prompts and models that it rests on.
    Column("spec", JSON, nullable=False),
    Column("provenance", JSON, nullable=False),
    Column("maker", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    # go or stop: what people asked of it.
    Column("request", String(16), nullable=False),
    # Why the last start ended before its work did: a sentence; null when it didn't.
    Column("halted", Text),
    # The process at work, and its last sign of life (Unix seconds); null when there is none.
    Column("worker", String(64)),
    Column("heartbeat_at", Float),
)

#: What one piece of a build's work gave: a profile, a topic's questions, a check. A piece that is here is done.
build_units = Table(
    "build_units",
    metadata,
    Column("build_id", ForeignKey("builds.id", ondelete="CASCADE"), primary_key=True),
    # stage/user/what/n, e.g. tasks/sample-1/Mara/baiting/1
    Column("unit", String(300), primary_key=True),
    Column("stage", String(16), nullable=False),
    Column("user_id", String(200), nullable=False),
    # done or failed; `reason` says why it failed.
    Column("status", String(8), nullable=False),
    Column("reason", Text),
    Column("output", JSON),
    # extractor, generator, similarity, checker, embedder; and the model that had the role.
    Column("role", String(16), nullable=False),
    Column("model", Text, nullable=False),
    Column("prompt_sha256", String(64), nullable=False),
    # Keys in the call store, in order; a second one is the repair.
    Column("calls", JSON, nullable=False),
    Column("repaired", Boolean, nullable=False),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("cost_usd", Float),
    Column("duration_ms", Float),
    Column("made_at", Float, nullable=False),
)

#: Candidate questions of a build, the dropped ones with their reasons.
candidates = Table(
    "candidates",
    metadata,
    Column("build_id", ForeignKey("builds.id", ondelete="CASCADE"), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Column("unit", String(300), nullable=False),
    Column("user_id", String(200), nullable=False),
    # One of OP_SUBTYPES; `kind` is baiting's or memory-level's finer type.
    Column("subtype", String(32), nullable=False),
    Column("kind", String(40)),
    Column("topic", Text),
    Column("subtopic", Text),
    Column("question", Text, nullable=False),
    Column("explanation", Text),
    # Memory-level: the observation that the question falsifies, and the ids of the turns that it rests on.
    Column("falsifies", Text),
    Column("evidence", JSON, nullable=False),
    Column("generator", Text, nullable=False),
    Column("prompt_sha256", String(64), nullable=False),
    # candidate (not filtered yet), kept, dropped (by a filter), accepted, rejected (by people).
    Column("state", String(16), nullable=False),
    # Which filter or review decided, and why: a sentence, and what it rests on.
    Column("decided_by", String(40)),
    Column("reason", Text),
    Column("details", JSON),
    Index("ix_candidates_state", "build_id", "state", "subtype"),
)

#: Reviews: people look at pairs of responses of a run (paper, A.3).
reviews = Table(
    "reviews",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False),
    # What it was made from; the run may be deleted, its texts are copied into the items.
    Column("run_id", String(64), nullable=False),
    Column("build_id", String(32)),
    # `opbench.review.spec.ReviewSpec`.
    Column("spec", JSON, nullable=False),
    Column("maker", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("closed_at", Float),
)

review_items = Table(
    "review_items",
    metadata,
    Column("review_id", ForeignKey("reviews.id", ondelete="CASCADE"), primary_key=True),
    # The instance's id.
    Column("item", String(200), primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Column("user_id", String(200), nullable=False),
    Column("subtype", String(32), nullable=False),
    # The candidate of the build that it came from.
    Column("candidate", String(64)),
    # `opbench.review.spec.Content`: profile, memories, question, both responses.
    Column("content", JSON, nullable=False),
    # A spot check's known verdict; null for an item that isn't one.
    Column("known", String(16)),
    # All that giving out items reads of them, without their texts.
    Index("ix_review_items_narrow", "review_id", "item", "ordinal", "user_id", "subtype", "known"),
)

reviewers = Table(
    "reviewers",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("review_id", ForeignKey("reviews.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    # reviewer or senior (adjudicates)
    Column("role", String(16), nullable=False),
    # SHA-256 (hex) of the personal link's secret, or the name of who signs in: one of them.
    Column("link_sha256", String(64), unique=True),
    Column("sign_in", Text),
    Column("joined_at", Float, nullable=False),
    Column("left_at", Float),
    UniqueConstraint("review_id", "name"),
)

#: Who has which item in hand. One that was released is somebody else's to answer.
review_assignments = Table(
    "review_assignments",
    metadata,
    Column("review_id", ForeignKey("reviews.id", ondelete="CASCADE"), primary_key=True),
    Column("item", String(200), primary_key=True),
    Column("reviewer_id", ForeignKey("reviewers.id", ondelete="CASCADE"), primary_key=True),
    # Of the two (or more) independent places of an item, which one: two people can't take the same. The senior's is -1.
    Column("place", Integer, nullable=False),
    Column("assigned_at", Float, nullable=False),
    # When it went back to the pool; and when its holder's answer that counts was given: null while it is in hand.
    Column("released_at", Float),
    Column("answered_at", Float),
    Index(
        "uq_review_assignments_place",
        "review_id",
        "item",
        "place",
        unique=True,
        sqlite_where=text("released_at IS NULL"),
        postgresql_where=text("released_at IS NULL"),
    ),
)

#: What reviewers said: only added to. A reviewer's newest entry for an item counts; one without verdict takes back.
review_answers = Table(
    "review_answers",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("review_id", ForeignKey("reviews.id", ondelete="CASCADE"), nullable=False),
    Column("item", String(200), nullable=False),
    Column("reviewer_id", ForeignKey("reviewers.id", ondelete="CASCADE"), nullable=False),
    # base, memory, neither, both: which is over-personalised.
    Column("verdict", String(16)),
    # 0 to 1, higher is less over-personalised; null when not given.
    Column("base_score", Float),
    Column("memory_score", Float),
    Column("comment", Text, nullable=False),
    Column("flagged", Boolean, nullable=False),
    # Which response stood as A: base or memory.
    Column("first", String(8), nullable=False),
    # From showing to answering, without the time that the page was hidden.
    Column("seconds", Float),
    # Made by the page for each showing, so that the same press that arrives twice is one entry.
    Column("press", String(64), nullable=False, unique=True),
    Column("made_at", Float, nullable=False),
    Index("ix_review_answers_item", "review_id", "item"),
)

#: Responses with people's scores that don't come from a run of this store: a CSV, or the paper's cases.
response_sets = Table(
    "response_sets",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False),
    # kind (csv, published, review) and what tells where it is from: file name, sha256.
    Column("source", JSON, nullable=False),
    Column("maker", Text, nullable=False),
    Column("made_at", Float, nullable=False),
)

response_set_items = Table(
    "response_set_items",
    metadata,
    Column("set_id", ForeignKey("response_sets.id", ondelete="CASCADE"), primary_key=True),
    Column("item", String(300), primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Column("user_id", String(200), nullable=False),
    Column("subtype", String(32), nullable=False),
    # `opbench.calibration.spec.Response`
    Column("content", JSON, nullable=False),
    # [[rater, value], …], values from 0 to 1
    Column("human", JSON, nullable=False),
)

#: A judge (name × prompt pack × repeats) over a set of responses or over a run's records, made later than these.
judgings = Table(
    "judgings",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("set_id", ForeignKey("response_sets.id", ondelete="CASCADE")),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE")),
    # offline, random, or the model's name; and the label that tells it from others: name · pack.
    Column("judge", Text, nullable=False),
    Column("label", Text, nullable=False),
    # All that determines its numbers (Judge.provenance, pack, temperature): judgings of one judge meet by its digest.
    Column("provenance", JSON, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("repeats", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("ix_judgings_of", "set_id", "run_id"),
)

judgements = Table(
    "judgements",
    metadata,
    Column("judging_id", ForeignKey("judgings.id", ondelete="CASCADE"), primary_key=True),
    # Of a set: the item. Of a run: the configuration's id and the instance's, with a bar between.
    Column("item", String(300), primary_key=True),
    Column("repeat", Integer, primary_key=True),
    # SHA-256 (hex) of the response that was judged.
    Column("response_sha256", String(64), nullable=False),
    # score, correct, f1: as in `scores`.
    Column("metric", String(32), nullable=False),
    Column("value", Float),
    Column("reason", Text),
    Column("raw", Text),
    # True when the judge's call failed in transport: asked again by the next start.
    Column("retriable", Boolean, nullable=False),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("cost_usd", Float),
    Column("duration_ms", Float),
    Column("reused", Boolean),
    Column("made_at", Float, nullable=False),
)
