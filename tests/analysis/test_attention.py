"""Attention by hand: ratios per token, geometric means, layers and heads, shares, paired changes, missing numbers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from opbench.analysis import attention
from opbench.analysis.attention import NO_MEMORY, Readings, Sample, estimates
from opbench.analysis.attention_changes import NOT_PAIRED, changes
from opbench.analysis.intervals import Interval
from opbench.store.attention import AttentionData, Words

SEGMENTS = ("instructions", "memory", "query")


def reading(
    memory: str,
    mitigation: str,
    instance: str,
    tokens: tuple[int, int, int],
    masses: object,
    *,
    user: str | None = None,
    subtype: str = "fact",
    state: str | None = None,
) -> tuple[dict[str, object], tuple[int, int, int], object]:
    """A record and its masses (layers × heads × segments); its user is named after the instance by default."""
    row: dict[str, object] = {
        "model": "m",
        "memory": memory,
        "mitigation": mitigation,
        "instance": instance,
        "user": user or f"user of {instance}",
        "subtype": subtype,
        "state": state,
    }
    return row, tokens, masses


def readings(*made: tuple[dict[str, object], tuple[int, int, int], object]) -> Readings:
    return Readings(
        pd.DataFrame([each[0] for each in made]),
        SEGMENTS,
        np.array([each[1] for each in made], dtype=float),
        np.array([each[2] for each in made], dtype=float),
    )


def flat(instructions: float, memory: float, query: float) -> object:
    """One layer of one head."""
    return [[[instructions, memory, query]]]


def test_the_ratio_is_per_token_and_its_mean_geometric() -> None:
    # First: 0.4 over 20 tokens is 0.02 a token, 0.1 over 10 is 0.01: twice as much. Second: 0.1 over 20 is 0.005,
    # 0.1 over 10 is 0.01: half as much. Twice and half come to 1, where their arithmetic mean would say 1.25.
    both = readings(
        reading("rag", "none", "a", (5, 20, 10), flat(0.5, 0.4, 0.1)),
        reading("rag", "none", "b", (5, 20, 10), flat(0.8, 0.1, 0.1)),
    )
    assert both.ratio() == pytest.approx([2.0, 0.5])
    (row,) = attention.ratios(both).to_dict("records")
    assert row["value"] == pytest.approx(1.0)
    assert (row["n"], row["n_users"], row["read"]) == (2, 2, 2)
    assert math.isnan(row["low"])
    assert math.isnan(row["high"])
    assert row["reason"] == "2 users, an interval needs 5"


def test_five_users_have_an_interval_and_one_that_is_symmetric_in_logarithms() -> None:
    made = readings(
        *(
            reading("rag", "none", f"{n}", (1, 10, 10), flat(1 - 0.1 - 0.1 * 2**power, 0.1 * 2**power, 0.1))
            for n, power in enumerate((0.0, 0.5, 1.0, 1.5, 2.0))
        )
    )
    (row,) = attention.ratios(made).to_dict("records")
    assert row["value"] == pytest.approx(2.0)  # the mean power is 1
    assert row["low"] < 2.0 < row["high"]
    assert row["value"] / row["low"] == pytest.approx(row["high"] / row["value"])
    assert row["reason"] == ""


def test_instances_of_a_user_move_together() -> None:
    # Forty instances of four users are four users: no interval.
    made = readings(
        *(reading("rag", "none", f"{n}", (1, 10, 10), flat(0.5, 0.3, 0.2), user=f"u{n % 4}") for n in range(40))
    )
    (row,) = attention.ratios(made).to_dict("records")
    assert (row["n"], row["n_users"]) == (40, 4)
    assert row["value"] == pytest.approx(1.5)
    assert math.isnan(row["low"])


def test_base_has_no_ratio_but_is_read() -> None:
    base = readings(reading("base", "none", "a", (5, 0, 10), flat(0.7, 0.0, 0.3)))
    assert np.isnan(base.ratio()).all()
    (row,) = attention.ratios(base).to_dict("records")
    assert math.isnan(row["value"])
    assert (row["n"], row["read"], row["reason"]) == (0, 1, NO_MEMORY)
    assert attention.ratios_by_layer(base).empty
    assert attention.shares(base)["segment"].tolist() == ["instructions", "query"]
    assert attention.shares(base)["value"].tolist() == pytest.approx([0.7, 0.3])


def test_a_share_of_nothing_has_no_logarithm() -> None:
    zero = readings(
        reading("rag", "none", "a", (5, 10, 10), flat(0.7, 0.0, 0.3)),
        reading("rag", "none", "b", (5, 10, 10), flat(0.7, 0.2, 0.1)),
    )
    (row,) = attention.ratios(zero).to_dict("records")
    assert (row["value"], row["n"], row["read"]) == (pytest.approx(2.0), 1, 2)


def test_by_task_each_stands_for_itself() -> None:
    made = readings(
        reading("rag", "none", "a", (5, 10, 10), flat(0.4, 0.3, 0.3), subtype="fact"),
        reading("rag", "none", "b", (5, 10, 10), flat(0.6, 0.3, 0.1), subtype="baiting"),
    )
    table = attention.ratios(made, ("subtype",)).set_index("subtype")["value"]
    assert table["fact"] == pytest.approx(1.0)
    assert table["baiting"] == pytest.approx(3.0)


def test_layers_average_heads_before_the_ratio_and_heads_stand_alone() -> None:
    # Layer 1: heads with memory 0.1 and 0.5, query 0.1 and 0.1; memory and query of 10 tokens each. Heads: 1 and 5.
    # Their layer: mean 0.3 against 0.1, a ratio of 3 (and not the mean of the logarithms, 2.24). Layer 2: both 0.5.
    masses = [[[0.8, 0.1, 0.1], [0.4, 0.5, 0.1]], [[0.4, 0.2, 0.4], [0.4, 0.2, 0.4]]]
    made = readings(reading("rag", "none", "a", (5, 10, 10), masses))
    layers = attention.ratios_by_layer(made)
    assert layers["layer"].tolist() == [1, 2]
    assert layers["value"].tolist() == pytest.approx([3.0, 0.5])
    heads = attention.ratios_by_head(made)
    assert heads[["layer", "head"]].to_numpy().tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    assert heads["ratio"].tolist() == pytest.approx([1.0, 5.0, 0.5, 0.5])
    assert heads["n"].tolist() == [1, 1, 1, 1]
    # Over all: memory (0.1 + 0.5 + 0.2 + 0.2) / 4 = 0.25, query (0.1 + 0.1 + 0.4 + 0.4) / 4 = 0.25.
    assert made.ratio() == pytest.approx([1.0])


def test_a_head_averages_the_records_that_have_a_ratio() -> None:
    made = readings(
        reading("rag", "none", "a", (5, 10, 10), flat(0.5, 0.4, 0.1)),
        reading("rag", "none", "b", (5, 10, 10), flat(0.89, 0.1, 0.01)),
        reading("base", "none", "a", (5, 0, 10), flat(0.9, 0.0, 0.1)),
    )
    (row,) = attention.ratios_by_head(made).to_dict("records")
    assert row["ratio"] == pytest.approx(math.sqrt(4.0 * 10.0))
    assert row["n"] == 2


def test_shares_count_a_prompt_without_memory_as_none() -> None:
    # The filter kept nothing of b: its memory has a share of 0, which is true.
    made = readings(
        reading("rag", "reminder", "a", (5, 10, 10), flat(0.3, 0.4, 0.3), state="kept"),
        reading("rag", "reminder", "b", (5, 0, 10), flat(0.5, 0.0, 0.5), state="nothing"),
    )
    table = attention.shares(made).set_index("segment")
    assert table["value"].to_dict() == pytest.approx({"instructions": 0.4, "memory": 0.2, "query": 0.4})
    assert table["tokens"].to_dict() == {"instructions": 5, "memory": 5, "query": 10}
    assert table["n"].tolist() == [2, 2, 2]


def test_where_a_post_processor_failed_can_be_left_out() -> None:
    made = readings(
        reading("rag", "reminder", "a", (5, 10, 10), flat(0.3, 0.4, 0.3), state="kept"),
        reading("rag", "reminder", "b", (5, 10, 10), flat(0.3, 0.4, 0.3), state="failed"),
        reading("rag", "none", "b", (5, 10, 10), flat(0.3, 0.4, 0.3)),
    )
    assert made.unfailed().records["instance"].tolist() == ["a", "b"]
    assert made.unfailed().records["mitigation"].tolist() == ["reminder", "none"]
    assert len(made.unfailed().masses) == len(made.unfailed().tokens) == 2
    counted = attention.ratios(made).set_index("mitigation")["failed"]
    assert counted["reminder"] == 1
    assert math.isnan(counted["none"])


def test_memory_against_base_is_paired_by_instance() -> None:
    # a: the query has 0.5 of the attention without memory and 0.2 with: 30 points less, 0.4 times as much a token.
    # b: 0.4 and 0.4 × 0.4: the same factor. c was read of RAG alone.
    made = readings(
        reading("base", "none", "a", (5, 0, 10), flat(0.5, 0.0, 0.5)),
        reading("base", "none", "b", (5, 0, 20), flat(0.6, 0.0, 0.4)),
        reading("rag", "none", "b", (5, 10, 20), flat(0.44, 0.4, 0.16)),
        reading("rag", "none", "a", (5, 10, 10), flat(0.4, 0.4, 0.2)),
        reading("rag", "none", "c", (5, 10, 10), flat(0.1, 0.0, 0.9)),
    )
    table = changes(made)
    assert table["kind"].unique().tolist() == ["memory"]
    assert table["measure"].tolist() == ["query per token", "query share"]
    assert table["value"].tolist() == pytest.approx([0.4, -0.27])
    assert table["n"].tolist() == [2, 2]
    assert table["factor"].tolist() == [True, False]
    assert table["before_memory"].unique().tolist() == ["base"]
    assert table["reason"].unique().tolist() == ["2 users, an interval needs 5"]


def test_a_post_processor_stands_against_none_and_found_memories_against_drawn_ones() -> None:
    made = readings(
        reading("rag", "none", "a", (5, 10, 10), flat(0.5, 0.4, 0.1)),
        reading("rag", "few-shot-cot", "a", (5, 10, 10), flat(0.4, 0.4, 0.2), state="kept"),
        reading("random", "none", "a", (5, 10, 10), flat(0.8, 0.1, 0.1)),
    )
    table = changes(made).set_index(["kind", "measure"])
    mitigation = table.loc["mitigation"]
    assert mitigation["value"].to_dict() == pytest.approx({"ratio": 0.5, "memory share": 0.0, "query share": 0.1})
    assert mitigation["before_mitigation"].unique().tolist() == ["none"]
    found = table.loc["random"]
    assert found["value"].to_dict() == pytest.approx({"ratio": 4.0, "query per token": 1.0, "query share": 0.0})
    assert found["memory"].unique().tolist() == ["rag"]
    assert found["before_memory"].unique().tolist() == ["random"]


def test_changes_of_one_kind_and_measure_are_corrected_together_and_the_control_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    methods = ("none", "reminder", "marag", "few-shot-cot")
    made = readings(
        *(
            reading(memory, method, "a", (5, 10, 10), flat(0.4, 0.4, 0.2))
            for memory in ("rag", "random")
            for method in methods
        )
    )
    # In the order of the rows: rag against random (3 measures), then three measures of each of three methods, twice.
    chances = iter([0.5, 0.5, 0.5, *[0.01, 0.5, 0.5], *[0.04, 0.5, 0.5], *[0.02, 0.5, 0.5], *[0.03, 0.5, 0.5] * 3])
    monkeypatch.setattr(
        attention, "intervals", lambda questions: [Interval(0.1, 0.2, next(chances), 9) for _ in questions]
    )
    table = changes(made)
    ratio = table[(table["kind"] == "mitigation") & (table["measure"] == "ratio")]
    # Three of RAG: 0.01 · 3, 0.04 · 1 (at least 0.02 · 2), 0.02 · 2; three of random memories: 0.03 · 3.
    assert ratio["p_holm"].tolist() == pytest.approx([0.03, 0.04, 0.04, 0.09, 0.09, 0.09])
    assert ratio["tests"].tolist() == [3] * 6
    assert table.loc[table["kind"] == "random", "p_holm"].tolist() == [0.5, 0.5, 0.5]


def test_sides_that_share_nothing_say_so() -> None:
    made = readings(
        reading("base", "none", "a", (5, 0, 10), flat(0.5, 0.0, 0.5)),
        reading("rag", "none", "b", (5, 10, 10), flat(0.4, 0.4, 0.2)),
    )
    table = changes(made)
    assert table["n"].tolist() == [0, 0]
    assert table["value"].isna().all()
    assert table["reason"].unique().tolist() == [NOT_PAIRED]


def test_one_configuration_alone_has_no_changes() -> None:
    assert changes(readings(reading("rag", "none", "a", (5, 10, 10), flat(0.5, 0.4, 0.1)))).empty


def test_a_token_gets_so_many_times_the_even_share() -> None:
    # Of four tokens each would get 0.15 of 0.6.
    segments, texts = ("memory", "memory", "query", "query"), ("tea", " lover", "why", "?")
    table = attention.token_weights(Words(segments, texts, np.array([0.3, 0.15, 0.15, 0.0])))
    assert table["times"].tolist() == pytest.approx([2.0, 1.0, 1.0, 0.0])
    assert table["text"].tolist() == list(texts)
    assert table["token"].tolist() == [1, 2, 3, 4]


def test_a_sign_of_several_tokens_is_one_and_gets_their_mean() -> None:
    # Tokens 2 to 4 are one sign: together 0.6 of 1, each 0.2 on average, where an even share of five is 0.2 too.
    words = Words(("memory",) * 4 + ("query",), ("a", "猫", "", "", "b"), np.array([0.3, 0.3, 0.2, 0.1, 0.1]))
    table = attention.token_weights(words)
    assert table["text"].tolist() == ["a", "猫", "b"]
    assert table["token"].tolist() == [1, 2, 5]
    assert table["tokens"].tolist() == [1, 3, 1]
    assert table["weight"].tolist() == pytest.approx([0.3, 0.6, 0.1])
    assert table["times"].tolist() == pytest.approx([1.5, 1.0, 0.5])


def test_without_texts_there_is_nothing_to_show() -> None:
    with pytest.raises(ValueError, match="weren't kept"):
        attention.token_weights(Words((), None, np.array([0.5])))


def test_what_is_stored_is_read_over_the_response_or_at_its_onset() -> None:
    over, onset = (np.array([flat(0.5, 0.3, each)]) for each in (0.1, 0.3))
    rows = pd.DataFrame([reading("rag", "none", "a", (1, 10, 10), None)[0]])
    data = AttentionData("r", "m@0/v1", rows, np.array([[1.0, 10.0, 10.0]]), over, onset, SEGMENTS)
    assert Readings.of(data).ratio() == pytest.approx([3.0])
    assert Readings.of(data, "onset").ratio() == pytest.approx([1.0])


def test_numbers_that_arent_logarithms_stay_as_they_are() -> None:
    (row,) = estimates(
        [Sample(np.array([0.25, np.nan, 0.75]), np.array(["a", "b", "c"], dtype=object), log=False)]
    ).to_dict("records")
    assert (row["value"], row["n"], row["n_users"]) == (0.5, 2, 2)


@pytest.mark.parametrize(
    ("segments", "shape", "message"),
    [
        (("memory", "query"), (2, 1, 1, 2), "masses are of 2 records"),
        (("memory", "rest"), (1, 1, 1, 2), "no segment 'query'"),
        (("memory", "query"), (1, 1, 2), "four axes"),
    ],
)
def test_arrays_that_dont_fit_are_refused(segments: tuple[str, ...], shape: tuple[int, ...], message: str) -> None:
    rows = pd.DataFrame([reading("rag", "none", "a", (1, 1, 1), None)[0]])
    with pytest.raises(ValueError, match=message):
        Readings(rows, segments, np.ones((1, 2)), np.ones(shape))
