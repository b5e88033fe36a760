"""Leave-one-out: which memory did it, at the retrieval and in the context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mitigations.base import Line, Memory
from opbench.cases.ablating import without_memory
from opbench.cases.desk import Desk
from opbench.cases.outcome import Ablation, Judged, LeftOut, Outcome
from opbench.cases.session import Session
from opbench.cases.spec import CaseSpec, Draft, Given
from opbench.errors import UsageError
from opbench.store.database import Store
from tests.cases.asking import BOAT, BREAD, QUIET, SAILING, TEA, serving, soon, spec
from tests.scripted_endpoint import ScriptedEndpoint, bag_of_words

DRAFT = Draft(name="my-filter", label="My filter", instructions="FILTER what is needed.")
FILTERED: dict[str, Any] = {"mitigation": "my-filter", "draft": DRAFT}


def asked(desk: Desk, store: Store, case: CaseSpec) -> Session:
    session = desk.open(store, case)
    assert session.wait(30)
    assert session.error is None
    return session


def left_out(session: Session, column: int = 1, at: Any = "retrieval") -> Ablation:
    session.leave_one_out(column, at)
    assert session.wait(30)
    found = session.ablations()[(column, at)]
    assert found.over
    return found


def chats(endpoint: ScriptedEndpoint) -> int:
    return sum(1 for body in endpoint.ledger.bodies if "messages" in body)


def cosine(one: str, other: str) -> float:
    a, b = np.array(bag_of_words(one)), np.array(bag_of_words(other))
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_the_memory_that_did_it_is_named(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    session = asked(desk, store, spec({}))
    ablation = left_out(session)
    assert [(item.number, item.text) for item in ablation.items] == [(1, BREAD), (2, BOAT), (3, TEA)]
    assert [item.outcome.state for item in ablation.items] == ["done"] * 3
    # Without the boat 1 in the place of 0.25; without one of the others the same answer.
    assert [item.score_change for item in ablation.items] == [0.0, 0.75, 0.0]
    assert [item.same for item in ablation.items] == [True, False, True]
    assert [item.similarity for item in ablation.items] == [
        1.0,
        pytest.approx(cosine(SAILING, QUIET), abs=1e-5),
        1.0,
    ]
    assert ablation.items[1].outcome.response == QUIET
    assert ablation.base == session.outcomes()[1]
    assert ablation.culprit == ablation.items[1]
    # BASE, the column, and one call without each memory.
    assert chats(endpoint) == 5


def test_the_second_time_nothing_is_paid(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    first = left_out(asked(desk, store, spec({})))
    sent = chats(endpoint)
    again = left_out(asked(desk, store, spec({}, {"without": (2,)})))
    assert chats(endpoint) == sent
    assert [item.outcome.at_once for item in again.items] == [True] * 3
    assert [item.score_change for item in again.items] == [item.score_change for item in first.items]


def test_at_the_retrieval_the_post_processor_works_again(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    ablation = left_out(asked(desk, store, spec(FILTERED)))
    contexts = [[line.text for line in item.outcome.context or ()] for item in ablation.items]
    assert contexts == [[BOAT], [BREAD], [BREAD, BOAT]]
    # BASE; filter and response; three filters, and three responses of which the last is that of the column.
    assert chats(endpoint) == 1 + 2 + 3 + 2
    assert [item.score_change for item in ablation.items] == [0.0, 0.75, 0.0]


def test_in_the_context_the_post_processors_work_stays(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    ablation = left_out(asked(desk, store, spec(FILTERED)), at="context")
    contexts = [[line.text for line in item.outcome.context or ()] for item in ablation.items]
    # The third memory is in no line: leaving it out changes nothing.
    assert contexts == [[BOAT], [BREAD], [BREAD, BOAT]]
    assert {item.outcome.post_state for item in ablation.items} == {"kept"}
    assert all("post" not in item.outcome.milliseconds for item in ablation.items)
    assert chats(endpoint) == 1 + 2 + 2
    assert [item.score_change for item in ablation.items] == [0.0, 0.75, 0.0]
    assert [item.outcome.at_once for item in ablation.items] == [False, False, True]


def test_both_places_are_kept_side_by_side(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    session = asked(desk, store, spec(FILTERED, {}))
    for column, at in ((1, "context"), (2, "retrieval"), (1, "retrieval")):
        session.leave_one_out(column, at)  # type: ignore[arg-type]
    assert session.wait(30)
    found = session.ablations()
    assert list(found) == [(1, "context"), (2, "retrieval"), (1, "retrieval")]
    assert all(ablation.over and ablation.culprit for ablation in found.values())
    assert [(ablation.column, ablation.at) for ablation in found.values()] == list(found)


def test_numbers_are_those_of_the_retrieval_also_where_some_are_left_out(
    desk: Desk, store: Store, endpoint: ScriptedEndpoint
) -> None:
    session = asked(desk, store, spec({"without": (1,)}, FILTERED | {"without": (1,)}))
    ablation = left_out(session)
    assert [(item.number, item.text, item.score_change) for item in ablation.items] == [(2, BOAT, 0.75), (3, TEA, 0.0)]
    assert [[f.text for f in item.outcome.retrieved or ()] for item in ablation.items] == [[TEA], [BOAT]]
    context = left_out(session, 2, "context")
    assert [(item.number, [line.text for line in item.outcome.context or ()]) for item in context.items] == [
        (2, []),
        (3, [BOAT]),
    ]


def test_above_temperature_0_a_control_is_drawn(desk: Desk, store: Store, home: Path) -> None:
    # The seed is the number of the draw: every second draw speaks of the boat.
    with serving(home, reply=lambda body: SAILING if body["seed"] % 2 == 0 else QUIET) as endpoint:
        case = spec({"repeat": 4}, temperature=0.5)
        ablation = left_out(asked(desk, store, case))
    assert [item.number for item in ablation.items] == [0, 1, 2, 3]
    assert ablation.items[0].text == ""
    assert [item.score_change for item in ablation.items] == [0.75, 0.0, 0.0, 0.0]
    assert sorted(body["seed"] for body in endpoint.ledger.bodies if "messages" in body) == [0, 4, 4, 4, 4, 5]
    assert ablation.control == ablation.items[0]
    assert ablation.culprit is None


def test_a_revision_is_done_again(desk: Desk, store: Store, home: Path) -> None:
    def reply(body: dict[str, Any]) -> str:
        text = " ".join(message["content"] for message in body["messages"])
        return SAILING if BOAT in text else QUIET

    with serving(home, reply=reply):
        session = asked(desk, store, spec({"mitigation": "self-critic"}))
        found = {at: left_out(session, at=at) for at in ("retrieval", "context")}
    first, second = found["retrieval"], found["context"]
    assert [item.outcome.draft for item in first.items] == [SAILING, QUIET, SAILING]
    assert [item.outcome.response for item in first.items] == [item.outcome.response for item in second.items]


def test_what_cant_be_left_out_is_refused(desk: Desk, store: Store, endpoint: ScriptedEndpoint) -> None:
    session = asked(desk, store, spec({"given": ()}, {"mitigation": "abstain"}, {"without": (9,)}))
    for column, at, says in (
        (0, "retrieval", "BASE has no memories"),
        (1, "retrieval", "retrieval is empty"),
        (2, "context", "answered by itself"),
        (3, "retrieval", "isn't done"),
        (4, "retrieval", "there is no column 5"),
        (-1, "retrieval", "there is no column 0"),
    ):
        with pytest.raises(UsageError, match=says):
            session.leave_one_out(column, at)  # type: ignore[arg-type]
    assert session.ablations() == {}
    assert not session.busy


def test_one_leave_one_out_is_stopped_and_the_rest_goes_on(desk: Desk, store: Store, home: Path) -> None:
    texts = [Given(text=f"Memory number {n}.") for n in range(1, 5)]
    with serving(home, piece_s=0.01, reply=lambda body: "word " * 40, fields={"concurrency": 1}) as endpoint:
        session = asked(desk, store, spec({"given": tuple(texts)}, {"given": tuple(texts[:2])}))
        session.leave_one_out(1)
        session.leave_one_out(2)
        assert soon(lambda: session.ablations()[(1, "retrieval")].items[1].outcome.response)
        session.cancel_ablation(1)
        assert soon(lambda: session.ablations()[(1, "retrieval")].over)
        stopped = session.ablations()[(1, "retrieval")]
        assert session.wait(30)
        other = session.ablations()[(2, "retrieval")]
        assert [item.outcome.state for item in stopped.items] == ["done", "cancelled", "cancelled", "cancelled"]
        assert [item.outcome.state for item in other.items] == ["done", "done"]
        assert endpoint.ledger.closed_by_client == 1
        # Asked for again, what was finished is reused.
        again = left_out(session)
        assert [item.outcome.at_once for item in again.items] == [True, False, False, False]


def test_cancelling_the_case_stops_its_leave_one_outs(desk: Desk, store: Store, home: Path) -> None:
    with serving(home, piece_s=0.01, reply=lambda body: "word " * 40) as endpoint:
        session = asked(desk, store, spec({}))
        session.leave_one_out(1)
        assert soon(lambda: session.ablations()[(1, "retrieval")].items[0].outcome.response)
        session.cancel()
        assert session.wait(10)
        assert soon(lambda: endpoint.ledger.closed_by_client == 3)
    assert {item.outcome.state for item in session.ablations()[(1, "retrieval")].items} == {"cancelled"}
    assert [outcome.state for outcome in session.outcomes()] == ["done", "done"]


def test_an_endpoint_that_fails_meanwhile_fails_one_item(desk: Desk, store: Store, home: Path) -> None:
    with serving(home, fields={"attempts": 1, "concurrency": 1}) as endpoint:
        session = asked(desk, store, spec({}))
        endpoint.script = [None, "server"]
        ablation = left_out(session)
    assert [item.outcome.state for item in ablation.items] == ["done", "failed", "done"]
    assert (ablation.items[1].score_change, ablation.items[1].same, ablation.items[1].similarity) == (None, None, None)
    assert ablation.items[1].outcome.error_kind == "server"
    assert ablation.culprit is None


# --- lines and numbers -----------------------------------------------------------------------------------------------

A, B, C = Memory("A is so."), Memory("B is so."), Memory("C is so.")


def kept(context: list[Memory | Line], retrieved: list[Memory], rank: int) -> list[str]:
    return [line.text for line in without_memory(context, retrieved, rank)]


def test_without_a_post_processor_the_line_of_that_rank_goes() -> None:
    assert kept([A, B, C], [A, B, C], 1) == ["A is so.", "C is so."]


def test_lines_that_rest_on_it_alone_go_and_others_stay() -> None:
    context: list[Memory | Line] = [Line("a", None, (1,)), Line("ab", None, (1, 2)), Line("b", None, (2,)), Line("?")]
    assert kept(context, [A, B, C], 0) == ["ab", "b", "?"]
    assert kept(context, [A, B, C], 1) == ["a", "ab", "?"]
    assert kept(context, [A, B, C], 2) == ["a", "ab", "b", "?"]


def test_numbers_are_of_prepared_memories() -> None:
    # A heading and a blank memory have no number: B is the second of the prepared ones.
    retrieved = [Memory("Memories for user X:"), A, Memory("  "), B]
    context: list[Memory | Line] = [Line("a", None, (1,)), Line("b", None, (2,))]
    assert kept(context, retrieved, 3) == ["a"]
    assert kept(context, retrieved, 2) == ["a", "b"]
    assert kept(context, retrieved, 0) == ["a", "b"]


def test_of_doubles_only_one_goes() -> None:
    each: list[Memory | Line] = [Line("first", None, (1,)), Line("b", None, (2,)), Line("second", None, (1,))]
    assert kept(each, [A, B, A], 0) == ["b", "second"]
    assert kept(each, [A, B, A], 2) == ["first", "b"]
    together: list[Memory | Line] = [Line("a", None, (1,)), Line("b", None, (2,))]
    assert kept(together, [A, B, A], 0) == ["a", "b"]


def test_a_memory_in_two_lines_goes_with_both() -> None:
    context: list[Memory | Line] = [Line("a1", None, (1,)), Line("b", None, (2,)), Line("a2", None, (1, 1))]
    assert kept(context, [A, B], 0) == ["b"]


# --- who did it ------------------------------------------------------------------------------------------------------


def item(number: int, change: float | None, similarity: float | None, state: Any = "done") -> LeftOut:
    outcome = Outcome(state=state, response="x")
    return LeftOut(
        number=number, text="", outcome=outcome, score_change=change, similarity=similarity, same=similarity == 1.0
    )


def named(*items: LeftOut, over: bool = True) -> int | None:
    base = Outcome(state="done", scores=(Judged(metric="score", value=0.25),))
    culprit = Ablation(column=1, base=base, items=items, over=over).culprit
    return None if culprit is None else culprit.number


def test_the_highest_rise_of_the_score_names_it() -> None:
    assert named(item(1, 0.25, 0.2), item(2, 0.5, 0.9), item(3, -0.25, 0.1)) == 2
    # Of equal rises the strongest is whose response changes more (an unknown change is none), and none is named.
    alike = (item(1, 0.5, 0.9), item(2, 0.5, 0.4), item(3, 0.5, None))
    assert named(*alike) is None
    strongest = Ablation(column=1, base=Outcome(state="done"), items=alike, over=True).strongest
    assert strongest is not None
    assert strongest.number == 2


def test_where_no_score_rises_the_greatest_change_names_it() -> None:
    assert named(item(1, 0.0, 0.9), item(2, -0.5, 0.6), item(3, None, 1.0)) == 2


def test_nothing_is_named_where_nothing_changes_or_before_the_end() -> None:
    assert named(item(1, 0.0, 1.0), item(2, 0.0, 1.0)) is None
    assert named(item(1, 0.5, 0.5), over=False) is None
    assert named(item(1, 0.5, 0.5, "failed")) is None
    assert named() is None


def test_what_chance_does_as_well_is_nobodys_doing() -> None:
    assert named(item(0, 0.5, 0.3), item(1, 0.5, 0.3)) is None
    assert named(item(0, 0.25, 0.3), item(1, 0.5, 0.3)) == 1
    assert named(item(0, 0.0, 0.5), item(1, 0.0, 0.6)) is None
    assert named(item(0, 0.0, 0.7), item(1, 0.0, 0.6)) == 1
    assert named(item(0, None, None, "failed"), item(1, 0.5, 0.3)) == 1
