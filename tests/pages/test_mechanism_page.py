"""The Mechanism page in this process: what each section says of a made run, what is missing, who may measure."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from opbench.access import Visitor
from opbench.mechanism import launching
from opbench.mechanism.launching import AttentionOrder, Order, SimilarityOrder, Started
from opbench.store import bundle
from opbench.store.attention import save_attention
from opbench.store.database import Store
from opbench.store.similarities import save_similarities
from pages.shared import access
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, write_run
from tests.pages.read_run import OWN, RATIOS, TOKENS, measured, write_read
from tests.pages.wide_run import WIDE, instances, write_wide

SECTIONS = ("Retrieval", "Attention", "Language", "Repetition", "Measuring")


def told(app: AppTest) -> str:
    said = [*app.info, *app.success, *app.error, *app.warning, *app.caption, *app.markdown, *app.subheader]
    return " ".join(part.value for part in said).replace("\\", "").replace("\u2060", "")


def frames(app: AppTest) -> list[pd.DataFrame]:
    return [frame.value for frame in app.dataframe]


def table(app: AppTest, *columns: str) -> pd.DataFrame:
    """The first table that has all of these columns."""
    return next(frame for frame in frames(app) if {*columns} <= {*frame.columns})


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """What was ordered; no process is started."""
    orders: list[Order] = []

    def launch(order: Order, keys: Any = None) -> Started:
        orders.append(order)
        return Started("x", order, 1, 0.0, Path("nowhere.log"), working=True)

    monkeypatch.setattr(launching, "launch", launch)
    return orders


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the drawing of a prompt's tokens gets."""
    got: list[dict[str, Any]] = []

    def component(name: str, **parts: Any) -> Any:
        return lambda data=None, **more: got.append(data) if name == "opbench_token_weights" else None

    monkeypatch.setattr(st.components.v2, "component", component)
    return got


# Attention -----------------------------------------------------------------------------------------------------------


def test_the_ratio_is_said_first_with_interval_n_and_whose_reading_it_is(visit: Open, store: Store) -> None:
    write_read(store)
    app = visit("mechanism", run=WIDE, section="Attention")
    text = told(app)
    # Twice and half of 3: the geometric mean is 3, the same for each of the 12 users.
    assert "Per token, memory gets 3.00× the attention of the query (95 %: 3.00× to 3.00×; n = 144, 12 users)" in text
    assert "more than the query" in text
    assert "The ratio is 1.50× that of random memories" in text
    assert "Reminder changes the ratio by a factor of 0.50" in text
    assert "the average memory-to-query attention ratio consistently exceeds 2×" in text
    assert "Published, of another model and by another definition" in text
    # No response call is kept of this run: nobody can say that the reader answered.
    assert "another model's reading" in text
    assert f"reading model: {OWN}" in text


def test_the_tables_hold_the_same_numbers_and_base_has_no_ratio(visit: Open, store: Store) -> None:
    write_read(store)
    app = visit("mechanism", run=WIDE, section="Attention")
    rows = {(row["memory"], row["mitigation"]): row for row in table(app, "ratio", "read").to_dict("records")}
    assert rows["RAG", "no post-processor"]["ratio"] == "3.00×"
    assert rows["random memories", "no post-processor"]["ratio"] == "2.00×"
    base = rows["BASE", "no post-processor"]
    assert (base["ratio"], base["n"], base["read"]) == ("n/a", 0, 144)
    assert base["reason"] == "no memory in the prompt"
    assert "No ratio, since the prompt has no memory: BASE 144 of 144 records." in told(app)
    shares = table(app, "segment", "share")
    of_base = shares.loc[shares["memory"] == "BASE", "segment"].tolist()
    assert of_base == ["first", "instructions", "query", "response"]


def test_shares_are_of_all_attention(visit: Open, store: Store) -> None:
    write_read(store)
    shares = table(visit("mechanism", run=WIDE, section="Attention"), "segment", "share")
    mine = shares[(shares["memory"] == "RAG") & (shares["mitigation"] == "no post-processor")].set_index("segment")
    ratio = RATIOS["rag", "none"]
    parts = [TOKENS[0] * ratio * times / (30 + TOKENS[1] + TOKENS[0] * ratio * times) for times in (2.0, 0.5)]
    assert mine.loc["memory", "share"] == pytest.approx(100 * sum(parts) / 2, rel=1e-5)


