"""The Judges page in this process: rankings under several judges, agreement with people, traps, who may judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from opbench.access import Visitor
from opbench.benchmarks import load
from opbench.calibration import launching, traps
from opbench.calibration.launching import JudgeOrder, Started
from opbench.calibration.recorded import SUFFIX, export_judgings
from opbench.calibration.spec import Rated, Response
from opbench.store import bundle, schema
from opbench.store.database import Store, open_store
from opbench.store.judgings import JudgementRow, read_set, save_judgements, save_set, set_list, start_judging
from opbench.store.record import sha256_of
from pages.shared import access
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, OP, write_run

SECTIONS = ("Ranking", "Against people", "Repeats and traps", "LoCoMo's ceiling", "Judging")
NASTY = "<script>alert(1)</script> **bold** ![x](http://example.invalid/x.png)"


def told(app: AppTest) -> str:
    said = [*app.info, *app.success, *app.error, *app.warning, *app.caption, *app.markdown, *app.subheader]
    return " ".join(part.value for part in said).replace("\\", "").replace("\u2060", "")


def table(app: AppTest, *columns: str) -> pd.DataFrame:
    """The first table that has all of these columns."""
    return next(frame.value for frame in app.dataframe if {*columns} <= {*frame.value.columns})


def row(item: str, response: str, value: float | None, metric: str = "score", repeat: int = 0) -> JudgementRow:
    return JudgementRow(
        item=item,
        repeat=repeat,
        response_sha256=sha256_of(response),
        metric=metric,
        value=value,
        reason=None if value is not None else "no clear score",
        raw=NASTY,
        retriable=False,
        prompt_tokens=100,
        completion_tokens=10,
        cost_usd=0.001,
        duration_ms=500.0,
        reused=False,
        made_at=1.0,
    )


def judge_run(store: Store, label: str, values: dict[tuple[str, str], float]) -> str:
    """Every judged OP-Bench record of the made run gets its configuration's value."""
    r, i, c = schema.records.c, schema.instances.c, schema.configurations.c
    query = (
        schema.records.select()
        .add_columns(c.memory, c.mitigation)
        .join(schema.configurations, c.id == r.configuration_id)
        .join(schema.instances, (i.run_id == r.run_id) & (i.instance_id == r.instance_id))
        .where(i.benchmark == "op", i.subtype != "repetition")
    )
    with store.begin() as connection:
        records = connection.execute(query).all()
    judge = label.split(" ")[0]
    identity = start_judging(store, run_id=MADE, judge=judge, label=label, provenance={"judge": label}, repeats=1)
    rows = [
        row(f"{each.configuration_id}|{each.instance_id}", each.response, values[each.memory, each.mitigation])
        for each in records
    ]
    save_judgements(store, identity, rows)
    return identity


@pytest.fixture
def judged(store: Store) -> Store:
    """The made run under a judge that says the opposite, one that says the same, and the control."""
    write_run(store)
    with store.begin() as connection:
        # The data that are here, as a run that was made has them: else its responses can't be judged.
        provenance = {"comparable": False, "data_source": "sample", "data": dict(load("sample").sha256)}
        connection.execute(schema.runs.update().values(provenance=provenance))
    judge_run(store, "turned · own", {key: 1 - value for key, value in OP.items()})
    judge_run(store, "alike · brief", OP)
    judge_run(store, "random", dict.fromkeys(OP, 0.5))
    return store


@pytest.fixture
def rated(store: Store) -> Store:
    """Twelve responses to six questions with people's scores, judged by one judge that agrees and one that doesn't."""
    items = []
    for n in range(12):
        people = n / 11
        response = Response(
            question=f"Question {n // 2}?",
            response=f"Response {n}. {NASTY}",
            subtype="baiting" if n < 6 else "fact",
            user="c/U",
            pair=f"q{n // 2}",
        )
        items.append(Rated(item=f"item-{n}", response=response, human=(("Ann", people), ("Ben", people))))
    set_id = save_set(store, "by hand", {"kind": "csv", "file": "x.csv"}, items, "me")
    for label, turned in (("good · own", False), ("bad · own", True)):
        judging = start_judging(
            store, set_id=set_id, judge=label.split(" ")[0], label=label, provenance={"judge": label}, repeats=1
        )
        values = [1 - float(each.people or 0) if turned else each.people for each in items]
        rows = [row(each.item, each.response.response, value) for each, value in zip(items, values, strict=True)]
        save_judgements(store, judging, rows)
    return store


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[JudgeOrder]:
    """What was ordered; no process is started."""
    given: list[JudgeOrder] = []

    def launch(order: JudgeOrder, keys: Any = None) -> Started:
        given.append(order)
        return Started("x", order, 1, 0.0, Path("nowhere.log"), working=True)

    monkeypatch.setattr(launching, "launch", launch)
    return given


def viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "who", lambda: Visitor("Vera", "viewer", signed_in=True))


def test_the_ranking_says_what_it_means(judged: Store, visit: Open) -> None:
    app = visit("judges", run=MADE)
    said = told(app)
    # base .9, reminder .7, rag .5, marag .4; by the other judge the other way round, but for repetition.
    assert "4 configurations in 9 views (3 judges or prompts by 3 averaging rules)" in said
    assert "set against offline · task-mean" in said
    assert "6 of 6 pairs change the order in at least one view" in said
    assert "can't be said (2 users, an interval needs 5)" in said
    assert "base is first in" in said
    flips = table(app, "better", "worse", "told_apart")
    assert set(flips[~flips["control"]]["label"]) == {"turned · own"}
    order = table(app, "place", "op", "rule")
    mine = order[(order["label"] == "alike · brief") & (order["rule"] == "task-mean")]
    assert list(mine.sort_values("place")["mitigation"]) == [
        "no post-processor",
        "Reminder",
        "no post-processor",
        "MARAG",
    ]


def test_the_control_is_named_and_no_part_of_the_sentence(judged: Store, visit: Open) -> None:
    app = visit("judges", run=MADE)
    judgings = table(app, "judgements", "control")
    assert judgings.set_index("label")["control"].to_dict() == {
        "turned · own": "",
        "alike · brief": "",
        "random": "control",
    }
    assert "The control scores at random" in told(app)


def test_a_run_that_nobody_judged_again_has_its_rules_at_least(store: Store, visit: Open) -> None:
    write_run(store)
    app = visit("judges", run=MADE)
    assert "Only the study's own judge has scored this run" in told(app)
    assert "4 configurations in 3 views (1 judge or prompt by 3 averaging rules)" in told(app)


def test_without_a_run_the_one_that_was_judged_most_is_shown(judged: Store, visit: Open) -> None:
    app = visit("judges")
    assert "Here is a run that was judged again" in told(app)
    assert "4 configurations in 9 views" in told(app)


def test_recorded_judgings_come_with_the_recorded_study(demo: Path, store: Store, visit: Open, tmp_path: Path) -> None:
    first = open_store(f"sqlite:///{tmp_path}/first.sqlite")
    write_run(first)
    judge_run(first, "turned · own", {key: 1 - value for key, value in OP.items()})
    bundle.export_run(first, MADE, demo / "made.opbench.zip")
    export_judgings(first, MADE, demo / f"made{SUFFIX}")
    first.close()
    (demo / f"zz{SUFFIX}").write_text("{", "utf-8")
    app = visit("judges")
    assert "4 configurations in 6 views" in told(app)
    assert f"zz{SUFFIX}: line 1" in " ".join(each.value.replace("\\", "") for each in app.warning)


def test_agreement_with_people(rated: Store, visit: Open) -> None:
    app = visit("judges", section="Against people")
    frame = table(app, "spearman", "cost_usd").set_index("label")
    assert frame.loc["good · own", "spearman"] == pytest.approx(1.0)
    assert frame.loc["bad · own", "spearman"] == pytest.approx(-1.0)
    assert frame.loc["bad · own", "pearson"] == pytest.approx(-1.0)
    assert list(frame["n"]) == [12, 12]
    assert frame.loc["bad · own", "cost_usd"] == pytest.approx(0.012)
    by_subtype = next(each.value for each in app.dataframe if "group" in each.value and "cost_usd" not in each.value)
    assert list(by_subtype["group"]) == ["Baiting", "Fact-level"]
    assert "12 of 12 responses scored by people" in " ".join(each.value for each in app.markdown)


def test_the_worst_disagreement_stands_first_and_is_read_as_text(rated: Store, visit: Open) -> None:
    app = visit("judges", section="Against people")
    names = {each.label: each for each in app.selectbox}
    names["Judge"].select_index(1).run()
    assert not app.exception
    heads = [each.label.replace("\\", "") for each in app.expander]
    assert "1. baiting: people 0.00, judge 1.00" in heads
    assert any(NASTY in each.value for each in app.text)
    assert "<script>" not in " ".join(each.value for each in [*app.markdown, *app.caption])


def test_without_a_set_there_is_a_way_to_one(store: Store, visit: Open) -> None:
    app = visit("judges", section="Against people")
    assert "There is no set of responses with people's scores yet" in told(app)
    app.button(key="make-set-published").click().run()
    assert not app.exception
    assert [each.kind for each in set_list(store)] == ["published"]
    assert "No judge has scored these responses yet" in told(app)


