"""The Compare page: one run or two, paired, with what differs said."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select, update

from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.writing import create_run
from opbench.study import make_study
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, write_run
from tests.pages.test_results_pages import words

NONE, REMINDER, BASE = "smollm2-135m · rag · none", "smollm2-135m · rag · reminder", "smollm2-135m · base · none"


def table(app: Any, column: str) -> Any:
    """The first table on the page that has the column."""
    return next(each.value for each in app.dataframe if column in each.value)


def said(app: Any) -> str:
    return words(app).replace("\\", "")


def test_published_figures_cannot_be_compared_by_instance(visit: Open) -> None:
    assert "averages only" in visit("compare").info[0].value


def test_from_no_post_processor_to_reminder(visit: Open, store: Store) -> None:
    # made_run: OP-Bench 0.5 → 0.7, LoCoMo 0.6 → 0.45, every instance alike.
    write_run(store)
    app = visit("compare", run=MADE)
    assert (app.selectbox(key="from").value, app.selectbox(key="to").value) == (NONE, REMINDER)
    rows = table(app, "better").set_index(["benchmark", "subtype"])
    assert rows.loc[("LoCoMo", "all"), ["change", "better", "worse", "equal"]].tolist() == pytest.approx(
        [-15.0, 0, 12, 0]
    )
    facts = rows.loc[("OP-Bench", "Fact-level")]
    assert (facts["change"], facts["worse"]) == (pytest.approx(20.0), 0)
    assert facts["better"] == facts["n_paired"] > 0
    text = said(app)
    assert "**+20.0 points**" in text
    assert "**−15.0 points**" in text


def test_the_largest_changes_lead_to_both_records(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit("compare", run=MADE)
    links = [each.proto for each in app.get("page_link") if "locomo" in each.proto.label]
    assert len(links) == 10
    assert f"run={MADE}" in links[0].query_string
    assert "beside=" in links[0].query_string
    assert links[0].label.replace("\\", "").startswith("−15.0 (60.0 → 45.0)")


def test_the_other_way_round(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit("compare", run=MADE, **{"from": REMINDER, "to": BASE})
    rows = table(app, "better").set_index(["benchmark", "subtype"])
    assert rows.loc[("LoCoMo", "all"), "change"] == pytest.approx(-35.0)
    assert "Repetition by user" in [each.value for each in app.header]


def other_run(store: Store, **fields: Any) -> None:
    """The same once more, with other fields in its study and provenance."""
    write_run(store, "other0run", name="the other")
    with store.begin() as connection:
        row = connection.execute(select(s.runs.c.study, s.runs.c.provenance).where(s.runs.c.id == "other0run")).one()
        study, provenance = row.study | fields.pop("study", {}), row.provenance | fields
        connection.execute(update(s.runs).where(s.runs.c.id == "other0run").values(study=study, provenance=provenance))


def test_two_runs_of_the_same_data_raise_no_doubt(visit: Open, store: Store) -> None:
    write_run(store)
    other_run(store)
    app = visit("compare", run=MADE, **{"with": "the other · other0run"})
    # The same configuration is the natural one to compare with.
    assert app.selectbox(key="to").value == NONE
    assert not [each for each in app.warning if "may not be compared" in each.value]
    rows = table(app, "better")
    assert rows["equal"].sum() == rows["n_paired"].sum() > 0
    assert "Nothing that is known." in said(app)


def test_other_data_or_another_judge_is_a_plain_warning(visit: Open, store: Store) -> None:
    write_run(store)
    other_run(store, data={"sample": "1" * 64}, judge={"version": "2"})
    app = visit("compare", run=MADE, **{"with": "the other · other0run"})
    warned = " ".join(each.value for each in app.warning)
    assert "The judges differ" in warned
    assert "The data files differ" in warned
    differs = table(app, "what").set_index("what")
    assert differs.loc["data: sample", "after"] == "1" * 64


def test_a_link_of_two_runs_opens_the_second_and_the_first(visit: Open, store: Store) -> None:
    write_run(store)
    other_run(store)
    app = visit("compare", run=MADE, **{"with": "the other · other0run", "to": REMINDER})
    links = [each.proto.query_string for each in app.get("page_link")]
    assert any("run=other0run" in each and "reminder" in each for each in links)
    assert any(f"run={MADE}" in each and "none" in each for each in links)


def test_one_configuration_alone(visit: Open, store: Store) -> None:
    study = make_study({"models": ["m"], "memories": ["base"], "limit": 1})
    create_run(store, "lonely", study, "lonely", {"comparable": False}, [])
    assert "one configuration only" in said(visit("compare", run="lonely"))


def test_nothing_in_common_yet(visit: Open, store: Store) -> None:
    study = make_study({"models": ["m"], "memories": ["rag"], "mitigations": ["none", "marag"]})
    create_run(store, "empty", study, "empty", {"comparable": False}, [])
    assert "nothing can be paired" in said(visit("compare", run="empty"))


@pytest.mark.parametrize("name", ["from", "to", "with"])
def test_a_wrong_choice_in_a_link_is_a_sentence(visit: Open, store: Store, name: str) -> None:
    write_run(store)
    app = visit("compare", run=MADE, **{name: "nonsense"})
    assert f"{name}=nonsense" in app.warning[0].value.replace("\\", "")