def test_filters_of_the_link_choose_records_and_are_marked(visit: Open, store: Store) -> None:
    write_read(store)
    app = visit("mechanism", run=WIDE, section="Attention", **{"of-user": "conv-0/Ada", "of-subtype": "Baiting"})
    text = told(app)
    assert "Only users: conv-0/Ada; subtypes: Baiting." in text
    assert "n = 2, 1 user" in text
    assert "No interval: 1 user, an interval needs 5." in text
    assert table(app, "ratio", "read")["read"].tolist() == [2, 2, 2, 2]


def test_another_reader_can_be_chosen(visit: Open, store: Store) -> None:
    write_read(store)
    other = "qwen@00000000000000bb/v1"
    with store.begin() as connection:
        record = connection.exec_driver_sql("select min(record_id) from attention").scalar_one()
    save_attention(store, record, other, measured(None))
    app = visit("mechanism", run=WIDE, section="Attention", reader=OWN)
    assert "n = 144" in told(app)
    app = visit("mechanism", run=WIDE, section="Attention")
    assert f"reading model: {other}" in told(app)
    assert "There is no ratio: no prompt that was read has memory in it." in told(app)


def test_a_prompt_is_drawn_token_by_token_as_text(visit: Open, store: Store, tokens: list[dict[str, Any]]) -> None:
    write_read(store)
    visit("mechanism", run=WIDE, section="Attention", **{"tokens-of": "RAG"})
    (data,) = tokens
    texts = [sign[0] for sign in data["signs"]]
    assert texts[0] == "<b>first</b>"
    assert texts[3] == "m0 "
    by_segment = {sign[1] for sign in data["signs"]}
    assert by_segment == {"", "memory", "query"}
    # 33 tokens; of 30 + 10 + 20 · 6 = 160 parts a memory token of the first instance has 6: 6 · 33 / 160 = 1.2375.
    assert data["signs"][3][3].startswith("memory: 1.24 times the even share, 3.75 % of attention")
    # Half the even share is the palest, sixteen times the deepest: log2(1.2375) + 1 of 5 doublings.
    assert data["signs"][3][2] == pytest.approx((math.log2(1.2375) + 1) / 5, abs=1e-3)


def test_the_definition_stands_on_the_page(visit: Open, store: Store) -> None:
    write_read(store)
    text = told(visit("mechanism", run=WIDE, section="Attention"))
    for said in ("Length-normalised ratio", "teacher forcing", "What it can't tell", "geometric mean"):
        assert said in text


def test_nothing_measured_says_what_to_do(visit: Open, store: Store) -> None:
    write_wide(store)
    text = told(visit("mechanism", run=WIDE, section="Attention"))
    assert "Attention isn't measured for this run yet: nothing can be said about it." in text
    assert "“Measuring”" in text
    text = told(visit("mechanism", run=WIDE, section="Retrieval"))
    assert "How alike questions and memories are isn't measured for this run yet." in text


# The other sections --------------------------------------------------------------------------------------------------


def test_similarities_are_told_with_their_control(visit: Open, store: Store) -> None:
    write_wide(store)
    of = {"fully-irrelevant": 0.2, "baiting": 0.7}
    made = [each for each in instances() if each.benchmark == "op"]
    rows = [("rag", each.id, [of.get(each.subtype, 0.5), 0.1]) for each in made]
    save_similarities(store, WIDE, "minilm", [*rows, *(("random", each.id, [0.1, 0.05]) for each in made)])
    app = visit("mechanism", run=WIDE, section="Retrieval")
    text = told(app)
    assert "RAG retrieved something for 24 of 24 fully irrelevant questions (100 %)" in text
    assert "mean cosine 0.20 of fully irrelevant questions" in text
    means = table(app, "memory", "group", "mean").set_index(["memory", "group"])["mean"]
    assert means["RAG", "Baiting"] == pytest.approx(0.7)
    assert means["random memories", "Baiting"] == pytest.approx(0.1)
    app = visit("mechanism", run=WIDE, section="Retrieval", which="all memories")
    means = table(app, "memory", "group", "mean").set_index(["memory", "group"])["mean"]
    assert means["RAG", "Baiting"] == pytest.approx(0.4)


