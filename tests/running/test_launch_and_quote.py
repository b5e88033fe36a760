"""The quote before a study, the detached process that runs it, and the command that does the same."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opbench.commands.run import _study
from opbench.errors import UsageError
from opbench.running.launch import command, launch, study_toml
from opbench.running.prepare import prepare
from opbench.running.quote import quote
from opbench.settings import settings
from opbench.store.database import open_store
from opbench.store.reading import run_status
from opbench.store.writing import set_request
from opbench.study import Study, make_study, read_study
from tests.running.study import PLANNED, STUDY, hold, reply, run_here, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

#: Two heartbeats: by then a request has reached the worker.
_SEEN_S = 4.0


async def test_a_quote_counts_what_is_shared_and_what_is_done(home: Path) -> None:
    store = open_store(settings().store_url)
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        prepared = prepare(Study(**STUDY))
        before = quote(store, prepared, concurrency=4)
        await prepared.aclose()
        assert endpoint.ledger.total == 0
        # 14 + 14 instances; of OP-Bench's 14, those of repetition are not judged by a model.
        repetition = sum(instance.subtype == "repetition" for instance in prepared.instances)
        judged = 28 - repetition
        # Naive: BASE 1 under each of three post-processors, rag 1, reminder 2, self-critic 2 calls an instance, and a
        # judge call for each response.
        assert before.calls_naive == 28 * 8 + 6 * judged
        # BASE is done once, and Self-Critic's draft is the plain response: one call an instance less.
        assert {each.cause: each.calls for each in before.saved} == {"base": 2 * (28 + judged), "plain": 28}
        assert before.calls == 28 * 5 + 4 * judged
        # Of rag's three configurations; the sample asks no user the same twice.
        assert (before.retrievals_naive, before.retrievals) == (3 * 28, 28)
        assert (before.planned, before.finished, before.to_do) == (PLANNED, 0, PLANNED)
        # Prices of the scripted model: 1 and 2 dollars per million tokens.
        expected = (before.prompt_tokens * 1.0 + before.completion_tokens * 2.0) / 1e6
        assert before.cost_usd == pytest.approx(expected, rel=0.02)

        await run_here(store)
        prepared = prepare(Study(**STUDY))
        after = quote(store, prepared, concurrency=4)
        await prepared.aclose()
        assert (after.to_do, after.calls, after.cost_usd) == (0, 0, 0.0)
        assert "nothing left to do" in after.basis


def test_launched_runs_go_on_by_themselves_pause_and_end(home: Path) -> None:
    with ScriptedEndpoint(reply=reply, latency_s=0.02) as endpoint:
        use_endpoint(home, endpoint, timeout_s=60)
        hold(endpoint)
        store = open_store(settings().store_url)
        launched = launch(store, Study(**STUDY, name="from a page"), concurrency=4)
        _until(lambda: run_status(store, launched.run_id).done > 3)
        assert run_status(store, launched.run_id).working
        set_request(store, launched.run_id, "pause")
        time.sleep(_SEEN_S)
        endpoint.held = None
        _until(lambda: _steady(lambda: run_status(store, launched.run_id).done))
        paused = run_status(store, launched.run_id)
        assert paused.working
        assert paused.done < PLANNED
        set_request(store, launched.run_id, "go")
        _until(lambda: run_status(store, launched.run_id).complete)
        _until(lambda: not run_status(store, launched.run_id).working)
        assert run_status(store, launched.run_id).name == "from a page"


def test_a_paused_run_can_be_interrupted(home: Path) -> None:
    with ScriptedEndpoint(reply=reply, latency_s=0.02) as endpoint:
        use_endpoint(home, endpoint, timeout_s=60)
        hold(endpoint)
        store = open_store(settings().store_url)
        launched = launch(store, Study(**STUDY), concurrency=2)
        _until(lambda: run_status(store, launched.run_id).done > 3)
        set_request(store, launched.run_id, "pause")
        time.sleep(_SEEN_S)
        endpoint.held = None
        _until(lambda: _steady(lambda: run_status(store, launched.run_id).done))
        os.kill(launched.pid, signal.SIGINT)
        _until(lambda: not run_status(store, launched.run_id).working, seconds=10)


def test_a_stopped_run_goes_on_when_it_is_launched_again(home: Path) -> None:
    with ScriptedEndpoint(reply=reply, latency_s=0.02) as endpoint:
        use_endpoint(home, endpoint, timeout_s=60)
        hold(endpoint)
        store = open_store(settings().store_url)
        launched = launch(store, Study(**STUDY), concurrency=2)
        _until(lambda: run_status(store, launched.run_id).done > 3)
        set_request(store, launched.run_id, "stop")
        time.sleep(_SEEN_S)
        endpoint.held = None
        _until(lambda: not run_status(store, launched.run_id).working)
        stopped = run_status(store, launched.run_id)
        assert not stopped.working
        assert 3 < stopped.done < PLANNED
        again = launch(store, Study(**STUDY), concurrency=8)
        assert again.run_id == launched.run_id
        _until(lambda: run_status(store, launched.run_id).complete)


def test_a_killed_run_is_seen_as_dead_and_can_be_launched_again(home: Path) -> None:
    with ScriptedEndpoint(reply=reply, latency_s=0.02) as endpoint:
        use_endpoint(home, endpoint, timeout_s=60)
        hold(endpoint)
        store = open_store(settings().store_url)
        launched = launch(store, Study(**STUDY), concurrency=2)
        _until(lambda: run_status(store, launched.run_id).done > 3)
        os.kill(launched.pid, signal.SIGKILL)
        endpoint.held = None
        _until(lambda: not run_status(store, launched.run_id).working, seconds=5)
        launch(store, Study(**STUDY), concurrency=8)
        _until(lambda: run_status(store, launched.run_id).complete)


def test_two_that_start_at_once_are_one_run(home: Path) -> None:
    """Two browsers press Start: one starts, the other is told, and the run isn't refused to both."""
    with ScriptedEndpoint(reply=reply, latency_s=0.02) as endpoint:
        use_endpoint(home, endpoint)
        store = open_store(settings().store_url)
        ready = threading.Barrier(2)

        def press(_: int) -> str:
            ready.wait()
            try:
                return launch(store, Study(**STUDY), concurrency=4).run_id
            except UsageError as error:
                return str(error)

        with ThreadPoolExecutor(2) as browsers:
            told = sorted(browsers.map(press, range(2)), key=len)
        assert "is being worked on already" in told[1], told
        _until(lambda: run_status(store, told[0]).complete)
        assert run_status(store, told[0]).done == PLANNED


