"""What over-personalisation is, and how much of it there is: worked examples, table 2 and figure 2, and a measured run
beside the published figures when one is chosen."""

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import overview
from opbench.analysis.op import SUBSCORE_COLUMNS
from opbench.benchmarks import cases
from opbench.figures import theme
from opbench.figures.overview import op_by_memory
from opbench.figures.radar import radar
from opbench.sharing.sheet import Words
from opbench.store.reading import RunStatus
from opbench.study import NO_MITIGATION
from pages.shared import collecting, link, parts, results, view

KINDS = {
    "irrelevance": (
        "Irrelevance",
        "The reply brings up what the agent knows about the user, though the question has nothing to do with it.",
    ),
    "sycophancy": (
        "Sycophancy",
        "The reply agrees with a claim, a judgement or a memory because it suits the user, not because it is so.",
    ),
    "repetition": (
        "Repetition",
        "Different questions get the same reply, because the same few memories colour all of them.",
    ),
}
ORIGINS = {
    "appendix": "From the paper's appendix (figures 21 to 32), read from your data folder: GPT-4o-mini's replies and "
    "the scores of the paper's judge.",
    "invented": "Invented for this project, with the people of the bundled sample: no model replied and no judge "
    "scored; the scores say what one would expect.",
}


def show_examples() -> None:
    known = cases.read()
    parts.heading("In three worked examples")
    parts.remark(ORIGINS[known.origin])
    # A repetition is several replies: it takes the width of both others.
    for (category, (name, meaning)), place in zip(KINDS.items(), [*st.columns(2), st.container()], strict=True):
        with place, st.container(border=True):
            st.subheader(name, anchor=False)
            st.markdown(meaning)
            of_category = known.of(category)
            if not of_category:
                st.info("No example of this kind in the file.", icon=":material/info:")
                continue
            names = {case.id: case_label(case, known.origin) for case in of_category.values()}
            chosen = link.one_of("Example", list(of_category), category, names=names)
            show_case(name, of_category[chosen])


def case_label(case: cases.Case, origin: cases.Origin) -> str:
    """E.g. `Baiting · MemU · fig-22`; invented cases have no method."""
    subtype = theme.NAMES.get(case.subtype, case.subtype)
    label = (subtype, case.method, case.id) if origin == "appendix" else (subtype, case.id)
    return parts.as_label(" · ".join(label))


def show_case(kind: str, case: cases.Case) -> None:
    """Questions and replies with their scores; below, the memories and fitting replies. All of it is text of a file."""
    several = len(case.exchanges) > 1
    for number, (exchange, place) in enumerate(zip(case.exchanges, st.columns(len(case.exchanges)), strict=True), 1):
        head = f" {number}" if several else ""
        place.markdown(f"**Question{head}.** {parts.plain(exchange.question)}")
        place.markdown(
            f"**Over-personalised reply{head}.** :orange-badge[score {exchange.score:.2f}] "
            f"{parts.plain(exchange.response)}"
        )
        collecting.add(
            Words(
                f"{kind}{head} ({case.user}, {case.method})",
                f"Question: {exchange.question}\nMemories: {' | '.join(exchange.memories)}\n"
                f"Reply ({exchange.score:.2f}): {exchange.response}\n"
                f"A reply that fits ({exchange.fitting_score:.2f}): {exchange.fitting}",
            )
        )
    with st.expander("Replies that fit" if several else "A reply that fits", icon=":material/thumb_up:"):
        for number, exchange in enumerate(case.exchanges, start=1):
            head = f"**To question {number}.** " if several else ""
            badge = f":violet-badge[score {exchange.fitting_score:.2f}]"
            st.markdown(f"{head}{badge} {parts.plain(exchange.fitting)}")
    number_of = sum(len(exchange.memories) for exchange in case.exchanges)
    with st.expander(f"Retrieved memories ({number_of})", icon=":material/history:"):
        for number, exchange in enumerate(case.exchanges, start=1):
            if several:
                st.markdown(f"**For question {number}**")
            st.markdown("\n".join(f"- {parts.plain(memory)}" for memory in exchange.memories))


def places(wide: bool) -> list[Any]:
    """Where a figure and its table go: beside each other when the page's whole width is theirs."""
    return list(st.columns([10, 11], gap="small")) if wide else [st.container(), st.container()]