def test_what_is_measured_again_takes_the_place_of_what_was_shown(visit: Open, store: Store) -> None:
    write_wide(store)
    made = [each for each in instances() if each.benchmark == "op"]
    save_similarities(store, WIDE, "minilm", [("rag", each.id, [0.2]) for each in made])
    app = visit("mechanism", run=WIDE, section="Retrieval")
    assert table(app, "memory", "group", "mean")["mean"].tolist() == pytest.approx([0.2] * 6)
    # 144 of random memories and 24 of LoCoMo aren't measured.
    assert "168 retrievals aren't measured by this embedder yet" in told(app)
    # As many as before, of the same run: only the time tells them apart.
    save_similarities(store, WIDE, "minilm", [("rag", each.id, [0.6]) for each in made])
    app.run()
    assert table(app, "memory", "group", "mean")["mean"].tolist() == pytest.approx([0.6] * 6)


def test_two_sides_with_memory_arent_called_with_and_without(visit: Open, store: Store) -> None:
    write_wide(store)
    app = visit("mechanism", run=WIDE, section="Language", compared="RAG + Reminder against RAG")
    text = told(app)
    assert "More frequent with RAG + Reminder, and with RAG" in [each.value for each in app.header]
    assert "More frequent with memory" not in text
    shown = next(each for each in app.dataframe if "count_with" in each.value)
    heads = {each.get("label") for each in json.loads(shown.proto.columns).values()}
    assert {"times with RAG", "times with RAG + Reminder"} <= heads


def test_a_filter_that_leaves_no_sycophancy_isnt_a_run_that_waits(visit: Open, store: Store) -> None:
    write_wide(store)
    text = told(visit("mechanism", run=WIDE, section="Language", **{"of-subtype": "Baiting"}))
    assert "No sycophancy question is among what is looked at." in text
    assert "yet" not in text


def test_filters_hold_for_repetition_too(visit: Open, store: Store) -> None:
    write_wide(store)
    app = visit("mechanism", run=WIDE, section="Repetition", **{"of-user": "conv-0/Ada"})
    text = told(app)
    assert "RAG against BASE: dispersion 50.0 and 90.0 points, change −40.0, no interval: 1 user" in text
    assert "Closer for 1 of 1 user" in text
    app = visit("mechanism", run=WIDE, section="Repetition", **{"of-subtype": "Baiting"})
    assert "No repetition question is among what is looked at." in told(app)
    assert not [frame for frame in frames(app) if "dispersion" in frame]


@pytest.mark.parametrize("section", ["Retrieval", "Attention", "Language", "Repetition"])
@pytest.mark.parametrize(
    "chosen",
    [{"of-subtype": "Single-hop"}, {"of-processor": "Abstain"}, {"of-memory": "BASE"}, {"of-user": "conv-1/Ben"}],
)
def test_no_choice_breaks_a_section(visit: Open, store: Store, section: str, chosen: dict[str, str]) -> None:
    write_read(store)
    save_similarities(store, WIDE, "minilm", [("rag", each.id, [0.2]) for each in instances()])
    app = visit("mechanism", run=WIDE, section=section, **chosen)
    assert not app.exception
    assert not app.error


def test_language_compares_memory_with_base(visit: Open, store: Store) -> None:
    write_wide(store)
    app = visit("mechanism", run=WIDE, section="Language")
    text = told(app)
    # Every response of the run is “A reply.”, so nothing differs.
    assert "RAG against BASE" in text
    assert "72 questions that both sides answered, of 12 users." in text
    assert "“really” (named by the paper) stands in no response of either side." in text


