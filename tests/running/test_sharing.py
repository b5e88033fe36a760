"""What a quote says that a driver makes which shares nothing, and by which causes we make less: worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opbench.running.plan import DONE, FAILED, MISSING, Jobs
from opbench.running.prepare import Prepared, prepare
from opbench.running.quote import Quote, quote
from opbench.running.sharing import Sharing
from opbench.settings import settings
from opbench.store.database import open_store
from opbench.study import Configuration, Study
from opbench.types import Instance, User
from tests.running.study import use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

ANA, BEN = User("sample-1", "Ottilie", "Corvin", True), User("sample-1", "Corvin", "Ottilie", False)
INSTANCES = [
    Instance("op/a/fact/1", "op", ANA, "fact", "Is glass a liquid?"),
    Instance("op/b/fact/1", "op", BEN, "fact", "Is glass a liquid?"),
    Instance("op/a/repetition/1", "op", ANA, "repetition", "What shall I read?"),
    Instance("locomo/a/1", "locomo", ANA, "single-hop", "Who plays?", "Ambrus"),
    Instance("locomo/a/2", "locomo", ANA, "single-hop", "Who plays?", "Ambrus"),
]


@pytest.fixture
def prepared(home: Path) -> Prepared:
    return _prepared(home)


def _prepared(home: Path, **fields: object) -> Prepared:
    with ScriptedEndpoint() as endpoint:
        use_endpoint(home, endpoint)
    study = {
        "models": ("scripted",),
        "memories": ("base", "rag"),
        "mitigations": ("none", "reminder", "self-critic", "empty"),
        "judge": "scripted",
        "judge_pack": "own",
        "embedder": "scripted",
        "data": "sample",
    }
    return replace(prepare(Study.model_validate(study | fields)), instances=INSTANCES)


def _quote(prepared: Prepared) -> Quote:
    return quote(open_store(settings().store_url), prepared, concurrency=4)


def test_a_quote_tells_why_there_are_fewer_calls(prepared: Prepared) -> None:
    found = _quote(prepared)
    # One call for the response, one for Reminder's or Self-Critic's own; four of the five are judged. BASE is done
    # under all four post-processors.
    records = {"base": 5 + 4, "none": 5 + 4, "reminder": 10 + 4, "self-critic": 10 + 4, "empty": 5 + 4}
    assert found.calls_naive == sum(records.values()) + 3 * (5 + 4) == 82
    made = {
        # The same question to no memory is the same call, whoever asks; a judge may be told of the user.
        "base": 3 + 3,
        # LoCoMo's question is asked twice.
        "none": 4 + 3,
        "reminder": 4 + 4 + 3,
        # Its draft is the response of `none`, its revision isn't.
        "self-critic": 4 + 0 + 3,
        # Response and judgement of BASE.
        "empty": 0 + 0,
    }
    assert found.calls == sum(made.values()) == 31
    # base: three more of BASE. equal: 2 of BASE, 1 of none, 2 of reminder, 2 of self-critic, 2 of empty.
    # plain: 4 drafts and 3 emptied. judged: LoCoMo's second in four configurations, and all four of empty.
    assert {each.cause: each.calls for each in found.saved} == {"base": 27, "equal": 9, "plain": 7, "judged": 8}
    assert sum(each.calls for each in found.saved) == found.calls_naive - found.calls
    assert (found.retrievals_naive, found.retrievals) == (4 * 5, 4)
    assert Quote.from_dict(found.to_dict()) == found


def test_retrievals_serve_all_models_and_responses_one(home: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        use_endpoint(home, endpoint)
        text = Path(home / "models.toml").read_text()
    (home / "models.toml").write_text(text + text.split("[embedders")[0].replace('"scripted"', '"other"', 1))
    study = Study(
        models=("scripted", "other"), memories=("rag",), mitigations=("none",), embedder="scripted", data="sample"
    )
    found = _quote(replace(prepare(study), instances=INSTANCES))
    assert (found.retrievals_naive, found.retrievals) == (2 * 5, 4)
    assert (found.calls_naive, found.calls) == (2 * 5, 2 * 4)


def test_a_latency_probe_shares_nothing_but_base(home: Path) -> None:
    found = _quote(_prepared(home, latency_probe=True))
    assert {each.cause: each.calls for each in found.saved} == {"base": 27}
    assert found.calls == 55
    assert (found.retrievals_naive, found.retrievals) == (4 * 5, 4 * 5)


def test_what_the_runs_records_have_asked_is_there(prepared: Prepared) -> None:
    base, plain = (Configuration("scripted", memory, "none") for memory in ("base", "rag"))
    critic = Configuration("scripted", "rag", "self-critic")
    ids = {base: 1, plain: 2, critic: 3}
    states = np.array(
        [
            [DONE, MISSING, MISSING, DONE, MISSING],
            [DONE, FAILED, MISSING, MISSING, MISSING],
            [MISSING] * 5,
        ],
        dtype=np.uint8,
    )
    sharing = Sharing(prepared, Jobs(ids, INSTANCES, states))
    # Of BASE: Ben's question was asked for Ana, LoCoMo's second is its first.
    found = sharing.responses(base, states[0] == MISSING)
    assert (found.new.tolist(), found.equal, found.shared) == ([2], 0, 2)
    # With memories only Ana's own record counts, and an error left nothing behind.
    found = sharing.responses(plain, states[1] < DONE)
    assert (found.new.tolist(), found.equal, found.shared) == ([1, 2, 3], 1, 0)
    # All drafts are known by now.
    found = sharing.responses(critic, states[2] == MISSING)
    assert (found.new.tolist(), found.equal, found.shared) == ([], 1, 4)
    # One search was made for a record that is done, the one for LoCoMo's question serves two.
    found = sharing.retrievals(plain, states[1] < DONE)
    assert (found.new.tolist(), found.equal, found.shared) == ([1, 2, 3], 1, 0)
