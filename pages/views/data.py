"""The benchmarks as they are: counts, users with their profiles, oddities, and lists of what can be left out."""

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import data_facts
from opbench.benchmarks import check, exclusions, load
from opbench.figures import theme
from opbench.figures.counts import counts_by_subtype, counts_by_user
from opbench.sharing.sheet import Words
from opbench.types import Corpus
from pages.shared import collecting, link, parts, results, view

SOURCES = {
    "sample": "the bundled sample",
    "cache": "fetched with opbench data fetch",
    "data": "your folder (OPBENCH_DATA)",
}
BENCHMARKS = {"op": "OP-Bench", "locomo": "LoCoMo"}


@st.cache_data(max_entries=8, show_spinner="Counting…")
def tables(key: tuple[str, ...], _corpus: Corpus) -> dict[str, pd.DataFrame]:
    """The tables of a corpus; `key` stands for it, since it is slow to hash."""
    return {
        "counts": data_facts.counts(_corpus),
        "op": data_facts.op_by_user(_corpus),
        "locomo": data_facts.locomo_by_conversation(_corpus),
        "users": data_facts.users(_corpus),
        "oddities": data_facts.oddities(_corpus),
        "kinds": data_facts.oddity_kinds(_corpus),
    }


def show_source(corpus: Corpus, current: view.View) -> None:
    sheet = collecting.sheet()
    sheet.marks.append(f"data: {SOURCES[corpus.source]}")
    sheet.provenance |= {f"sha256 of {name}": digest for name, digest in corpus.sha256.items()}
    sample = corpus.source == "sample"
    report = check(corpus)
    with st.container(horizontal=True, gap="small"):
        st.badge(parts.plain(SOURCES[corpus.source]), icon=":material/dataset:", color="orange" if sample else "blue")
        if not sample:
            st.badge("counts as published" if report.ok else "counts differ", color="green" if report.ok else "red")
        st.badge(f"{len(corpus.users)} users", color="gray")
        st.badge(f"{report.total('op'):,} + {report.total('locomo'):,} questions", color="gray")
    if sample:
        st.info(
            "This is a small data set written for this project. The public benchmarks are fetched with "
            "`opbench data fetch`, or found in a folder that `OPBENCH_DATA` names; then this page shows those.",
            icon=":material/download:",
        )
    elif not report.ok:
        st.warning(parts.plain(report.verdict), icon=":material/warning:")
    if current.status is not None:
        data = results.run_data(current.status.run_id, results.stamp(current.status))
        if dict(data.provenance.get("data", {})) != corpus.sha256:
            st.warning(
                "The chosen run was made on other files than these (its provenance names their digests).",
                icon=":material/warning:",
            )
    with st.expander("Files and their SHA-256", icon=":material/fingerprint:"):
        st.dataframe(pd.DataFrame(corpus.sha256.items(), columns=["file", "sha256"]), hide_index=True)


def show_counts(frames: dict[str, pd.DataFrame]) -> None:
    parts.heading("How many questions of each kind")
    frame = frames["counts"]
    picture, numbers = st.columns([11, 10], gap="small")
    with picture:
        parts.chart(
            counts_by_subtype(frame), "counts", "Instances by benchmark and subtype; the table holds the same numbers"
        )
    with numbers:
        columns: dict[str, Any] = {
            "benchmark": "benchmark",
            "category": "category",
            "subtype": "subtype",
            "count": st.column_config.NumberColumn("instances", format="localized"),
            "published": st.column_config.NumberColumn("published", format="localized", help="Paper, table 1; LoCoMo"),
        }
        if frame["published"].isna().all():
            del columns["published"]
        parts.table(frame.assign(benchmark=frame["benchmark"].replace(BENCHMARKS)), columns, "counts", frame)
        parts.remark("LoCoMo's adversarial questions are asked only with --adversarial.")


def show_users(corpus: Corpus, frames: dict[str, pd.DataFrame]) -> None:
    parts.heading("Who is asked")
    benchmark = link.one_of("Counts of", list(BENCHMARKS), "of", kind="segmented", names=BENCHMARKS)
    frame = frames[benchmark]
    first = str(frame.columns[0])
    picture, numbers = st.columns([10, 11], gap="small")
    with picture:
        parts.chart(
            counts_by_user(frame, f"{BENCHMARKS[benchmark]}: instances by {first}"),
            f"counts-by-{first}",
            f"Heatmap of instances by {first} and subtype; the table holds the same numbers",
        )
    with numbers:
        heads = {str(column): theme.NAMES.get(str(column), str(column)) for column in frame.columns}
        parts.table(frame, heads, f"counts-by-{first}", frame)
    users = frames["users"]
    columns: dict[str, Any] = {
        "user": "user",
        "first_speaker": st.column_config.TextColumn("first", help="Whether the public evaluator scores this user"),
        "sessions": st.column_config.NumberColumn("sessions"),
        "turns": st.column_config.NumberColumn("turns", help="The user's own"),
        "first_day": st.column_config.TextColumn("from"),
        "last_day": st.column_config.TextColumn("to"),
        "topics": st.column_config.NumberColumn("topics"),
        "observations": st.column_config.NumberColumn("facts", help="What the file says about the user"),
        "op": st.column_config.NumberColumn("OP-Bench"),
        "locomo": st.column_config.NumberColumn("LoCoMo", help="Questions of the whole conversation"),
    }
    parts.table(users, columns, "users", users)
    show_profile(corpus, link.one_of("User", list(corpus.users), "user", width=320))