def test_a_home_that_cannot_be_written_is_a_sentence(home: Path) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        store = open_store(settings().store_url)
        (home / "studies").write_text("a file where the folder should be")
        with pytest.raises(UsageError, match=r"studies: can't be written \(.*\).*OPBENCH_HOME"):
            launch(store, Study(**STUDY), concurrency=4)


def test_a_study_that_cannot_run_starts_nothing(home: Path) -> None:
    store = open_store(settings().store_url)
    with pytest.raises(UsageError, match="no memory system"):
        launch(store, Study(models=("smollm2-135m",), memories=("raag",), data="sample"))
    assert not (home / "studies").exists()


@pytest.mark.parametrize(
    "study",
    [
        Study(models=("a", "b"), mitigations=("none", "reminder"), limit=5, name='two "words"', judge="x"),
        Study(models=("a",), users=("c-1/Ana",), adversarial=True, latency_probe=True, temperature=0.5, k=3),
        Study(models=("a",), subtypes=("fact", "temporal"), max_tokens=64, judge_pack="own", data="sample", seed=7),
    ],
)
def test_the_command_and_the_file_mean_the_same_study(study: Study, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(study_toml(study))
    assert read_study(file) == study
    words = shlex.split(command(study))
    assert words[:2] == ["opbench", "run"]
    assert _parsed(words[2:]) == study


def _parsed(flags: list[str]) -> Study:
    """The study that `opbench run` makes of flags, through the very command line."""
    from typer.testing import CliRunner

    from opbench import cli
    from opbench.commands import run

    seen: list[Study] = []
    original = run._study

    def spy(file: Path | None, given: dict[str, object]) -> Study:
        seen.append(original(file, given))
        raise UsageError("seen")

    run._study = spy
    try:
        CliRunner().invoke(cli.app, ["run", *flags])
    finally:
        run._study = original
    return seen[0]


def test_flags_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('models = ["a"]\nlimit = 5\n')
    study = _study(file, {"limit": 7, "seed": 1})
    assert (study.models, study.limit, study.seed) == (("a",), 7, 1)


def test_the_order_of_names_is_no_other_study() -> None:
    one = make_study({"models": ["a", "b"], "mitigations": ["none", "reminder", "none"]})
    two = make_study({"models": ["b", "a"], "mitigations": ["reminder", "none"], "name": "other"})
    assert one.identity() == two.identity()


def _until(done: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


def _steady(value: object) -> bool:
    first = value()  # type: ignore[operator]
    time.sleep(2.5)
    return bool(first == value())  # type: ignore[operator]
