"""The Instances page: finding, opening, comparing and scoring single records."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from opbench.store import human
from opbench.store import schema as s
from opbench.store.bundle import export_run, import_run
from opbench.store.database import Store
from opbench.store.runs import run_study
from opbench.store.search import Search, found, hits
from pages.shared import access
from tests.pages.conftest import Open
from tests.pages.hostile import LONG, NASTY
from tests.pages.made_run import MADE, write_run
from tests.pages.test_results_pages import words

MARAG, NONE = "smollm2-135m · rag · marag", "smollm2-135m · rag · none"


def an_instance(store: Store, subtype: str) -> str:
    """The slice's first instance of a subtype."""
    study, _ = run_study(store, MADE)
    ids = found(store, MADE, study, Search(subtypes=(subtype,)))
    return str(hits(store, study, [int(ids[0])], texts=False)["instance"].iloc[0])


def said(app: AppTest) -> str:
    """All words on the page, backslashes of Markdown taken off."""
    return "\n".join([words(app), *(str(each.value) for each in (*app.text, *app.subheader, *app.header))]).replace(
        "\\", ""
    )


def answer(store: Store, response: str, key: tuple[str, str] = ("rag", "marag"), **more: Any) -> None:
    """Give all records of a configuration this response, and other columns."""
    of = s.configurations.c
    mine = s.configurations.select().with_only_columns(of.id).where(of.memory == key[0], of.mitigation == key[1])
    with store.begin() as connection:
        connection.execute(
            update(s.records)
            .where(s.records.c.configuration_id.in_(mine), s.records.c.status == "done")
            .values(response=response, **more)
        )


def test_published_figures_have_no_instances(visit: Open) -> None:
    app = visit("instances")
    assert "averages only" in app.info[0].value
    assert app.title[0].value.endswith("?")


def test_all_records_are_listed_a_page_at_a_time(visit: Open, store: Store) -> None:
    write_run(store, failed=1, left=2)
    app = visit("instances", run=MADE)
    # 4 configurations × 24 instances, two of which are not there.
    assert "94 records" in said(app)
    assert len(app.dataframe[0].value) == 25


def test_filters_of_a_link_are_followed(visit: Open, store: Store) -> None:
    write_run(store, failed=1)
    app = visit("instances", run=MADE, outcome="failed")
    assert "1 record fit: failed" in said(app).replace("*", "")
    table = app.dataframe[0].value
    assert table["outcome"].tolist() == ["failed: timeout"]
    assert table["mitigation"].tolist() == ["MARAG"]


def test_the_score_range_of_a_link(visit: Open, store: Store) -> None:
    # Reminder's judged OP-Bench records have 0.7, BASE's 0.9; LoCoMo's are at most 0.6.
    write_run(store)
    app = AppTest.from_file(visit("instances")._script_path)
    app.run().switch_page("pages/views/instances.py")
    app.query_params["run"] = MADE
    app.query_params["score"] = ["0.65", "0.75"]
    app.run()
    table = app.dataframe[0].value
    assert set(table["mitigation"]) == {"Reminder"}
    assert set(table["score"]) == {0.7}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("only-processor", "Magic", "none of"),
        ("score", "0.5", "no range within 0 and 1"),
        ("hits", "99", "page 99 of 4"),
        ("outcome", "odd", "none of any"),
        ("of", "nobody", "none of smollm2-135m"),
    ],
)
def test_what_of_a_link_cannot_be_followed_is_said(visit: Open, store: Store, name: str, value: str, told: str) -> None:
    write_run(store)
    more = {"instance": an_instance(store, "fact")} if name == "of" else {}
    assert told in said(visit("instances", run=MADE, **{name: value}, **more))


def test_no_hit_says_what_to_do(visit: Open, store: Store) -> None:
    write_run(store)
    assert "Take a filter away" in said(visit("instances", run=MADE, says="no such words"))


def test_a_permalink_opens_the_record(visit: Open, store: Store) -> None:
    write_run(store)
    instance = an_instance(store, "temporal")
    app = visit("instances", run=MADE, instance=instance, of=MARAG)
    text = said(app)
    assert instance in text
    assert "A reply." in text
    assert "smollm2-135m · RAG · MARAG" in text
    assert "f1 0.60" in text
    assert "hit " in text
    # LoCoMo's right answer stands below the question.
    assert "Right answer (LoCoMo)" in text


def test_an_unknown_instance_is_a_sentence(visit: Open, store: Store) -> None:
    write_run(store)
    assert "no instance 'op/nowhere'" in said(visit("instances", run=MADE, instance="op/nowhere"))


def test_next_and_back(visit: Open, store: Store) -> None:
    write_run(store)
    instance = an_instance(store, "fact")
    app = visit("instances", run=MADE, instance=instance, of=NONE)
    app.button(key="step1").click().run()
    assert app.query_params["instance"] == [instance] or app.query_params["instance"] == instance
    assert app.selectbox(key="of").value == "smollm2-135m · rag · reminder"
    app.button(key="close").click().run()
    assert "96 records" in said(app)


def test_a_failed_record_shows_its_true_reason(visit: Open, store: Store) -> None:
    write_run(store, failed=1)
    study, _ = run_study(store, MADE)
    first = hits(store, study, [int(found(store, MADE, study, Search(outcome="failed"))[0])])["instance"].iloc[0]
    app = visit("instances", run=MADE, instance=str(first), of=MARAG)
    assert app.error[0].value.replace("\\", "").startswith("No response. timeout: <script>alert(1)</script>")
    # An error can't be scored.
    assert not [button for button in app.button if button.label == "Keep score"]


