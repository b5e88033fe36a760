"""All studies of the store: opened, exported, imported, renamed, deleted."""

import io
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from mitigations.registry import names as mitigation_names
from opbench.errors import OpbenchError, UsageError
from opbench.figures import theme
from opbench.sharing.naming import file_stem
from opbench.sharing.public_export import public_files
from opbench.sharing.public_import import PublicPart, configuration, import_public
from opbench.store.bundle import SUFFIX, export_run, import_run
from opbench.store.studies import LONGEST_NAME, delete_run, rename_run, study_list
from opbench.study import NO_MITIGATION
from pages.shared import access, parts, results, view

_SAID = "studies-said"
_ROUND = "studies-round"
_MEMORIES = ("base", "rag", "mem0", "memu", "memos")


@st.cache_data(ttl=2, max_entries=1, show_spinner=False)
def all_studies() -> pd.DataFrame:
    return study_list(results.opened().store)


def look_again(run_id: str, *sentences: str) -> None:
    """Draw the page anew with another store, and say what was done."""
    st.session_state[_SAID] = list(sentences)
    # A new key empties what was typed and uploaded.
    st.session_state[_ROUND] = st.session_state.get(_ROUND, 0) + 1
    all_studies.clear()
    view.look_at(run_id)


def choose(runs: Sequence[str]) -> None:
    rows = st.session_state["studies"]["selection"]["rows"]
    if rows and rows[0] < len(runs):
        st.session_state["next_run"] = runs[rows[0]]


def state_of(row: dict[Any, Any]) -> str:
    if row["working"]:
        return "running"
    if row["recorded"]:
        return "recorded"
    return "complete" if row["done"] == row["planned"] else "stopped"