def test_repetition_shows_its_numbers_without_embeddings(visit: Open, store: Store) -> None:
    write_wide(store)
    app = visit("mechanism", run=WIDE, section="Repetition")
    text = told(app)
    # Repetition is 0.9 for BASE and 0.5 for RAG, of every user.
    assert "RAG against BASE: dispersion 50.0 and 90.0 points, change −40.0" in text
    assert "No map: run wide0run has no embeddings of responses" in text


def test_a_bundle_without_texts_says_what_it_cant_show(visit: Open, store: Store, demo: Path, tmp_path: Path) -> None:
    write_wide(store)
    file = bundle.export_run(store, WIDE, tmp_path / f"wide{bundle.SUFFIX}", texts=False)
    run = bundle.import_run(store, file)
    text = told(visit("mechanism", run=run, section="Repetition"))
    assert "RAG against BASE: dispersion 50.0 and 90.0 points" in text
    assert "which responses are alike and which memories come back can't be read here" in text
    assert "came without texts" in told(visit("mechanism", run=run, section="Language"))
    app = visit("mechanism", run=run, section="Measuring")
    assert "This run came from a bundle, which holds no calls" in told(app)
    assert not [button for button in app.button if button.label.startswith("Measure")]


def test_the_published_figures_have_no_numbers_but_one(visit: Open) -> None:
    text = told(visit("mechanism"))
    assert "consistently exceeds 2×" in text
    assert "pictures (figures 4, 5 and 15 to 20)" in text


@pytest.mark.parametrize("section", SECTIONS)
def test_a_run_without_one_finished_record_breaks_no_section(visit: Open, store: Store, section: str) -> None:
    write_run(store, left=2)
    with store.begin() as connection:
        connection.exec_driver_sql("delete from records")
        connection.exec_driver_sql("delete from user_scores")
    app = visit("mechanism", run=MADE, section=section)
    assert not app.exception
    assert app.title[0].value == "Why does memory take over?"


# Measuring -----------------------------------------------------------------------------------------------------------


def test_an_editor_measures_similarities_and_the_command_stands_beside(
    visit: Open, store: Store, started: list[Order]
) -> None:
    write_wide(store)
    app = visit("mechanism", run=WIDE, section="Measuring")
    assert [metric.value for metric in app.metric if metric.label == "Retrievals"] == ["312"]
    assert f"opbench mechanism retrieval {WIDE} --measure --embedder minilm" in [each.value for each in app.code]
    next(button for button in app.button if button.label == "Measure similarities").click().run()
    assert started == [SimilarityOrder(WIDE, "minilm")]


def test_a_run_whose_calls_arent_there_offers_no_attention(visit: Open, store: Store, started: list[Order]) -> None:
    # The made run's records have no calls: there is no prompt to read.
    write_wide(store)
    app = visit("mechanism", run=WIDE, section="Measuring")
    assert "has no instance to which all of these configurations have responded yet" in told(app)
    assert "Measure attention" not in [button.label for button in app.button]


def test_a_viewer_sees_what_is_measured_and_starts_nothing(
    visit: Open, store: Store, started: list[Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wide(store)
    monkeypatch.setattr(access, "who", lambda: Visitor("v@lab.example", "viewer", signed_in=True))
    app = visit("mechanism", run=WIDE, section="Measuring")
    assert "only editors start it" in told(app)
    assert not [button for button in app.button if button.label.startswith(("Measure", "Stop"))]
    assert started == []


def test_what_is_at_work_is_shown_with_its_progress_and_can_be_stopped(
    visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_wide(store)
    log = tmp_path / "measure.log"
    log.write_text("attention: 3 of 12 records, 90 s left\n", encoding="utf-8")
    process = Started("one", AttentionOrder(WIDE), 1, 0.0, log, working=True)
    stopped: list[Started] = []
    monkeypatch.setattr(launching, "started", lambda run_id=None: [process])
    monkeypatch.setattr(launching, "stop", stopped.append)
    app = visit("mechanism", run=WIDE, section="Attention")
    assert "Measuring attention" in told(app)
    assert [bar.proto.text for bar in app.get("progress")] == ["3 of 12, 1 min 30 s left"]
    app.button("stop-one").click().run()
    assert stopped == [process]
