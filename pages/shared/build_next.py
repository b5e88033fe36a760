"""After filtering: responses to the kept questions, people's review of these, and the benchmark as files.

Every deed is checked on the server: only editors may.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import pandas as pd
import streamlit as st

from opbench.construction.export import Which, export_zip
from opbench.construction.responding import data_of, response_study
from opbench.errors import OpbenchError
from opbench.judges import is_rule_judge
from opbench.models import load_registry
from opbench.running.launch import command
from opbench.sharing.naming import file_stem
from opbench.store.builds import Build
from opbench.study import Study
from pages.shared import (
    access,
    builds,
    chosen_models,
    link,
    memory_systems,
    parts,
    quoting,
    results,
    steering,
    study_form,
)

_WHICH = {"kept": "all that filters kept", "accepted": "those that people accepted"}
#: What a study of responses is made of: session state of the data set that was written for it.
_DATA = "build-data"


def respond(build: Build, counts: dict[str, int]) -> None:
    """Have BASE and a memory system respond to the questions that are left."""
    parts.heading("Responses: BASE beside a memory system")
    _runs(build.id)
    left = {"kept": counts.get("kept", 0) + counts.get("accepted", 0), "accepted": counts.get("accepted", 0)}
    if not left["kept"]:
        st.info("Filters have kept no question yet, so there is nothing to respond to.", icon=":material/filter_alt:")
        return
    if waiting := counts.get("candidate", 0):
        st.warning(f"{waiting:,} questions aren't filtered yet: they would be left out.", icon=":material/filter_alt:")
    off: dict[str, Any] = {"disabled": not access.may_edit()}
    registry = load_registry()
    labels = study_form.distinct({name: spec.label for name, spec in registry.models.items()})
    systems = {name: label for name, label in memory_systems.labels().items() if name != "base"}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        which = link.one_of("Which questions", list(_WHICH), "which", names=_WHICH, width=260, **off)
        models = link.some_of("Models that respond", list(labels), "models", names=labels, width=260, **off)
        memories = link.some_of("Memory systems", list(systems), "memories", names=systems, width=220, **off)
        judge = link.one_of(
            "Judge", ["offline", *labels], "judge", names={"offline": "offline", **labels}, width=200, **off
        )
    memory_systems.say_missing(memory_systems.missing(memories))
    if not left[which]:
        st.info("None of them is accepted yet: people's review decides that.", icon=":material/rate_review:")
        return
    if not (models and memories):
        st.caption(f"Choose a model and a memory system: they and BASE will respond to {left[which]:,} questions.")
        return
    asked = list(dict.fromkeys([*models, *([] if is_rule_judge(judge) else [judge])]))
    chosen_models.show_notes(registry, asked)
    st.caption("The same from the command line; with --dry-run it only tells what it takes:")
    parts.code(
        f"opbench build respond {build.id} --models {','.join(models)} --memories {','.join(memories)}"
        + ("" if which == "kept" else f" --which {which}")
        + ("" if judge == "offline" else f" --judge {judge}"),
        "bash",
    )
    if not access.may_edit():
        return
    missing = chosen_models.ask_for_keys(registry, asked, place="respond")
    wanted = (build.id, which, left[which], tuple(models), tuple(memories), judge)
    if st.button("What will it take?", key="respond-quote", icon=":material/calculate:"):
        access.demand_edit()
        data = data_of(results.opened().store, build.id, cast(Which, which))
        st.session_state[_DATA] = (wanted, data)
    kept = st.session_state.get(_DATA)
    if kept is not None and kept[0] == wanted:
        study = response_study(
            kept[1], models=models, memories=memories, judge=judge, name=f"Responses to {build.name}"[:120]
        )
        _offer(study, missing)


def _offer(study: Study, missing: list[str]) -> None:
    """What the responses take, and the buttons that start them."""
    form = study_form.Form(study, (), study_form.DEFAULT_CONCURRENCY, 1, None)
    run_id, estimate = quoting.of(form)
    with st.container(border=True):
        quoting.show(study, estimate, form.concurrency)
        if missing:
            st.info(f"Type a key first: {', '.join(missing)}.", icon=":material/key:")
        with st.container(horizontal=True, vertical_alignment="center"):
            if st.button(
                "Respond",
                key="respond",
                type="primary",
                icon=":material/play_arrow:",
                disabled=bool(missing) or not estimate.to_do,
                help="In a process of its own; the Launch page watches it.",
            ):
                steering.start(study, form.concurrency)
                del st.session_state[_DATA]
                builds.look_again(None, f"Started: run {run_id}. {command(study, form.concurrency)}")
            st.page_link(
                "pages/views/launch.py",
                label="Set it up on the Launch page",
                icon=":material/tune:",
                query_params=_on_launch(study),
                help="With post-processors, another k, a budget, several processes.",
            )
        if not estimate.to_do:
            st.caption(f"Run {run_id} has all of them.")


def _on_launch(study: Study) -> dict[str, str | list[str]]:
    """The Launch page's link to a form that says this study; links carry what people read."""
    models = study_form.distinct({name: spec.label for name, spec in load_registry().models.items()})
    systems = memory_systems.labels()
    return {
        "data": study_form.built_name(study.data),
        "models": [models[name] for name in study.models],
        "memories": [systems[name] for name in study.memories],
        "benchmarks": "OP-Bench",
        "everything": "true",
        "judge": models.get(study.judge, study.judge),
    }


