"""Judging sets and runs: nothing paid twice, nothing lost, nothing missing told as 0."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from opbench.calibration.choosing import parse_choice
from opbench.calibration.estimating import estimate_rescore, estimate_set
from opbench.calibration.judging import judge_set, rescore
from opbench.calibration.pairs import paired
from opbench.calibration.spec import Rated, Response
from opbench.errors import DataError, UsageError
from opbench.judges import register_judge
from opbench.judges.base import Evidence
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.judgings import delete_set, judging_list, read_judgements, read_set, run_scores, save_set
from opbench.store.reading import read_run
from opbench.types import Complete, Score
from tests.running.study import reply, run_here, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint


def items(n: int = 6) -> list[Rated]:
    return [
        Rated(
            item=f"item {number}",
            response=Response(
                question=f"Is it question {number // 2}?",
                response=f"It is response {number}.",
                subtype="fact",
                user="c/s",
                pair=str(number // 2),
            ),
            human=(("ann", 0.5), ("bo", 0.1 * number)),
        )
        for number in range(n)
    ]


@pytest.fixture
def endpoint() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(reply=reply) as running:
        yield running


@pytest.fixture
def one_store(home: Path) -> Iterator[Store]:
    opened = open_store(settings().store_url)
    yield opened
    opened.close()


async def test_a_set_is_judged_once_and_costs_what_its_calls_cost(
    store: Store, home: Path, endpoint: ScriptedEndpoint
) -> None:
    use_endpoint(home, endpoint)
    set_id = save_set(store, "six", {"kind": "csv"}, items(), "ann")
    choices = [parse_choice("scripted@own", repeats=2), parse_choice("random")]
    seen: list[int] = []
    first, control = await judge_set(
        store, set_id, choices, on_progress=lambda outcome, left: seen.append(outcome.done)
    )
    assert (first.planned, first.done, first.kept, first.missing, first.complete) == (12, 12, 0, 0, True)
    assert (control.planned, control.done) == (6, 6)
    assert endpoint.ledger.total == 12  # the repeats are asked for themselves
    assert seen[:12] == list(range(1, 13))
    row, by_chance = judging_list(store, set_id=set_id)
    assert (row.label, row.judgements, row.missing, row.repeats) == ("scripted · own", 12, 0, 2)
    tokens_in, tokens_out = row.prompt_tokens or 0, row.completion_tokens or 0
    assert row.cost_usd == pytest.approx((tokens_in * 1.0 + tokens_out * 2.0) / 1e6)
    assert (by_chance.cost_usd, by_chance.prompt_tokens) == (0, 0)

    (again, _) = await judge_set(store, set_id, choices)
    assert (again.done, again.kept, endpoint.ledger.total) == (0, 12, 12)
    delete_set(store, set_id)
    assert judging_list(store) == []
    set_id = save_set(store, "six", {"kind": "csv"}, items(), "ann")
    await judge_set(store, set_id, choices[:1])
    assert endpoint.ledger.total == 12  # all in the call store
    (row,) = judging_list(store, set_id=set_id)
    assert row.reused == 12


async def test_people_and_judge_stand_beside_each_other(one_store: Store, home: Path) -> None:
    set_id = save_set(one_store, "six", {"kind": "csv"}, items(), "ann")
    await judge_set(one_store, set_id, [parse_choice("random")])
    pairs = paired(one_store, set_id)
    assert list(pairs["people"]) == pytest.approx([(0.5 + 0.1 * number) / 2 for number in range(6)])
    assert list(pairs["raters"]) == [2] * 6
    assert list(pairs["residual"]) == pytest.approx(list(pairs["value"] - pairs["people"]))
    with pytest.raises(UsageError, match="none of set"):
        paired(one_store, set_id, ["nothing"])


async def test_a_stopped_judging_goes_on_and_pays_nothing_twice(
    one_store: Store, home: Path, endpoint: ScriptedEndpoint
) -> None:
    use_endpoint(home, endpoint, concurrency=1)
    set_id = save_set(one_store, "twelve", {"kind": "csv"}, items(12), "")
    choices = [parse_choice("scripted@own"), parse_choice("random")]
    stopped = await judge_set(one_store, set_id, choices, stopping=lambda: endpoint.ledger.total >= 5)
    assert [each.halted for each in stopped] == ["stopped as asked"]  # the second judge isn't begun
    assert not stopped[0].complete
    before = len(read_judgements(one_store, [stopped[0].judging]))
    assert before == stopped[0].done == endpoint.ledger.total == 5
    finished, _ = await judge_set(one_store, set_id, choices)
    assert (finished.kept, finished.done, finished.complete) == (5, 7, True)
    assert endpoint.ledger.total == 12


async def test_failed_calls_are_missing_and_asked_again_and_unread_replies_aren_t(one_store: Store, home: Path) -> None:
    set_id = save_set(one_store, "six", {"kind": "csv"}, items(), "")
    with ScriptedEndpoint(script=["not_found"] * 2, reply=lambda body: "No score from me.") as endpoint:
        use_endpoint(home, endpoint, concurrency=1)
        (outcome,) = await judge_set(one_store, set_id, [parse_choice("scripted@own")])
        assert (outcome.missing, outcome.retriable, outcome.complete) == (6, 2, False)
        total = endpoint.ledger.total
        (again,) = await judge_set(one_store, set_id, [parse_choice("scripted@own")])
        assert (again.kept, again.done, again.missing, again.retriable) == (4, 2, 2, 0)
        assert endpoint.ledger.total == total + 2
    pairs = paired(one_store, set_id)
    assert pairs["value"].isna().all()
    assert set(pairs["reason"]) == {"judge: no clear score in the reply"}


async def test_a_judge_that_nobody_answers_for_ends_the_job(one_store: Store, home: Path) -> None:
    set_id = save_set(one_store, "many", {"kind": "csv"}, items(60), "")
    with ScriptedEndpoint(faults={"unauthorized": 1.0}) as endpoint:
        use_endpoint(home, endpoint, concurrency=1)
        (outcome,) = await judge_set(one_store, set_id, [parse_choice("scripted@own")])
    assert outcome.done < 60
    assert "calls failed in a row" in outcome.halted


async def test_two_at_once_don_t_pay_for_the_same_calls(
    one_store: Store, home: Path, endpoint: ScriptedEndpoint
) -> None:
    use_endpoint(home, endpoint)
    set_id = save_set(one_store, "six", {"kind": "csv"}, items(), "")
    choices = [parse_choice("scripted@own")]
    first, second = await asyncio.gather(
        judge_set(one_store, set_id, choices), judge_set(one_store, set_id, choices), return_exceptions=True
    )
    refused = [each for each in (first, second) if isinstance(each, UsageError)]
    assert len(refused) == 1
    assert "another process is at scripted · own" in str(refused[0])
    assert endpoint.ledger.total == 6


async def test_a_plugin_that_breaks_is_a_missing_score(one_store: Store, home: Path) -> None:
    class Broken:
        name, comparable = "broken", False

        def provenance(self) -> dict[str, str]:
            return {"judge": "broken"}

        async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
            if evidence.response.endswith("0."):
                raise ZeroDivisionError("no")
            return []

    register_judge("broken", Broken)
    set_id = save_set(one_store, "six", {"kind": "csv"}, items(), "")
    (outcome,) = await judge_set(one_store, set_id, [parse_choice("broken")])
    assert (outcome.missing, outcome.retriable) == (6, 0)
    reasons = list(paired(one_store, set_id)["reason"])
    assert reasons[0] == "judge: internal: ZeroDivisionError: no"
    assert reasons[1] == "the judge gave no score"


async def test_an_estimate_asks_nobody_and_knows_what_is_there(
    one_store: Store, home: Path, endpoint: ScriptedEndpoint
) -> None:
    use_endpoint(home, endpoint)
    set_id = save_set(one_store, "six", {"kind": "csv"}, items(), "")
    choices = [parse_choice("scripted@own", repeats=2), parse_choice("offline")]
    model, rule = await estimate_set(one_store, set_id, choices)
    assert (model.judgements, model.calls, rule.judgements, rule.calls, rule.cost_usd) == (12, 12, 6, 0, 0)
    assert model.cost_usd == pytest.approx((model.prompt_tokens + 2.0 * model.completion_tokens) / 1e6)
    assert endpoint.ledger.total == 0
    await judge_set(one_store, set_id, [parse_choice("scripted@own")])
    model, _ = await estimate_set(one_store, set_id, choices)
    assert (model.judgements, model.kept, model.calls) == (6, 6, 6)
    assert model.seconds is not None
    # Another set of the same responses needs no call at all.
    other = save_set(one_store, "other", {"kind": "review", "review": "r"}, items(), "")
    model, _ = await estimate_set(one_store, other, [parse_choice("scripted@own"), parse_choice("offline")])
    assert (model.judgements, model.calls, model.cost_usd) == (6, 0, 0)


async def test_a_run_is_judged_again_without_generating_and_its_own_judge_costs_nothing(
    one_store: Store, home: Path, endpoint: ScriptedEndpoint
) -> None:
    use_endpoint(home, endpoint)
    _, run_id, _ = await run_here(one_store, mitigations=("none",), limit=8)
    asked = endpoint.ledger.total
    (own,) = await rescore(one_store, run_id, [parse_choice("scripted@own")])
    assert endpoint.ledger.total == asked
    data = read_run(one_store, run_id)
    theirs = data.scores[data.scores["metric"].isin(["score", "correct"])]
    ours = run_scores(one_store, own.judging)
    key = ["model", "memory", "mitigation", "instance", "metric"]
    both = ours.merge(theirs, on=key, suffixes=("", "_of_run"))
    assert len(both) == len(ours) == len(theirs) > 10
    assert list(both["value"]) == list(both["value_of_run"])
    assert own.left_out == {"repetition, which is scored over all of a user's responses": _repetitions(one_store)}
    assert run_scores(one_store, own.judging)["judge"].unique().tolist() == ["scripted · own"]

    (brief,) = await rescore(
        one_store,
        run_id,
        [parse_choice("scripted@brief")],
        configurations=[("scripted", "rag", "none")],
        subtypes=["fact", "memory"],
    )
    asked_now = endpoint.ledger.bodies[asked:]
    assert len(asked_now) == brief.done > 0
    assert all("fact" in each or "memory" in each for each in run_scores(one_store, brief.judging)["instance"])


def _repetitions(store: Store) -> int:
    r, i = s.records.c, s.instances.c
    query = select(r.id).join(s.instances, (i.run_id == r.run_id) & (i.instance_id == r.instance_id))
    with store.begin() as connection:
        return len(connection.execute(query.where(i.subtype == "repetition", r.status == "done")).all())


async def test_a_response_that_was_made_again_loses_its_judgement_and_gets_a_new_one(
    one_store: Store, home: Path, endpoint: ScriptedEndpoint
) -> None:
    use_endpoint(home, endpoint)
    _, run_id, _ = await run_here(one_store, mitigations=("none",), limit=6)
    (first,) = await rescore(one_store, run_id, [parse_choice("random")])
    before = run_scores(one_store, first.judging)
    instance = before["instance"].iloc[0]
    with one_store.begin() as connection:
        connection.execute(
            update(s.records).where(s.records.c.instance_id == instance).values(response="Quite another one.")
        )
    assert len(run_scores(one_store, first.judging)) == len(before) - 2  # BASE and RAG
    (estimate,) = await estimate_rescore(one_store, run_id, [parse_choice("random")])
    assert estimate.judgements == 2
    (again,) = await rescore(one_store, run_id, [parse_choice("random")])
    assert (again.judging, again.done, again.kept) == (first.judging, 2, len(before) - 2)
    assert len(run_scores(one_store, first.judging)) == len(before)


async def test_a_run_of_other_data_is_refused(one_store: Store, home: Path, endpoint: ScriptedEndpoint) -> None:
    use_endpoint(home, endpoint)
    _, run_id, _ = await run_here(one_store, mitigations=("none",), limit=6)
    with one_store.begin() as connection:
        run: dict[str, Any] = connection.execute(select(s.runs.c.provenance)).scalar_one()
        connection.execute(update(s.runs).values(provenance=run | {"data": {"x": "y"}}))
    with pytest.raises(UsageError, match="is of other data than are here"):
        await rescore(one_store, run_id, [parse_choice("random")])


async def test_a_folder_is_a_pack_of_its_own(one_store: Store, home: Path, endpoint: ScriptedEndpoint) -> None:
    use_endpoint(home, endpoint)
    pack = home / "official"
    pack.mkdir()
    (pack / "fact.txt").write_text("Grade {response} to {question} from 0 to 1. Score:")
    set_id = save_set(one_store, "six", {"kind": "csv"}, items(), "")
    choices = [parse_choice(f"scripted@{pack}"), parse_choice("scripted@own")]
    outcomes = await judge_set(one_store, set_id, choices)
    # Not taken for the public prompts, whatever the folder is called.
    assert [each.label for each in outcomes] == ["scripted · ./official", "scripted · own"]
    assert endpoint.ledger.total == 12
    (pack / "facts.txt").write_text("x")
    with pytest.raises(UsageError, match=r"facts\.txt: no judge asks by this name"):
        await judge_set(one_store, set_id, choices)
    (pack / "facts.txt").unlink()
    (pack / "fact.txt").write_text("Grade {response}.")
    with pytest.raises(DataError, match=r"no placeholder \{question\}"):
        await judge_set(one_store, set_id, choices)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@own", "write a judge as NAME or NAME@PACK"),
        ("offline@own", "judges by rule and has no prompts"),
        ("nobody", "nobody"),
        ("smollm2-135m@nowhere", "Unknown judge prompt pack 'nowhere'"),
    ],
)
async def test_a_judge_that_isn_t_there_is_named(one_store: Store, home: Path, text: str, message: str) -> None:
    set_id = save_set(one_store, "six", {"kind": "csv"}, items(), "")
    with pytest.raises(UsageError, match=message):
        await judge_set(one_store, set_id, [parse_choice(text)])
    with pytest.raises(UsageError, match="No judge named"):
        await judge_set(one_store, set_id, [])


async def test_temperature_makes_another_judging(one_store: Store, home: Path, endpoint: ScriptedEndpoint) -> None:
    use_endpoint(home, endpoint)
    set_id = save_set(one_store, "six", {"kind": "csv"}, items(), "")
    await judge_set(one_store, set_id, [parse_choice("scripted@own")])
    await judge_set(one_store, set_id, [parse_choice("scripted@own", temperature=0.7)])
    assert [row.label for row in judging_list(one_store)] == ["scripted · own", "scripted · own · temperature 0.7"]
    assert [body["temperature"] for body in endpoint.ledger.bodies] == [0.0] * 6 + [0.7] * 6


def test_a_set_brought_twice_is_one(store: Store) -> None:
    first = save_set(store, "six", {"kind": "csv"}, items(), "ann")
    assert save_set(store, "the same", {"kind": "csv"}, items(), "bo") == first
    assert save_set(store, "other", {"kind": "csv"}, items(4), "") != first
    assert read_set(store, first) == items()
    with pytest.raises(UsageError, match="item 1 is there twice"):
        save_set(store, "x", {"kind": "csv"}, [*items(), items()[1]], "")
    with pytest.raises(UsageError, match="no response in it"):
        save_set(store, "x", {"kind": "csv"}, [], "")