def test_differing_words_are_coloured_and_bold_and_still_text(visit: Open, store: Store) -> None:
    write_run(store)
    answer(store, "Do you like **tea** -> or coffee?")
    answer(store, "Do you like **milk** -> or coffee?", ("rag", "none"))
    app = visit("instances", run=MADE, instance=an_instance(store, "fact"), of=MARAG, beside=NONE)
    marked = [each.value for each in app.markdown if ":violet-background[" in each.value]
    assert marked[0] == "Do you like :violet-background[**\\*\\*tea\\*\\***] \\-\u2060\\> or coffee?"
    assert marked[1] == "Do you like :violet-background[**\\*\\*milk\\*\\***] \\-\u2060\\> or coffee?"


def test_memories_from_retrieved_to_kept_to_dropped(visit: Open, store: Store) -> None:
    write_run(store)
    memories = [{"text": text, "date": "8 May 2023", "score": 0.25} for text in ("Likes tea.", "Has a dog.")]
    context = [{"text": "Has one dog.", "date": None, "sources": [2], "altered": True}]
    answer(store, "Woof.", retrieved=memories, context=context, state="kept")
    app = visit("instances", run=MADE, instance=an_instance(store, "fact"), of=MARAG)
    text = said(app)
    assert [each.label for each in app.expander if each.label.startswith("Memories")] == [
        "Memories: 2 retrieved, 1 kept, 1 line in the prompt"
    ]
    assert "#1 · 8 May 2023 · similarity 0.250" in text
    assert "Has :violet-background[**a**] dog." in text
    assert "Has :violet-background[**one**] dog." in text


def test_text_without_texts(visit: Open, store: Store, tmp_path: Any) -> None:
    write_run(store)
    run_id = import_run(store, export_run(store, MADE, tmp_path / "x.opbench.zip", texts=False))
    app = visit("instances", run=run_id)
    assert "came without its texts" in said(app)
    assert "response" not in app.dataframe[0].proto.column_order
    opened = visit("instances", run=run_id, instance=an_instance(store, "fact"), of=MARAG)
    assert "left out of this recorded study" in said(opened)
    assert not [button for button in opened.button if button.label == "Keep score"]


def test_a_long_response_is_cut_until_it_is_asked_for(visit: Open, store: Store) -> None:
    write_run(store)
    answer(store, LONG)
    app = visit("instances", run=MADE, instance=an_instance(store, "fact"), of=MARAG)
    shown = next(each.value for each in app.text if each.value.startswith("=1+1 <script>"))
    assert len(shown) == 4_000 + len(" […]")
    assert "\x1b" not in shown
    assert "⟨ESC⟩[31mred⟨ESC⟩[0m ⟨RLO⟩gnp.exe" in shown
    app.toggle(key="all-response-a").set_value(True).run()
    whole = next(each.value for each in app.text if each.value.startswith("=1+1 <script>"))
    assert len(whole) > 200_000


def keep(app: AppTest, value: float, note: str) -> None:
    app.number_input[0].set_value(value)
    app.text_area[0].set_value(note)
    next(button for button in app.button if button.label == "Keep score").click().run()


def test_a_person_scores_and_withdraws(visit: Open, store: Store) -> None:
    write_run(store)
    instance = an_instance(store, "fact")
    app = visit("instances", run=MADE, instance=instance, of=MARAG)
    assert "Nobody has scored this response yet" in said(app)
    keep(app, 0.25, NASTY)
    (entry,) = human.history(store, MADE, ("smollm2-135m", "rag", "marag"), instance)
    assert (entry.value, entry.note, entry.rater) == (0.25, NASTY, "local")
    history = app.dataframe[-2].value if "counts" in app.dataframe[-2].value else app.dataframe[-1].value
    assert history["counts"].tolist() == ["yes"]
    assert "\x1b" not in history["note"].iloc[0]
    next(button for button in app.button if button.label == "Withdraw mine").click().run()
    assert [each.value for each in human.history(store, MADE, ("smollm2-135m", "rag", "marag"), instance)] == [
        None,
        0.25,
    ]


def test_a_viewer_reads_but_cannot_score(visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(store)
    human.rate(store, MADE, ("smollm2-135m", "rag", "marag"), an_instance(store, "fact"), 0.25, rater="ann")
    monkeypatch.setattr(access, "may_edit", lambda: False)
    app = visit("instances", run=MADE, instance=an_instance(store, "fact"), of=MARAG)
    assert not [button for button in app.button if button.label == "Keep score"]
    assert "sign in as an editor" in said(app)
    assert any("ann" in str(table.value.values) for table in app.dataframe)


def test_the_list_of_scores_and_the_agreement_only_where_n_allows(visit: Open, store: Store) -> None:
    write_run(store)
    study, _ = run_study(store, MADE)
    judged = found(store, MADE, study, Search(benchmark="op", mitigations=("reminder",), outcome="scored"))
    rows = hits(store, study, [int(each) for each in judged], texts=False)
    key = ("smollm2-135m", "rag", "reminder")
    for instance in rows["instance"][:9]:
        human.rate(store, MADE, key, instance, 0.5, rater="ann")
    assert "9 scored by both, 10 are needed" in said(visit("instances", run=MADE))
    other = ("smollm2-135m", "rag", "marag")
    human.rate(store, MADE, other, rows["instance"][0], 0.5, rater="ann")
    text = said(visit("instances", run=MADE))
    # The judge gives 0.7 nine times and 0.4 once: 67 points; people 50.
    assert "the judge gives 67.0 and people 50.0 points: a difference of +17.0" in text
