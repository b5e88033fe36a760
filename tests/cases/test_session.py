"""A live case against a scripted endpoint: what comes of it, what it costs, how it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import func, select

from opbench.benchmarks import load
from opbench.cases.answering import NOT_ALONE
from opbench.cases.desk import Desk
from opbench.cases.outcome import Outcome
from opbench.cases.session import Session
from opbench.cases.spec import CaseSpec, Column, Draft, Given
from opbench.memories import LibraryFactory, register_memory
from opbench.store import schema
from opbench.store.database import Store
from tests.cases.asking import BOAT, BREAD, GIVEN, QUESTION, QUIET, SAILING, TEA, USER, serving, soon, spec
from tests.memories.test_ingesting import FileLibrary
from tests.scripted_endpoint import ScriptedEndpoint

DRAFT = Draft(name="my-filter", label="My filter", instructions="FILTER what is needed.")


def calls(store: Store, kind: str = "chat") -> int:
    with store.begin() as connection:
        count = select(func.count()).select_from(schema.calls).where(schema.calls.c.kind == kind)
        return int(connection.execute(count).scalar_one())


def asked(desk: Desk, store: Store, case: CaseSpec) -> tuple[Session, tuple[Outcome, ...]]:
    session = desk.open(store, case)
    assert session.wait(30)
    assert session.over
    assert not session.busy
    return session, session.outcomes()


def test_three_columns_with_all_that_is_known_of_them(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    session, (base, rag, draft) = asked(desk, store, spec({}, {"mitigation": "my-filter", "draft": DRAFT}))
    assert session.error is None
    assert [outcome.state for outcome in (base, rag, draft)] == ["done"] * 3
    assert (base.response, base.score, base.retrieved, base.context) == (QUIET, 1.0, None, None)
    assert (rag.response, rag.score) == (SAILING, 0.25)
    assert rag.scores[0].reason == "speaks of a boat"
    assert rag.retrieved is not None
    assert [(found.text, found.date) for found in rag.retrieved] == [(BREAD, "9 May 2024"), (BOAT, None), (TEA, None)]
    assert rag.context is not None
    assert [(line.text, line.sources) for line in rag.context] == [(BREAD, None), (BOAT, None), (TEA, None)]
    assert (draft.post_state, draft.response) == ("kept", SAILING)
    assert draft.post_text == f"1. {BREAD}\n2. {BOAT}"
    assert draft.context is not None
    assert [(line.text, line.date, line.sources) for line in draft.context] == [
        (BREAD, "9 May 2024", (1,)),
        (BOAT, None, (2,)),
    ]
    assert set(base.milliseconds) == set(rag.milliseconds) == {"response"}
    assert set(draft.milliseconds) == {"post", "response"}
    # Prices are 1 and 2 dollars per million tokens.
    for outcome in (base, rag, draft):
        assert outcome.prompt_tokens
        assert outcome.completion_tokens
        dollars = (outcome.prompt_tokens + 2 * outcome.completion_tokens) / 1_000_000
        assert outcome.cost_usd == pytest.approx(dollars)
        assert outcome.first_text_ms is not None
        assert outcome.total_ms is not None
        assert 0 < outcome.first_text_ms <= outcome.total_ms
        assert not outcome.at_once
    # QUIET has 7 words, SAILING 6; the filter's reply 2 numbers and 7 words.
    assert [o.completion_tokens for o in (base, rag, draft)] == [7, 6, 6 + 9]
    assert calls(store) == 4


def test_the_second_time_nothing_is_paid(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    case = spec({}, {"mitigation": "my-filter", "draft": DRAFT})
    _, first = asked(desk, store, case)
    sent = endpoint.ledger.total
    _, second = asked(desk, store, case)
    assert endpoint.ledger.total == sent
    for before, after in zip(first, second, strict=True):
        assert after.at_once
        assert set(after.reused.values()) == {True}
        assert (after.response, after.score, after.cost_usd) == (before.response, before.score, before.cost_usd)
        # The calls' own times, as they were; what is around them takes a moment.
        assert after.milliseconds["response"] == pytest.approx(before.milliseconds["response"], abs=50)


def test_columns_that_share_a_call_pay_once(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    asked(desk, store, spec({}, {"mitigation": "abstain"}, {"given": ()}, {}))
    # BASE and the empty retrieval are one call, the two columns without a post-processor another.
    assert sum(1 for body in endpoint.ledger.bodies if "messages" in body) == 2


def test_everything_that_a_column_says_is_honoured(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    case = spec(
        {"without": (2,)},
        {"temperature": 0.7, "repeat": 3},
        {"mitigation": "reminder", "prompts": {"system": "FILTER, and be strict."}},
        max_tokens=77,
    )
    session, (_, without, drawn, reworded) = asked(desk, store, case)
    assert without.retrieved is not None
    assert [found.text for found in without.retrieved] == [BREAD, TEA]
    assert (without.response, without.score) == (QUIET, 1.0)
    assert drawn.state == "done"
    assert {body["max_tokens"] for body in endpoint.ledger.bodies if "FILTER" not in str(body)} == {77}
    assert [body.get("seed") for body in endpoint.ledger.bodies if body.get("temperature")] == [3]
    assert (reworded.post_state, reworded.response) == ("kept", SAILING), reworded.error
    prompts = [column["prompt_sha256"] for column in session.provenance["columns"]]
    assert len(set(prompts)) == 2  # that of `none` thrice, and the reworded one


def test_k_is_the_columns_own(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    _, (_, five, two) = asked(desk, store, spec({"given": None}, {"given": None, "k": 2}))
    assert five.retrieved is not None
    assert two.retrieved is not None
    assert (len(five.retrieved), len(two.retrieved)) == (5, 2)
    assert five.retrieved[:2] == two.retrieved
    assert all(found.score is not None for found in five.retrieved)
    assert set(five.milliseconds) == {"retrieval", "response"}
    assert calls(store, "retrieval") == 2


def test_given_memories_need_no_memory_system(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    session, (_, _rag, other) = asked(desk, store, spec({}, {"memory": "of-a-friend"}))
    assert (other.state, other.response) == ("done", SAILING)
    # The same prompt is the same call.
    assert sum("messages" in body for body in endpoint.ledger.bodies) == 2
    assert session.provenance["memories"] == {}


def test_a_system_that_hasnt_ingested_says_what_to_do(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    register_memory("files", LibraryFactory("Files", FileLibrary))
    _, (base, fresh) = asked(desk, store, spec({"memory": "files", "given": None}))
    assert base.state == "done"
    assert (fresh.state, fresh.error_kind) == ("failed", "memory")
    assert "opbench memory ingest files --users sample-1/Ottilie" in str(fresh.error)


def test_text_streams_in_while_it_comes(desk: Desk, store: Store, home: Path) -> None:
    with serving(home, piece_s=0.05):
        session = desk.open(store, spec({}))
        seen: list[set[str]] = [set(), set()]

        def look() -> bool:
            over = session.over
            for texts, outcome in zip(seen, session.outcomes(), strict=True):
                texts.add(outcome.response)
            return over

        assert soon(look)
        for texts, whole in zip(seen, (QUIET, SAILING), strict=True):
            assert len(texts) >= 3
            assert all(whole.startswith(text) for text in texts)
            assert whole in texts


def test_an_endpoint_gets_so_many_at_once_as_its_entry_says(desk: Desk, store: Store, home: Path) -> None:
    columns = [{"given": (Given(text=f"Memory {n}."),)} for n in range(5)]
    for concurrency in (1, 3):
        with serving(home, latency_s=0.1, fields={"concurrency": concurrency}) as endpoint:
            asked(desk, store, spec(*columns, question=f"With {concurrency}?"))
            assert endpoint.ledger.most_at_once == concurrency
            if concurrency == 1:
                # BASE is the first.
                assert "Memory" not in endpoint.ledger.bodies[0]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("unauthorized", "auth"),
        ("too_long", "too_long"),
        ("content_filter", "content_filter"),
        ("quota", "quota"),
        ("server", "server"),
        ("empty", "empty"),
    ],
)
def test_a_failure_looks_like_what_it_is(desk: Desk, store: Store, home: Path, fault: Any, kind: str) -> None:
    with serving(home, faults={fault: 1.0}, fields={"attempts": 2}):
        session, (base,) = asked(desk, store, spec())
    assert (base.state, base.error_kind, base.score) == ("failed", kind, None)
    assert base.error
    assert "\n" not in base.error
    assert session.error is None


def test_a_dead_endpoint_is_a_connection_that_fails(desk: Desk, store: Store, home: Path) -> None:
    with serving(home, fields={"attempts": 1, "base_url": "http://127.0.0.1:9/v1"}):
        _, (base,) = asked(desk, store, spec())
    assert (base.state, base.error_kind) == ("failed", "connection")


def test_waiting_for_another_attempt_is_told_and_can_be_cancelled(desk: Desk, store: Store, home: Path) -> None:
    with serving(home, faults={"rate_limit": 1.0}, retry_after="60", fields={"max_wait_s": 60}):
        session = desk.open(store, spec())
        assert soon(lambda: session.outcomes()[0].retrying)
        assert session.outcomes()[0].retrying == "rate_limit: again in 60 s"
        session.cancel()
        assert session.wait(5)
    (base,) = session.outcomes()
    assert (base.state, base.retrying) == ("cancelled", None)


class Broken:
    name, label = "broken", "Broken"

    def identity(self) -> dict[str, str]:
        return {"memory": "broken"}

    async def ingest(self, *arguments: Any) -> None:
        raise ZeroDivisionError("its own fault")

    async def aclose(self) -> None:
        pass


def test_one_columns_failure_is_its_own(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    register_memory("broken", lambda context: Broken())  # type: ignore[arg-type,return-value]
    free: dict[str, Any] = {"given": None}
    case = spec(
        free | {"memory": "broken"},
        free | {"memory": "nowhere"},
        {"mitigation": "remindr"},
        {"without": (4,)},
        {"mitigation": "reminder", "prompts": {"no-such": "x"}},
        {},
    )
    columns = (*case.columns, Column(model="unknown"))
    session, (base, broken, nowhere, misspelt, beyond, section, fine, unknown) = asked(
        desk, store, case.model_copy(update={"columns": columns})
    )
    assert session.error is None
    assert (base.state, fine.state) == ("done", "done")
    assert (broken.error_kind, broken.error) == ("internal", "ZeroDivisionError: its own fault")
    assert (nowhere.error_kind, misspelt.error_kind, beyond.error_kind, section.error_kind) == ("usage",) * 4
    assert "no memory system 'nowhere'" in str(nowhere.error)
    assert "reminder" in str(misspelt.error)
    assert "no memory 4" in str(beyond.error)
    assert beyond.retrieved is None
    assert (unknown.state, unknown.error_kind) == ("failed", "usage")
    assert "No model is named 'unknown'" in str(unknown.error)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"user": "sample-1/Nobody"}, "no user 'sample-1/Nobody'"),
        ({"instance": "op/sample-1/Ottilie/fact/99"}, "no instance"),
        ({"instance": "op/sample-1/Corvin/fact/1"}, "is asked of sample-1/Corvin"),
        ({"instance": "op/sample-1/Ottilie/fact/1"}, "isn't that of"),
        ({"subtype": "temporal"}, "can't be judged as 'temporal'"),
        ({"judge": "no-such-judge"}, "No model is named 'no-such-judge'"),
        ({"embedder": "no-such-embedder"}, "No embedder is named"),
    ],
)
def test_a_case_that_cant_be_asked_says_why(
    desk: Desk, store: Store, endpoint: ScriptedEndpoint, changed: dict[str, Any], says: str
) -> None:
    session, outcomes = asked(desk, store, spec({}, **changed))
    assert says in str(session.error)
    assert [(o.state, o.error_kind, o.error) for o in outcomes] == [("failed", "usage", session.error)] * 2
    assert endpoint.ledger.total == 0


def test_repetition_has_no_score_of_one_response(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    _, (base,) = asked(desk, store, spec(subtype="repetition"))
    assert (base.state, base.score) == ("done", None)
    assert [(score.metric, score.value, score.reason) for score in base.scores] == [("score", None, NOT_ALONE)]


def test_a_locomo_instance_is_judged_by_its_answer(desk: Desk, store: Store, home: Path) -> None:
    from opbench.benchmarks import load

    instance = next(each for each in load("sample").locomo if each.subtype == "single-hop")
    with serving(home, reply=lambda body: str(instance.answer)):
        case = spec(
            question=instance.question,
            instance=instance.id,
            user=instance.user.id,
            subtype=instance.subtype,
            judge="offline",
        )
        _, (base,) = asked(desk, store, case)
    assert base.state == "done"
    # The very answer: all that is measured of it is 1.
    assert {score.metric for score in base.scores} >= {"f1"}
    assert next(score.value for score in base.scores if score.metric == "f1") == pytest.approx(1.0)


def test_counts_that_arent_told_are_none(desk: Desk, store: Store, home: Path) -> None:
    with serving(home, usage=False):
        _, (base,) = asked(desk, store, spec())
    assert base.state == "done"
    assert (base.prompt_tokens, base.completion_tokens, base.cost_usd) == (None, None, None)


@pytest.mark.parametrize(
    ("fault", "known"),
    [
        # Refused before anything was computed: nothing is charged.
        ("unauthorized", (0, 0, 0.0)),
        ("too_long", (0, 0, 0.0)),
        ("rate_limit", (0, 0, 0.0)),
        # What had been written by then, the endpoint may charge for; it doesn't tell.
        ("content_filter", (None, None, None)),
        ("stream_error", (None, None, None)),
        ("truncated", (None, None, None)),
    ],
)
def test_of_an_answer_that_broke_off_tokens_and_cost_are_not_known(
    desk: Desk, store: Store, home: Path, fault: Any, known: tuple[Any, ...]
) -> None:
    with serving(home, faults={fault: 1.0}, fields={"attempts": 2}):
        _, (base,) = asked(desk, store, spec())
    assert base.state == "failed"
    assert (base.prompt_tokens, base.completion_tokens, base.cost_usd) == known


def test_a_finished_call_is_kept_while_its_column_is_at_work(desk: Desk, store: Store, home: Path) -> None:
    """A process that is killed then has lost nothing that was answered."""
    with serving(home, script=[None, None, "hang"], fields={"timeout_s": 60.0}):
        session = desk.open(store, spec({"mitigation": "my-filter", "draft": DRAFT}))
        # BASE's answer and the filter's; the response hangs.
        assert soon(lambda: calls(store) == 2)
        assert session.outcomes()[1].state == "response"
        session.cancel()
        assert session.wait(20)


def test_a_published_question_may_be_printed_otherwise(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    """The appendix has other quotation marks than the benchmark's file; what is shown is asked."""
    instance = next(each for each in load("sample").op if each.user.id == USER and each.subtype == "fact")
    printed = f" {instance.question.swapcase()}"
    session, (base,) = asked(
        desk, store, spec(question=printed, instance=instance.id, published="fig-0", subtype="fact")
    )
    assert (session.error, base.state) == (None, "done")
    assert printed in endpoint.ledger.bodies[0]["messages"][-1]["content"]