def show_study(frame: pd.DataFrame, mark: str, name: str, title: str, remark: str, wide: bool) -> None:
    """The averages as a figure, and the table with the sub-scores."""
    picture, numbers = places(wide)
    with picture:
        parts.chart(
            op_by_memory(frame, mark, title),
            name,
            "OP-Bench average by model and memory system with the drop below BASE; the table holds the same numbers",
        )
    shown = parts.named(frame).assign(
        scored=[theme.scored(*each) for each in zip(frame["n_scored"], frame["n_planned"], strict=True)],
        remark=[
            "; ".join(filter(None, each)) for each in zip(frame["missing"], frame["drop_note"].fillna(""), strict=True)
        ],
    )
    columns: dict[str, Any] = {
        "model": "model",
        "memory": "memory",
        "op": st.column_config.NumberColumn("OP-Bench", format="%.2f", help="Average in points, 0 to 100"),
        "drop": st.column_config.NumberColumn("drop", format="%.1f %%", help="Percent below BASE of the same model"),
        "scored": st.column_config.TextColumn("n", help="Scored instances of those planned"),
    }
    for subtype, column in SUBSCORE_COLUMNS.items():
        columns[column] = st.column_config.NumberColumn(theme.NAMES[subtype], format="%.2f")
    if frame["mitigation"].nunique() > 1:
        columns = {"model": "model", "memory": "memory", "mitigation": "post-processor"} | columns
    if shown["remark"].any():
        columns["remark"] = "remark"
    if frame["n_scored"].isna().all():
        del columns["scored"]
    with numbers:
        parts.table(shown, columns, name, frame)
        parts.remark(remark)


def show_radar(frame: pd.DataFrame, model: str, systems: list[str], mark: str, name: str, wide: bool) -> None:
    """One model's radar, and the table with the same numbers."""
    table = overview.radar_table(frame, model, systems)
    memories = [column for column in table.columns if column != "subtype"]
    if not memories:
        st.info("None of these memory systems is in it.", icon=":material/info:")
        return
    methods = [theme.NAMES.get(name, name) for name in frame["mitigation"].unique() if name != NO_MITIGATION]
    title = f"Sub-scores of {model}" + (f" with {methods[0]}" if methods else "")
    picture, numbers = places(wide)
    with picture:
        parts.chart(
            radar(table, mark, title),
            name,
            "Radar over the six subtypes, a line a memory system; the table holds the same numbers",
        )
    columns: dict[str, Any] = {"subtype": "subtype"}
    for memory in memories:
        label = theme.NAMES.get(memory, memory)
        columns[memory] = st.column_config.NumberColumn(label, format="%.1f", help="Points, 0 to 100")
    with numbers:
        parts.table(table.assign(subtype=table["subtype"].replace(theme.NAMES)), columns, name, table)


def published_part(current: view.View, wide: bool) -> pd.DataFrame:
    """Table 2 with the choice of how its averages are made."""
    parts.published_marks()
    averages = link.one_of(
        "Published averages",
        list(overview.AVERAGES),
        "averages",
        kind="segmented",
        names={str(name): text for name, text in overview.AVERAGES.items()},
        help="The paper's averages were made by three different rules (see Audit). Recomputed: out of the printed "
        "sub-scores, by the sidebar's rule for all rows.",
    )
    frame = overview.published_study(averages, current.rule, current.first_only)
    if averages == "printed":
        mark = f"{theme.provenance(published=True)} · as printed, by several rules"
        remark = "As printed: the rows follow several rules, so neither the sidebar's rule nor its speakers apply."
    else:
        first = ", counts of first speakers" if current.first_only else ""
        mark = f"{theme.provenance(published=True)} · recomputed by {current.rule}{first}"
        remark = f"Recomputed out of the printed sub-scores by one rule for all rows: {current.rule}{first}."
    show_study(
        frame,
        mark,
        "op-by-memory-published",
        "Published: OP-Bench average",
        f"{remark} The line is BASE. The paper's two further models (table 6) aren't here: it prints them as a "
        "picture only.",
        wide,
    )
    return frame