def show_table(frame: pd.DataFrame) -> None:
    shown = frame.assign(
        begun=[f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}" for at in frame["begun"]],
        state=[state_of(row) for row in frame.to_dict("records")],
        records=[theme.scored(done, planned) for done, planned in zip(frame["done"], frame["planned"], strict=True)],
        comparable=["yes" if each else "no" for each in frame["comparable"]],
        texts=["yes" if each else "left out" for each in frame["texts"]],
    )
    columns: dict[str, Any] = {
        "name": st.column_config.TextColumn("name", width=195),
        "run": st.column_config.TextColumn("id", width=122),
        "begun": st.column_config.TextColumn("begun (UTC)", width=115),
        "state": st.column_config.TextColumn("state", width=75),
        "records": st.column_config.TextColumn("records", help="Done, of those planned", width=95),
        "errors": st.column_config.NumberColumn("failed", format="%d", help="Records that are errors", width=60),
        "judge": st.column_config.TextColumn("judge", width=60),
        "comparable": st.column_config.TextColumn("comparable", help="With the paper's scores", width=85),
        "texts": st.column_config.TextColumn("texts", help="Questions, memories and responses", width=65),
    }
    whole = frame.assign(begun=pd.to_datetime(frame["begun"], unit="s", utc=True).dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    parts.table(
        shown,
        columns,
        "studies",
        whole,
        key="studies",
        on_select=partial(choose, frame["run"].tolist()),
        selection_mode="single-row",
    )


def bundle(run_id: str, texts: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return export_run(results.opened().store, run_id, Path(folder) / "bundle", texts=texts).read_bytes()


def public(run_id: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in public_files(results.opened().store, run_id):
            archive.writestr(name, content)
    return packed.getvalue()


def show_exports(study: dict[Any, Any]) -> None:
    run_id, stem = study["run"], file_stem(study["name"] or study["run"])
    with st.container(horizontal=True):
        st.download_button(
            "Bundle without texts",
            partial(bundle, run_id, False),
            file_name=f"{stem}{SUFFIX}",
            mime="application/zip",
            icon=":material/inventory_2:",
            key="bundle-numbers",
            on_click="ignore",
            help="Ids, scores, times and tokens: it may be passed on.",
        )
        if study["texts"]:
            st.download_button(
                "Bundle with texts",
                partial(bundle, run_id, True),
                file_name=f"{stem}-texts{SUFFIX}",
                mime="application/zip",
                icon=":material/inventory_2:",
                key="bundle-texts",
                on_click="ignore",
                help="With questions, memories and responses: the benchmarks' sentences may not be passed on freely.",
            )
            st.download_button(
                "Public evaluator's JSON",
                partial(public, run_id),
                file_name=f"{stem}-public.zip",
                mime="application/zip",
                icon=":material/data_object:",
                key="public-json",
                on_click="ignore",
                help="OP-Bench alone, as the authors' scripts write and read it; two files a configuration.",
            )
    if not study["texts"]:
        st.caption("Its texts were left out when it was exported, so there is nothing else to export.")


def show_chosen(study: dict[Any, Any]) -> None:
    """What can be done with one study."""
    st.header(parts.plain(study["name"] or study["run"]), anchor=False)
    st.caption(
        f"{study['configurations']} configurations, {theme.scored(study['done'], study['planned'])} records. "
        "It is chosen for all pages."
    )
    with st.container(horizontal=True):
        for page, label in (("trade_off", "Trade-off"), ("oracle_gap", "Oracle gap"), ("latency", "Latency and cost")):
            st.page_link(f"pages/views/{page}.py", label=f"Open {label}", icon=":material/arrow_forward:")
    st.subheader("Export", anchor=False)
    show_exports(study)
    if access.may_edit():
        show_changes(study)


def show_changes(study: dict[Any, Any]) -> None:
    """A new name, and the end: for editors."""
    run_id, turn = study["run"], st.session_state.get(_ROUND, 0)
    store = results.opened().store
    with st.expander("Rename", icon=":material/edit:"), st.form(f"rename-{run_id}-{turn}", border=False):
        name = st.text_input("Name", study["name"], max_chars=LONGEST_NAME)
        if st.form_submit_button("Rename"):
            access.demand_edit()
            rename_run(store, run_id, name)
            look_again(run_id, "Renamed. Its id, which is its study's hash, stays.")
    with st.expander("Delete", icon=":material/delete:"):
        st.markdown(
            f"Its {study['done'] + study['errors']:,} records and their scores go, people's scores among them. What "
            "its calls cost isn't lost: the call store keeps every answer, and starting the same study again asks "
            "only what isn't there."
        )
        if study["recorded"]:
            st.caption("It came from a file; one that comes with the project is there again at the app's next start.")
        if study["working"]:
            st.info("A process is at work on it. Stop it on the Launch page first.", icon=":material/sync:")
            return
        with st.form(f"delete-{run_id}-{turn}", border=False):
            typed = st.text_input(f"To delete it, type its id: {parts.as_label(run_id)}", autocomplete="off")
            if st.form_submit_button("Delete this study", icon=":material/delete_forever:"):
                access.demand_edit()
                if typed.strip() != run_id:
                    raise UsageError(f"nothing was deleted: what you typed isn't {run_id}.")
                count = delete_run(store, run_id)
                look_again(view.PUBLISHED, f"Deleted {run_id} with {count:,} records.")


def show_import() -> None:
    """Read a study from files: for editors."""
    st.header("Import", anchor=False)
    turn = st.session_state.get(_ROUND, 0)
    files = st.file_uploader(
        f"Bundles (`…{SUFFIX}`), or JSON files of the public evaluator (`responses`, `judged`)",
        type=["zip", "json"],
        accept_multiple_files=True,
        key=f"upload-{turn}",
        help=f"Up to {st.get_option('server.maxUploadSize')} MB here; larger ones with `opbench import FILE`.",
    )
    if not files:
        return
    documents = [file for file in files if not file.name.lower().endswith(".zip")]
    if documents and len(documents) < len(files):
        st.info("Read bundles and JSON files in apart: JSON files together make one study.", icon=":material/info:")
        return
    with st.form(f"import-{turn}", border=False):
        chosen = ask_names(documents, turn) if documents else None
        if not st.form_submit_button("Read in", type="primary", icon=":material/upload_file:"):
            return
    access.demand_edit()
    store = results.opened().store
    if chosen is None:
        runs = [import_run(store, file, label=file.name) for file in files]
        look_again(runs[-1], f"Read in: {', '.join(runs)}.")
        return
    model, judge, name, pairs = chosen
    named = [
        PublicPart(file.getvalue(), file.name, configuration(model, *pair))
        for file, pair in zip(documents, pairs, strict=True)
    ]
    imported = import_public(store, named, judge=judge, name=name)
    look_again(imported.run_id, f"Read in: {imported.run_id}.", *(f"{note}." for note in imported.notes))


def ask_names(documents: Sequence[Any], turn: int) -> tuple[str, str, str, list[tuple[str, str]]]:
    """What the public evaluator's files don't tell: model, judge, a name; memory system and post-processor of each."""
    st.caption("The public evaluator's files don't say which model, memory system and post-processor they are of.")
    with st.container(horizontal=True):
        model = st.text_input("Model that answered", placeholder="gpt-4o-mini", key=f"import-model-{turn}")
        judge = st.text_input("Model that judged", placeholder="not told", key=f"import-judge-{turn}")
        name = st.text_input("Name of the study", max_chars=LONGEST_NAME, key=f"import-name-{turn}")
    methods = [NO_MITIGATION, *(each for each in mitigation_names() if each != NO_MITIGATION)]
    pairs = []
    for number, document in enumerate(documents):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.text(document.name, width=260)
            memory = st.selectbox(
                "Memory system", _MEMORIES, 1, accept_new_options=True, key=f"import-memory-{turn}-{number}"
            )
            mitigation = st.selectbox(
                "Post-processor", methods, accept_new_options=True, key=f"import-mitigation-{turn}-{number}"
            )
            pairs.append((memory or "", mitigation or ""))
    return model, judge, name, pairs


def tell(section: Callable[[], None]) -> None:
    """Draw a section; what goes wrong in it is said there, and the page goes on."""
    try:
        section()
    except OpbenchError as error:
        st.error(parts.plain(str(error)), icon=":material/error:")


parts.title("Which studies are here, and how do I share, import or delete one?")
for sentence in st.session_state.pop(_SAID, []):
    st.success(parts.plain(sentence), icon=":material/check:")
studies = all_studies()
if studies.empty:
    parts.launch_first("No study is here yet: launch one, or import one.")
else:
    st.caption("Tick a row to choose its study.")
    show_table(studies)
    looked_at = view.current().status
    here = studies[studies["run"] == looked_at.run_id] if looked_at is not None else studies.head(0)
    if here.empty:
        st.info(
            "Choose a study in the table, or under “Results of”, to export, rename or delete it.",
            icon=":material/info:",
        )
    else:
        tell(partial(show_chosen, here.to_dict("records")[0]))
if access.may_edit():
    tell(show_import)