def test_cancelling_closes_the_connections_and_keeps_what_was_finished(desk: Desk, store: Store, home: Path) -> None:
    with serving(home, piece_s=0.02, reply=_slow_boat, fields={"concurrency": 1}) as endpoint:
        session = desk.open(store, spec({}, {"given": ()}, {"given": (Given(text=TEA),)}))
        assert soon(lambda: len(session.outcomes()[1].response) > 10)
        session.cancel()
        assert session.wait(10)
        assert soon(lambda: endpoint.ledger.closed_by_client)
        base, rag, _, never = session.outcomes()
        assert (base.state, base.response) == ("done", QUIET)
        assert (rag.state, rag.score, rag.error) == ("cancelled", None, None)
        assert rag.response.startswith("word word")
        assert rag.total_ms is not None
        assert (never.state, never.response) == ("cancelled", "")
        assert endpoint.ledger.closed_by_client == 1
        assert calls(store) == 1
        assert session.provenance["judge"] == {"judge": "boats", "version": "1"}
        # Nothing more happens, and cancelling once more does nothing.
        session.cancel()
        assert session.wait(1)


def _slow_boat(body: dict[str, Any]) -> str:
    return "word " * 500 if BOAT in body["messages"][-1]["content"] else QUIET


def test_two_at_once_dont_disturb_each_other(desk: Desk, store: Store, home: Path) -> None:
    with serving(home, piece_s=0.02, reply=lambda body: "word " * 200, fields={"timeout_s": 60.0}) as endpoint:
        # The very same case: each has calls of its own, as long as none is kept.
        first, second = desk.open(store, spec({})), desk.open(store, spec({}))
        assert soon(lambda: all(outcome.response for s in (first, second) for outcome in s.outcomes()))
        first.cancel()
        assert first.wait(10)
        assert second.wait(40)
        assert [outcome.state for outcome in first.outcomes()] == ["cancelled"] * 2
        assert [outcome.state for outcome in second.outcomes()] == ["done"] * 2
        assert [len(outcome.response.split()) for outcome in second.outcomes()] == [200, 200]
        assert endpoint.ledger.closed_by_client == 2


