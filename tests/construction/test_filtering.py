"""The filters in their order: what is dropped, why, and that it is the same however the work went."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from opbench.construction.filtering import FilterReport, report, run_filters
from opbench.construction.spec import Filters
from opbench.errors import ModelError, UsageError
from opbench.models.embeddings import Embedded
from opbench.settings import settings
from opbench.store.builds import Candidate, Ruling, read_candidates, read_units, request, set_states
from opbench.store.database import Store, open_store
from tests.construction.built import CORVIN, KIWI, OTTILIE, add, candidate, made_build
from tests.construction.writer import schema_of, scripted_spec
from tests.scripted_endpoint import ScriptedEndpoint

#: Every word is another one, so that the scripted embedder finds no likeness that isn't meant.
MEETING = "Which chairs suit large meetings best?"
NIECE = "What gift pleases nieces aged nine?"
SNACK = "Could you name snacks without my allergens?"
TRUE_MEMORY = "Remember me saying kiwi gives me hives?"
FALSE_MEMORY = "Recall how my goose flew to Norway?"
ALL = (
    candidate(1, MEETING, "fully-irrelevant"),
    candidate(2, NIECE, "baiting"),
    candidate(3, SNACK, "fully-irrelevant"),
    candidate(4, "1) Do lakes ever freeze overnight?", "fact"),
    candidate(5, "Why though?", "value"),
    candidate(6, "Is granite harder than marble stone?", "fact"),
    candidate(7, "Is granite harder than marble stone?!", "fact", CORVIN),
    candidate(8, TRUE_MEMORY, "memory", evidence=("D3:9",)),
    candidate(9, FALSE_MEMORY, "memory"),
    candidate(10, "An item that the reading dropped", "fact", state="dropped", decided_by="format", reason="cut off"),
    candidate(11, "Please suggest breathing drills underwater swimmers like", "repetition"),
)


def reply(body: dict[str, Any]) -> str:
    """Finds that the snack needs personalisation, and that the observation makes the kiwi memory true."""
    asked = body["messages"][-1]["content"]
    if '"missing"' in asked:
        personal = SNACK in asked
        return json.dumps(
            {"missing": "their allergies", "verdict": "personal"}
            if personal
            else {"missing": "nothing", "verdict": "general"}
        )
    if TRUE_MEMORY not in asked:
        return json.dumps({"line": "none", "verdict": "false"})
    label = re.search(rf"\[(\d+)\] \(16 March 2024\) {re.escape(KIWI)}", asked)
    return json.dumps({"line": label[1] if label else "none", "verdict": "true"})


@pytest.fixture
def endpoint() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(reply=reply) as served:
        yield served


@pytest.fixture
def use(endpoint: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(endpoint.registry_toml())
    monkeypatch.setenv("OPBENCH_MODELS", str(file))
    settings.cache_clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")


def built(store: Store, *candidates: Candidate, **filters: Any) -> str:
    build_id = made_build(store, scripted_spec(filters=Filters(**filters)))
    add(store, build_id, *candidates)
    return build_id


def filtered(store: Store, build_id: str) -> FilterReport:
    return asyncio.run(run_filters(store, build_id))


def fates(store: Store, build_id: str) -> dict[str, str | None]:
    """By candidate the filter that dropped it, else its state."""
    return {each.id: each.decided_by or each.state for each in read_candidates(store, build_id)}


def chats(endpoint: ScriptedEndpoint) -> int:
    return sum("messages" in body for body in endpoint.ledger.bodies)


EXPECTED = {
    **{"c1": "kept", "c2": "kept", "c3": "personal", "c4": "format", "c5": "length", "c6": "kept", "c7": "duplicate"},
    **{"c8": "true-memory", "c9": "kept", "c10": "format", "c11": "kept"},
}


def test_each_filter_drops_what_is_its_own_with_the_reason_and_what_it_rests_on(
    use: None, store_url: str, endpoint: ScriptedEndpoint
) -> None:
    store = open_store(store_url)
    build_id = built(store, *ALL)
    told = filtered(store, build_id)
    assert fates(store, build_id) == EXPECTED
    dropped = {"format": 2, "length": 1, "template": 0, "duplicate": 1, "true-memory": 1, "personal": 1}
    assert told == FilterReport(generated=11, dropped=dropped, kept=5, undecided=0) == report(store, build_id)
    assert list(told.dropped) == ["format", "length", "template", "duplicate", "true-memory", "personal"]
    of = {each.id: each for each in read_candidates(store, build_id)}
    assert of["c5"].reason == "2 words, fewer than 4"
    assert of["c7"].reason == f"cosine 1.000 to “{ALL[5].question}” of {OTTILIE}; below 0.85 stays"
    assert of["c7"].details == {
        **{"filter": "duplicate", "of": "c6", "of_user": OTTILIE, "limit": 0.85},
        "cosine": pytest.approx(1.0, abs=1e-5),
    }
    assert of["c3"].reason == "needs personalisation after all: their allergies"
    assert of["c8"].reason == f"true after all: “{KIWI}” (D3:9, 16 March 2024)"
    assert of["c8"].details == {"filter": "true-memory", "memory": KIWI, "turns": ["D3:9"], "date": "16 March 2024"}
    # Whatever is likest, the turn behind the false memory is shown.
    asked = [body["messages"][-1]["content"] for body in endpoint.ledger.bodies if "messages" in body]
    assert any(TRUE_MEMORY in text and "One slice of kiwi in a fruit salad" in text for text in asked)
    assert of["c10"].reason == "cut off"
    store.close()


def test_checks_are_units_with_their_calls_and_costs(use: None, store: Store) -> None:
    build_id = built(store, *ALL)
    filtered(store, build_id)
    units = read_units(store, build_id, "filtering")
    checks = {name: unit for name, unit in units.items() if unit.role == "checker"}
    assert sorted(checks) == [
        f"filtering/{OTTILIE}/personal/c1", f"filtering/{OTTILIE}/personal/c2", f"filtering/{OTTILIE}/personal/c3",
        f"filtering/{OTTILIE}/true-memory/c8", f"filtering/{OTTILIE}/true-memory/c9",
    ]  # fmt: skip
    for unit in checks.values():
        assert len(unit.calls) == 1
        # 1 and 2 dollars a million tokens.
        assert unit.prompt_tokens
        assert unit.completion_tokens
        assert unit.cost_usd == pytest.approx((unit.prompt_tokens + 2 * unit.completion_tokens) / 1e6)
    vectors = units["filtering/vectors"]
    assert (vectors.role, vectors.model) == ("embedder", "scripted")
    assert vectors.prompt_tokens
    assert vectors.cost_usd == pytest.approx(vectors.prompt_tokens / 1e6)


def test_filtering_again_changes_nothing_and_asks_nobody(use: None, store: Store, endpoint: ScriptedEndpoint) -> None:
    build_id = built(store, *ALL)
    filtered(store, build_id)
    before, asked = read_candidates(store, build_id), endpoint.ledger.total
    units = read_units(store, build_id)
    filtered(store, build_id)
    assert read_candidates(store, build_id) == before
    assert endpoint.ledger.total == asked
    again = read_units(store, build_id)
    assert {name: unit.calls for name, unit in again.items()} == {name: unit.calls for name, unit in units.items()}


def test_other_settings_give_what_these_give_whatever_was_decided_before(use: None, store: Store) -> None:
    build_id = built(store, *ALL)
    filtered(store, build_id)
    change(store, build_id, Filters(fewest_words=2, check_need=False, check_memories=False, cosine=1.0))
    filtered(store, build_id)
    loose = {**EXPECTED, "c3": "kept", "c5": "kept", "c8": "kept"}
    # The scripted embedder looks at words alone, so the two about marble have a cosine of 1.
    assert fates(store, build_id) == loose
    change(store, build_id, Filters())
    filtered(store, build_id)
    assert fates(store, build_id) == EXPECTED


def change(store: Store, build_id: str, filters: Filters) -> None:
    from opbench.store import schema as s

    with store.begin() as connection:
        spec = scripted_spec(filters=filters).model_dump(mode="json")
        connection.execute(s.builds.update().where(s.builds.c.id == build_id).values(spec=spec))


def test_what_people_decided_stays_and_new_candidates_are_compared_to_it(use: None, store: Store) -> None:
    build_id = built(store, *ALL)
    filtered(store, build_id)
    decided = [Ruling("c6", "rejected", "review", "mild"), Ruling("c1", "accepted", "review", "strong")]
    set_states(store, build_id, decided)
    add(store, build_id, candidate(0, "Is marble stone harder than granite?", "fact"))
    told = filtered(store, build_id)
    found = {each.id: (each.state, each.decided_by, each.reason) for each in read_candidates(store, build_id)}
    assert found["c6"] == ("rejected", "review", "mild")
    assert found["c1"] == ("accepted", "review", "strong")
    # It comes first in order, but people have decided on the other one.
    assert found["c0"][:2] == ("dropped", "duplicate")
    assert (told.generated, told.kept) == (12, 5)


def test_a_decision_that_people_make_meanwhile_is_not_lost(
    use: None, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_id = built(store, *ALL)
    filtered(store, build_id)
    change(store, build_id, Filters(fewest_words=7))
    from opbench.construction import filtering

    original = filtering._by_likeness

    def while_comparing(*args: Any) -> Any:
        set_states(store, build_id, [Ruling("c1", "accepted", "review", "strong")])
        return original(*args)

    monkeypatch.setattr(filtering, "_by_likeness", while_comparing)
    filtered(store, build_id)
    assert fates(store, build_id)["c2"] == "length"
    assert {each.id: each.state for each in read_candidates(store, build_id)}["c1"] == "accepted"


def test_a_check_that_fails_leaves_its_question_undecided_with_the_reason_and_is_made_again(
    use: None, store: Store, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_id = built(store, *ALL[:3])
    endpoint.reply = lambda body: "No idea." if NIECE in str(body["messages"]) else reply(body)
    told = filtered(store, build_id)
    assert (told.kept, told.undecided) == (1, 1)
    of = {each.id: each for each in read_candidates(store, build_id)}
    assert (of["c2"].state, of["c2"].decided_by) == ("candidate", None)
    assert of["c2"].reason == "personal: the check failed: the answer isn't JSON"
    unit = read_units(store, build_id)[f"filtering/{OTTILIE}/personal/c2"]
    assert (unit.status, unit.repaired, len(unit.calls)) == ("failed", True, 2)


def test_a_check_whose_call_failed_is_made_by_the_next_start(
    use: None, store: Store, endpoint: ScriptedEndpoint
) -> None:
    build_id = built(store, *ALL[:3])
    endpoint.faults = {"not_found": 1.0}
    with pytest.raises(ModelError):
        filtered(store, build_id)  # the embedder is away too
    endpoint.faults = {}
    filtered(store, build_id)
    assert fates(store, build_id) == {"c1": "kept", "c2": "kept", "c3": "personal"}


def test_a_stop_leaves_the_rest_undecided_and_the_next_start_goes_on(
    use: None, store: Store, endpoint: ScriptedEndpoint
) -> None:
    alphabet = "abcdefghijklmnopqrst"
    questions = [" ".join(letter * n for n in range(3, 9)) + "?" for letter in alphabet]
    many = [candidate(n, text, "fully-irrelevant") for n, text in enumerate(questions)]
    build_id = built(store, *many)
    asked_for = 0

    def stopping(body: dict[str, Any]) -> str:
        nonlocal asked_for
        asked_for += 1
        if asked_for == 3:
            request(store, build_id, "stop")
        return reply(body)

    endpoint.reply, endpoint.latency_s = stopping, 0.3
    told = asyncio.run(run_filters(store, build_id, concurrency=1))
    assert told.kept + told.undecided == 20
    assert 3 <= told.kept < 20
    endpoint.latency_s = 0.0
    assert filtered(store, build_id).kept == 20
    assert chats(endpoint) == 20


def test_vectors_are_asked_for_once(
    use: None, store: Store, monkeypatch: pytest.MonkeyPatch, endpoint: ScriptedEndpoint
) -> None:
    from opbench.models.embeddings import EndpointEmbedder

    calls: list[int] = []
    original = EndpointEmbedder.embed_counted

    async def counted(self: EndpointEmbedder, texts: Any) -> Embedded:
        calls.append(len(texts))
        return await original(self, texts)

    monkeypatch.setattr(EndpointEmbedder, "embed_counted", counted)
    numbered = [candidate(n, f"zebra{n} quagga{n} okapi{n} giraffe{n}?", "fact") for n in range(600)]
    build_id = built(store, *numbered)
    told = filtered(store, build_id)
    assert sum(calls) == 600
    assert told.kept + told.dropped["duplicate"] == 600


def test_a_build_without_candidates_is_told(use: None, store: Store) -> None:
    with pytest.raises(UsageError, match="has no candidate yet"):
        filtered(store, built(store))


def test_the_check_is_asked_for_as_json_of_a_schema(use: None, store: Store, endpoint: ScriptedEndpoint) -> None:
    filtered(store, built(store, ALL[0], ALL[8]))
    schemas: list[Mapping[str, Any]] = [
        schema for body in endpoint.ledger.bodies if "messages" in body and (schema := schema_of(body))
    ]
    assert sorted(list(schema["properties"]) for schema in schemas) == [["line", "verdict"], ["missing", "verdict"]]
    assert all(body["temperature"] == 0 for body in endpoint.ledger.bodies if "messages" in body)