def show_profile(corpus: Corpus, user: str) -> None:
    """What the file says about a user, as text."""
    profile = corpus.profiles[user]
    sessions = corpus.conversations[profile.user.conversation].sessions
    with st.container(border=True):
        st.subheader(parts.plain(user), anchor=False)
        st.markdown(
            f"{len(sessions)} sessions with {parts.plain(profile.user.other)}, "
            f"from {sessions[0].day} to {sessions[-1].day}."
        )
        st.markdown(parts.plain(profile.profile) or "No profile in the file.")
        st.markdown("**Topics**")
        st.markdown("\n".join(f"- {parts.plain(topic)}" for topic in profile.topics))
        with st.expander(f"Facts from the conversations ({len(profile.observations)})"):
            st.markdown("\n".join(f"- {parts.plain(fact)}" for fact in profile.observations))
    collecting.add(Words(f"Profile of {user}", f"{profile.profile}\nTopics: {', '.join(profile.topics)}"))


def show_oddities(frames: dict[str, pd.DataFrame]) -> None:
    parts.heading("What is odd in the files")
    kinds = frames["kinds"]
    if kinds.empty:
        st.info("Nothing odd was met.", icon=":material/info:")
        return
    columns: dict[str, Any] = {
        "count": st.column_config.NumberColumn("times", width=60),
        "kind": st.column_config.TextColumn("kind", width=180),
        "handling": st.column_config.TextColumn("what it is, and what is done about it", width="large"),
    }
    parts.table(kinds, columns, "oddity-kinds", kinds)
    kind = link.one_of("Places of", ["all kinds", *kinds["kind"]], "kind", width=320)
    frame = frames["oddities"]
    frame = frame if kind == "all kinds" else frame[frame["kind"] == kind]
    parts.table(frame, {"kind": "kind", "place": "place", "detail": "detail"}, "oddities", frame, texts=["detail"])


def show_exclusions(corpus: Corpus) -> None:
    parts.heading("What can be left out")
    st.markdown(
        "Some LoCoMo questions have a wrong gold answer, so a right reply is scored as wrong. Named lists of such "
        "questions can be left out of a study (on the Launch page, or `opbench run --exclude NAME`) and of what is "
        "shown (“Leave out”, in the sidebar)."
    )
    for problem in exclusions.problems():
        st.warning(parts.plain(problem), icon=":material/error:")
    known = exclusions.lists()
    overview = data_facts.exclusion_lists(known, corpus)
    columns: dict[str, Any] = {
        "name": "list",
        "title": st.column_config.TextColumn("what is on it", width="medium"),
        "listed": st.column_config.NumberColumn("listed"),
        "found": st.column_config.NumberColumn("in these data", help="Instances of the list that these data have"),
        "source": st.column_config.TextColumn("source", width="medium"),
    }
    if overview["problem"].any():
        columns["problem"] = "problem"
    parts.table(overview, columns, "exclusion-lists", overview)
    chosen = known[link.one_of("List", list(known), "list", width=320)]
    parts.remark(f"{chosen.title}. Source: {chosen.source}.")
    reasons, instances = st.columns([2, 5], gap="small")
    with reasons:
        by_reason = data_facts.reasons(chosen)
        columns = {"count": st.column_config.NumberColumn("times", width=55), "reason": "reason"}
        parts.table(by_reason, columns, "exclusion-reasons", by_reason)
    with instances:
        listed = data_facts.listed(chosen, corpus)
        columns = {"instance": "instance", "reason": "reason", "subtype": "subtype"}
        if listed["question"].notna().any():
            columns |= {"question": "question", "answer": "gold answer"}
        else:
            st.caption("None of them is in these data.")
        parts.table(listed, columns, "exclusions", listed, texts=["question", "answer"])
    st.caption(
        "Your own lists: CSV files with the columns instance and reason in the folder exclusions of OPBENCH_HOME."
    )


parts.title("What is in the benchmarks, and what is odd in them?")
corpus = load()
made = tables((corpus.source, *corpus.sha256.values()), corpus)
show_source(corpus, view.current())
show_counts(made)
show_users(corpus, made)
show_oddities(made)
show_exclusions(corpus)
