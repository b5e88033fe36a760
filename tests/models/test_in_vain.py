"""When asking on makes no sense."""

from __future__ import annotations

from opbench.errors import ModelError, ModelErrorKind
from opbench.models.in_vain import InVain


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def fail(watch: InVain, kind: ModelErrorKind, times: int = 1, who: str = "m") -> None:
    for _ in range(times):
        watch.failed(who, ModelError(f"{who}: said {kind}.", kind=kind, model=who, attempts=1))


def test_twenty_refusals_in_a_row_are_enough() -> None:
    for kind in ("auth", "quota", "not_found"):
        watch = InVain(Clock())
        fail(watch, kind, 19)
        assert watch.reasons() == {}
        fail(watch, kind)
        assert watch.reasons() == {"m": f"20 calls failed in a row. m: said {kind}."}


def test_an_answer_begins_the_count_anew() -> None:
    watch = InVain(Clock())
    fail(watch, "auth", 19)
    watch.answered("m")
    fail(watch, "auth", 19)
    assert watch.reasons() == {}


def test_a_prompt_that_is_refused_for_itself_says_that_somebody_is_there() -> None:
    for kind in ("too_long", "content_filter", "bad_request"):
        watch = InVain(Clock())
        fail(watch, "quota", 19)
        fail(watch, kind, 30)
        fail(watch, "quota", 19)
        assert watch.reasons() == {}


def test_what_may_pass_is_waited_for_ten_minutes() -> None:
    clock = Clock()
    watch = InVain(clock)
    fail(watch, "connection", 500)
    clock.now += 599
    assert watch.reasons() == {}
    clock.now += 1
    assert watch.reasons() == {"m": "500 calls failed and none was answered for 10 minutes. m: said connection."}


def test_few_calls_prove_nothing_however_long_they_take() -> None:
    clock = Clock()
    watch = InVain(clock)
    fail(watch, "timeout", 19)
    clock.now += 3600
    assert watch.reasons() == {}


def test_models_are_counted_by_themselves() -> None:
    watch = InVain(Clock())
    fail(watch, "auth", 19, "a")
    fail(watch, "auth", 19, "b")
    watch.answered("a")
    assert watch.reasons() == {}
    fail(watch, "auth", 1, "b")
    assert watch.reasons() == {"b": "20 calls failed in a row. b: said auth."}