def _runs(build_id: str) -> None:
    """The runs on the build's questions; each can be watched, and reviewed."""
    known = builds.runs(build_id)
    if not known:
        return
    states = [results.status(run_id) for run_id in known]
    frame = pd.DataFrame(
        [
            {
                "run": state.run_id,
                "name": state.name,
                "records": f"{state.done:,} of {state.planned:,}",
                "failed": state.errors,
                "state": "running" if state.working else "complete" if state.complete else "stopped",
            }
            for state in states
        ]
    )
    columns: dict[str, Any] = {
        "run": st.column_config.TextColumn("run", width=130),
        "name": st.column_config.TextColumn("name", width=220),
        "records": st.column_config.TextColumn("records", width=110),
        "failed": st.column_config.NumberColumn("failed", width=70),
        "state": st.column_config.TextColumn("state", width=90),
    }
    parts.table(frame, columns, "build-runs", frame)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        run_id = link.one_of("Run", known, "of-run", width=200) if len(known) > 1 else known[0]
        for page, label, icon in (
            ("launch", "Watch it", "visibility"),
            ("instances", "Read its responses", "search"),
            ("review", "Have people review it", "rate_review"),
        ):
            st.page_link(f"pages/views/{page}.py", label=label, icon=f":material/{icon}:", query_params={"run": run_id})
    parts.code(f"opbench review create {run_id}", "bash")


def export(build: Build, counts: dict[str, int]) -> None:
    """The benchmark as files: the public format, and beside it where each question comes from."""
    parts.heading("The benchmark as files")
    accepted, kept = counts.get("accepted", 0), counts.get("kept", 0)
    st.caption(
        "A zip of `opbench/` and `locomo/` in exactly the public files' form, which this workbench and the public "
        "evaluator load, and `provenance.json` with generator, prompt, evidence and decisions of each question."
    )
    store, stem = results.opened().store, file_stem(build.name)
    if not accepted + kept:
        st.info("Nothing is kept yet, so there is nothing to export.", icon=":material/hourglass_empty:")
        return
    with st.container(horizontal=True):
        for which, n in (("accepted", accepted), ("kept", accepted + kept)):
            if n:
                st.download_button(
                    f"The {n:,} accepted questions" if which == "accepted" else f"All {n:,} that filters kept",
                    partial(export_zip, store, build.id, cast(Which, which)),
                    file_name=f"{stem}-{which}.zip",
                    mime="application/zip",
                    icon=":material/folder_zip:",
                    key=f"export-{which}",
                    on_click="ignore",
                )
    if not accepted:
        st.caption("No question is accepted by people yet: what filters kept is a draft of a benchmark.")
    which = "accepted" if accepted else "kept"
    folder = f"{stem}-{which}"
    parts.code(
        f"opbench build export {build.id} {folder} --which {which}\n"
        f"OPBENCH_DATA={folder} opbench run --models … --memories base,rag",
        "bash",
    )


def tell(section: Any) -> None:
    """Draw a section; what goes wrong in it is said there, and the page goes on."""
    try:
        section()
    except OpbenchError as error:
        st.error(parts.plain(str(error)), icon=":material/error:")