def measured_part(current: view.View, status: RunStatus, table: pd.DataFrame) -> pd.DataFrame:
    """The run's own averages, for one post-processor at a time."""
    data = results.run_data(status.run_id, results.stamp(status))
    first = ["first speakers only"] if current.first_only else []
    parts.run_marks(status, data, f"rule: {current.rule}", *first)
    mitigation = _pick_mitigation(table)
    frame = overview.measured_study(table, mitigation)
    extra = "" if mitigation == NO_MITIGATION else f" with {theme.NAMES.get(mitigation, mitigation)}"
    mark = theme.provenance(recorded=status.recorded, comparable=data.comparable) or "measured"
    show_study(
        frame,
        f"{mark} · rule: {current.rule}",
        "op-by-memory-measured",
        f"Measured{extra}: OP-Bench average",
        "The line is BASE. A drop is paired: over the instances that the row and BASE have both scored.",
        wide=False,
    )
    parts.say_left_out(table)
    return frame


def show_figures(current: view.View) -> None:
    """The published figures over the page's width, or beside those of the chosen run."""
    parts.heading("How much of it there is")
    status = current.status
    table: pd.DataFrame | None = None
    if status is None:
        link.check("processor", list(theme.NAMES.values()))
    else:
        table = measured_table(current, status)
    halves = [st.container()] if table is None else list(st.columns(2, gap="medium"))
    with halves[0]:
        published = published_part(current, table is None)
    measured: pd.DataFrame | None = None
    if status is not None and table is not None:
        with halves[1]:
            measured = measured_part(current, status, table)
    show_subtypes(published, measured, status)
    parts.published_provenance(
        "Table 2 and figure 2: four of the six models. Table 6 (two more) is a picture in the paper.",
        "The averages were made by more than one rule (`opbench audit`).",
    )
    if status is not None:
        speakers = "first only" if current.first_only else "all"
        data = results.run_data(status.run_id, results.stamp(status))
        parts.run_provenance(status, data, rule=current.rule, speakers=speakers)


def measured_table(current: view.View, status: RunStatus) -> pd.DataFrame | None:
    """The run's OP-Bench table; None, and a sentence, when it has no average yet."""
    table = results.op_table(status.run_id, results.stamp(status), current.rule, current.first_only)
    if not table["op"].isna().all():
        return table
    reasons = "; ".join(sorted(set(table["missing"]) - {""})) or "nothing is scored"
    parts.nothing_yet(f"Nothing measured to put beside the published figures yet: {reasons}.")
    return None


def show_subtypes(published: pd.DataFrame, measured: pd.DataFrame | None, status: RunStatus | None) -> None:
    """The radars of the published table and of the run, over the same memory systems."""
    parts.heading("Where it is worst: the six subtypes")
    memories = list(published["memory"].unique())
    if measured is not None:
        memories += [memory for memory in measured["memory"].unique() if memory not in memories]
    names = {memory: theme.NAMES.get(memory, memory) for memory in memories}
    systems = link.some_of("Memory systems", memories, "systems", names=names, placeholder="all", width=420)
    halves = [st.container()] if measured is None else list(st.columns(2, gap="medium"))
    with halves[0]:
        model = link.one_of("Published: model", list(published["model"].unique()), "radar", width=260)
        show_radar(published, model, systems, theme.provenance(published=True), "radar-published", measured is None)
    if measured is None or status is None:
        st.caption("Choose a run under “Results of” to see measured figures beside the published ones.")
        return
    with halves[1]:
        model = link.one_of("Measured: model", list(measured["model"].unique()), "radar-of", width=260)
        data = results.run_data(status.run_id, results.stamp(status))
        mark = theme.provenance(recorded=status.recorded, comparable=data.comparable) or "measured"
        show_radar(measured, model, systems, mark, "radar-measured", wide=False)


def _pick_mitigation(table: pd.DataFrame) -> str:
    options: list[str] = list(dict.fromkeys(table["mitigation"]))
    if len(options) < 2:
        return options[0]
    names = {name: theme.NAMES.get(name, name) for name in options}
    return link.one_of("Measured with", options, "processor", names=names, width=260)


parts.title("What is over-personalisation, and how much of it is there?")
st.markdown(
    "An agent that remembers its users can make too much of it: it drags what it knows about a user into replies where "
    "it doesn't belong. OP-Bench asks 1,700 questions of 20 users that catch this, and scores each reply from 0 (all "
    "about the user) to 1 (nothing of it; in tables 0 to 100). BASE, the same model without any memory, is the oracle."
)
show_examples()
show_figures(view.current())