def test_a_key_given_for_the_case_is_used_and_shows_nowhere(
    desk: Desk, store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCRIPTED_KEY", raising=False)
    key = "sk-live-0123456789abcdef"
    with serving(home, faults={"unauthorized": 1.0}, fields={"key_env": "SCRIPTED_KEY"}):
        session = desk.open(store, spec(), keys={"SCRIPTED_KEY": SecretStr(key)})
        assert session.wait(20)
        (refused,) = session.outcomes()
        _, (missing,) = asked(desk, store, spec())
    assert (refused.error_kind, missing.error_kind) == ("auth", "auth")
    assert key not in refused.model_dump_json() + str(session.provenance)
    assert "Set SCRIPTED_KEY" in str(missing.error)


def test_the_provenance_names_what_the_answers_rest_on(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    from opbench.benchmarks import load
    from opbench.running.response_prompts import prompts_sha256

    session, _ = asked(desk, store, spec({"given": None}))
    provenance = session.provenance
    assert provenance["data"] == load("sample").sha256
    assert provenance["response_prompts"] == prompts_sha256()
    assert provenance["models"]["scripted"]["base_url"] == endpoint.url
    assert provenance["embedder"]["served"] == "scripted"
    assert provenance["memories"]["rag"]["memory"] == "rag"
    assert provenance["asked_at"] == session.started_at
    assert {"judge", "workbench", "git_commit", "python", "machine", "comparable", "history"} <= set(provenance)


def test_a_store_that_cant_be_written_is_said(
    desk: Desk, store: Store, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opbench.errors import StoreError
    from opbench.running import calls as module

    def refuse(*arguments: Any) -> None:
        raise StoreError("the disk is full. Make room.")

    monkeypatch.setattr(module, "save_calls", refuse)
    session, (base,) = asked(desk, store, spec())
    assert (base.state, base.response) == ("done", QUIET)
    assert session.error is None
    assert "the disk is full" in str(session.unkept)


def test_the_question_and_the_given_memories_reach_the_model(
    desk: Desk, store: Store, endpoint: ScriptedEndpoint
) -> None:
    asked(desk, store, spec({}))
    prompts = [body["messages"][-1]["content"] for body in endpoint.ledger.bodies]
    assert all(QUESTION in prompt for prompt in prompts)
    with_memories = next(prompt for prompt in prompts if BOAT in prompt)
    assert f"- (9 May 2024) {GIVEN[0].text}" in with_memories