def test_traps_and_repeats(store: Store, visit: Open) -> None:
    app = visit("judges", section="Repeats and traps")
    app.button(key="make-set-traps").click().run()
    assert not app.exception
    (made,) = set_list(store)
    assert made.kind == "traps"
    items = read_set(store, made.id)
    assert len(items) == len(traps.traps(load("sample")))
    judging = start_judging(store, set_id=made.id, judge="m", label="m · own", provenance={}, repeats=2)
    # Accepts all, but for the first answer at the second time.
    rows = [
        row(each.item, each.response.response, float(not (repeat and place == 0)), "correct", repeat)
        for repeat in range(2)
        for place, each in enumerate(items)
    ]
    save_judgements(store, judging, rows)
    app = visit("judges", section="Repeats and traps")
    accepted = table(app, "kind", "rate")
    # Of the 27 right answers one is accepted half of the time.
    assert accepted.loc[accepted["kind"] == "right", "rate"].item() == pytest.approx(100 * 26.5 / 27)
    assert set(accepted.loc[accepted["kind"] != "right", "rate"]) == {100.0}
    assert accepted.loc[accepted["kind"] == "vague", "should"].item() == "refuse"
    again = table(app, "same", "repeats")
    assert again["same"].item() == pytest.approx(100 * (len(items) - 1) / len(items))


def test_place_and_length(store: Store, visit: Open) -> None:
    app = visit("judges", section="Repeats and traps")
    app.button(key="make-set-bias").click().run()
    assert not app.exception
    (made,) = set_list(store)
    items = read_set(store, made.id)
    judging = start_judging(store, set_id=made.id, judge="m", label="m · own", provenance={}, repeats=1)
    # Accepts what has its fact at the end, and nothing else.
    rows = [
        row(each.item, each.response.response, float(each.response.kind.endswith("last")), "correct") for each in items
    ]
    save_judgements(store, judging, rows)
    app = visit("judges", section="Repeats and traps")
    frame = table(app, "effect", "difference").set_index(["effect", "answers"])["difference"]
    assert frame["position: fact last"].to_dict() == {"right": 100.0, "wrong": 100.0}
    assert frame["position: fact in the middle"].to_dict() == {"right": 0.0, "wrong": 0.0}


def test_the_ceiling_says_that_nothing_is_known_of_the_sample(store: Store, visit: Open) -> None:
    app = visit("judges", section="LoCoMo's ceiling")
    assert "names none of these questions" in told(app)
    assert table(app, "ceiling")["ceiling"].isna().all()


def test_an_editor_starts_a_judging_and_sees_what_it_takes(
    judged: Store, visit: Open, orders: list[JudgeOrder]
) -> None:
    app = visit("judges", run=MADE, section="Judging")
    assert "Name a judge to see what it will take" in told(app)
    app.multiselect(key="by-rule").set_value(["offline", "random"]).run()
    assert not app.exception
    estimate = table(app, "judgements", "kept", "calls").set_index("label")
    assert list(estimate.index) == ["offline", "random"]
    assert set(estimate["calls"]) == {0}
    assert f"opbench judges rescore {MADE} --judge offline --judge random" in " ".join(c.value for c in app.code)
    app.button(key="judge").click().run()
    assert orders == [JudgeOrder(judges=("offline", "random"), run_id=MADE)]
    assert "Started: opbench judges rescore" in told(app)


def test_models_are_asked_with_each_of_the_prompts(judged: Store, visit: Open, orders: list[JudgeOrder]) -> None:
    app = visit("judges", run=MADE, section="Judging")
    app.multiselect(key="by-model").set_value(["smollm2-135m"])
    app.multiselect(key="packs").set_value(["own", "brief"])
    app.toggle(key="forced").set_value(True)
    app.number_input(key="repeats").set_value(3)
    app.run()
    assert not app.exception
    app.button(key="judge").click().run()
    assert orders == [
        JudgeOrder(judges=("smollm2-135m@own+schema", "smollm2-135m@brief+schema"), run_id=MADE, repeats=3)
    ]


def test_a_viewer_starts_and_makes_nothing(
    judged: Store, visit: Open, monkeypatch: pytest.MonkeyPatch, orders: list[JudgeOrder]
) -> None:
    viewer(monkeypatch)
    app = visit("judges", run=MADE, section="Judging", **{"by-rule": "offline (rules)"})
    assert "only editors start it" in told(app)
    keys = [each.key for each in app.button]
    assert "judge" not in keys
    assert not any(str(key).startswith("make-set") for key in keys)
    assert not orders
    app = visit("judges", run=MADE)
    assert "4 configurations in 9 views" in told(app)
