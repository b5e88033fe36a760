"""Words with and without memory: counts, log odds and variances worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.analysis.language import comparisons, paired_responses, paper_words, tone, word_table
from opbench.analysis.log_odds import delta_intervals
from opbench.analysis.tokens import clauses, ngrams
from opbench.store.rundata import RunData
from tests.analysis.conftest import BASE, MARAG, RAG, REMINDER, MakeRun

RANDOM = ("m", "random", "none")


def texts_of(
    with_: Mapping[str, str],
    without: Mapping[str, str],
    users: Mapping[str, str] | None = None,
    memories: Mapping[str, Sequence[str]] | None = None,
    questions: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Responses by instance, of rag and of BASE; each instance is a user's own unless told otherwise."""
    rows: list[dict[str, Any]] = []
    for key, responses in ((RAG, with_), (BASE, without)):
        for instance, response in responses.items():
            held = [{"text": text, "date": None, "score": None} for text in (memories or {}).get(instance, ())]
            rows.append(
                {
                    "model": key[0],
                    "memory": key[1],
                    "mitigation": key[2],
                    "instance": instance,
                    "user": (users or {}).get(instance, instance),
                    "subtype": "fact",
                    "question": (questions or {}).get(instance, ""),
                    "response": response,
                    "retrieved": None if key == BASE else held,
                    "context": None,
                }
            )
    return pd.DataFrame(rows)


def row_of(table: pd.DataFrame, word: str) -> dict[Any, Any]:
    rows = table[table["word"] == word].to_dict("records")
    assert len(rows) == 1, word
    return dict(rows[0])


#: a, b, c: 6, 3, 1 times with memory, 2, 3, 5 without.
HAND = texts_of({"i": "a a a a a a b b b c"}, {"i": "a a b b b c c c c c"})


def test_log_odds_and_variances_of_three_words_worked_out_by_hand() -> None:
    # Of 20 words a is 8, b and c are 6: with alpha0 = 10 the prior gives them 4, 3 and 3.
    table = word_table(HAND, RAG, BASE, orders=(1,), minimum=1, alpha0=10.0)
    assert table["word"].tolist() == ["a", "b", "c"], "most typical of memory first"
    a, b, c = (row_of(table, word) for word in "abc")
    # a: (6 + 4) / (20 − 10) against (2 + 4) / (20 − 6).
    assert a["delta"] == pytest.approx(math.log(10 / 10) - math.log(6 / 14))
    assert a["variance"] == pytest.approx(1 / 10 + 1 / 6)
    assert a["z"] == pytest.approx(math.log(14 / 6) / math.sqrt(1 / 10 + 1 / 6))
    assert b["delta"] == pytest.approx(0.0)
    # c: (1 + 3) / (20 − 4) against (5 + 3) / (20 − 8).
    assert c["delta"] == pytest.approx(math.log(4 / 16) - math.log(8 / 12))
    assert c["variance"] == pytest.approx(1 / 4 + 1 / 8)
    assert c["analytic_low"] == pytest.approx(c["delta"] - 1.959964 * math.sqrt(3 / 8))
    assert (a["count_with"], a["count_without"]) == (6, 2)
    assert (a["per_1000_with"], a["per_1000_without"]) == (600.0, 200.0)


def test_one_user_has_the_analytic_interval_only() -> None:
    row = row_of(word_table(HAND, RAG, BASE, orders=(1,), minimum=1), "a")
    assert math.isnan(row["low"])
    assert math.isnan(row["p"])
    assert math.isnan(row["p_adjusted"])
    assert row["reason"] == "1 user has it, an interval needs 5"
    assert not math.isnan(row["analytic_high"])


def test_pairs_of_words_are_held_against_pairs() -> None:
    # With: "a b" twice and "b a" once of 3 pairs; without: "a b" once of 1.
    table = word_table(texts_of({"i": "a b a b"}, {"i": "a b"}), RAG, BASE, orders=(2,), minimum=1, alpha0=4.0)
    row = row_of(table, "a b")
    assert (row["count_with"], row["count_without"], row["order"]) == (2, 1, 2)
    # 3 of 4 pairs: prior 3. (2 + 3) / (7 − 5) against (1 + 3) / (5 − 4).
    assert row["delta"] == pytest.approx(math.log(5 / 2) - math.log(4 / 1))


def test_only_instances_that_both_answered_are_counted() -> None:
    texts = texts_of({"i": "warm words", "j": "cold"}, {"i": "warm", "k": "cold cold"})
    assert paired_responses(texts, RAG, BASE) == (1, 1)
    assert set(word_table(texts, RAG, BASE, orders=(1,), minimum=1)["word"]) == {"warm", "words"}


def test_rare_phrases_arent_tested() -> None:
    texts = texts_of({"i": "often often rare"}, {"i": "often often often rare"})
    assert word_table(texts, RAG, BASE, orders=(1,), minimum=3)["word"].tolist() == ["often"]


def test_responses_and_users_with_a_word_are_counted_once_each() -> None:
    texts = texts_of({"i": "so so", "j": "so", "k": "no"}, {"i": "no", "j": "no", "k": "so"}, {"i": "u", "j": "u"})
    row = row_of(word_table(texts, RAG, BASE, orders=(1,), minimum=1), "so")
    assert (row["count_with"], row["responses_with"], row["responses_without"], row["users"]) == (3, 2, 1, 2)


def test_words_from_memories_or_the_question_are_content() -> None:
    texts = texts_of(
        {"i": "Kayaking is truly fun", "j": "kayaking and truly chess"},
        {"i": "plain plain", "j": "plain chess"},
        memories={"i": ["I went kayaking"], "j": ["I bought a kite"]},
        questions={"i": "", "j": "Is chess plain?"},
    )
    table = word_table(texts, RAG, BASE, orders=(1,), minimum=1)
    kayaking, chess, truly, plain = (row_of(table, word) for word in ("kayaking", "chess", "truly", "plain"))
    assert kayaking["from_memories"] == 0.5, "the second response's memories don't hold it"
    assert not kayaking["content"], "half isn't more than half"
    assert chess["from_question"] == 1.0
    assert chess["content"]
    assert (truly["from_memories"], truly["from_question"], truly["content"]) == (0.0, 0.0, False)
    assert plain["from_question"] == pytest.approx(1 / 3), "of BASE's three, which are the more frequent ones"
    assert "chess" not in set(tone(table)["word"])
    assert "truly" in set(tone(table)["word"])


def test_memories_that_base_never_saw_make_none_of_its_words_content() -> None:
    texts = texts_of({"i": "other"}, {"i": "calm calm calm"}, memories={"i": ["calm"]})
    row = row_of(word_table(texts, RAG, BASE, orders=(1,), minimum=1), "calm")
    assert row["from_memories"] == 1.0
    assert not row["content"]


def everybody(with_: str, without: str, n: int = 6) -> pd.DataFrame:
    names = [f"i{place}" for place in range(n)]
    return texts_of(dict.fromkeys(names, with_), dict.fromkeys(names, without))


def test_users_who_all_change_alike_leave_no_spread() -> None:
    row = row_of(word_table(everybody("so so so it is", "it is it is"), RAG, BASE, orders=(1,)), "so")
    assert row["low"] == pytest.approx(row["delta"])
    assert row["high"] == pytest.approx(row["delta"])
    assert row["p"] == pytest.approx(2 / 2**6), "what a sign test over six users can tell"


def test_a_word_of_one_talkative_user_has_no_interval() -> None:
    names = [f"i{place}" for place in range(6)]
    with_ = dict.fromkeys(names, "it is") | {"i0": "really " * 20 + "it is"}
    table = word_table(texts_of(with_, dict.fromkeys(names, "it is")), RAG, BASE, orders=(1,), alpha0=5.0)
    row = row_of(table, "really")
    assert row["analytic_low"] > 0, "taken word by word it would be a finding"
    assert math.isnan(row["low"])
    assert row["reason"] == "1 user has it, an interval needs 5"


def test_the_error_by_users_is_the_change_of_delta_when_a_user_weighs_a_little_more() -> None:
    """Linearised by hand: the derivative of delta by each user's weight, from its formula."""
    from opbench.analysis.log_odds import _Delta

    made = np.random.default_rng(8)
    y1, y2 = (made.poisson(4.0, (7, 1)).astype(float) for _ in range(2))
    n1, n2 = (made.integers(60, 90, 7).astype(float) for _ in range(2))
    prior, alpha0 = np.array([3.0]), 50.0

    def delta(weights: np.ndarray) -> float:
        a, n, b, m = weights @ y1[:, 0], weights @ n1, weights @ y2[:, 0], weights @ n2
        return float(math.log((a + 3) / (n + 50 - a - 3)) - math.log((b + 3) / (m + 50 - b - 3)))

    step = 1e-6
    slopes = np.array([(delta(np.ones(7) + step * np.eye(7)[u]) - delta(np.ones(7))) / step for u in range(7)])
    wanted = math.sqrt(7 / 6 * ((slopes - slopes.mean()) ** 2).sum())
    value, error = _Delta(y1, y2, n1, n2, prior, alpha0)(np.ones((1, 7)))
    assert value[0, 0] == pytest.approx(delta(np.ones(7)))
    assert error[0, 0] == pytest.approx(wanted, rel=1e-4)
    told = delta_intervals(y1, y2, n1, n2, prior, alpha0)[0]
    assert told.low < value[0, 0] < told.high


def test_p_is_adjusted_over_all_phrases_that_were_tested() -> None:
    # All six users change all three words alike, so each has the least p that six users can tell: 2 / 2^6.
    table = word_table(everybody("so so so well well it it", "it it"), RAG, BASE, orders=(1,))
    assert table["p"].tolist() == [pytest.approx(0.03125)] * 3
    # Benjamini and Hochberg: the largest of three is adjusted by 3 / 3, and no smaller one exceeds it.
    assert table["p_adjusted"].tolist() == [pytest.approx(0.03125)] * 3
    made = np.random.default_rng(2)
    names = [f"i{place}" for place in range(9)]
    with_, without = (
        {name: " ".join(made.choice(["so", "well", "it", "then"], 40, p=shares)) for name in names}
        for shares in ([0.4, 0.3, 0.2, 0.1], [0.2, 0.3, 0.2, 0.3])
    )
    table = word_table(texts_of(with_, without), RAG, BASE, orders=(1,)).sort_values("p")
    p = table["p"].to_numpy()
    by_hand = [min(p[rank] * 4 / (rank + 1) for rank in range(first, 4)) for first in range(4)]
    assert table["p_adjusted"].tolist() == pytest.approx(by_hand)
    assert p[0] < 0.01


def test_the_papers_words_have_rows_however_rare() -> None:
    table = paper_words(everybody("it might be", "it is"), RAG, BASE)
    assert table["word"].tolist() == ["really", "might", "especially"]
    assert table["reason"].tolist() == ["it stands in no response", "", "it stands in no response"]
    assert table["delta"].isna().tolist() == [True, False, True]
    assert table["count_with"].tolist() == [0, 6, 0]
    assert table["p_adjusted"][1] == pytest.approx(table["p"][1]), "Holm's over the one that can be tested"


def test_nothing_in_common_gives_an_empty_table() -> None:
    texts = texts_of({"i": "a"}, {"j": "b"})
    assert len(word_table(texts, RAG, BASE)) == 0
    assert paper_words(texts, RAG, BASE)["reason"].tolist() == ["it stands in no response"] * 3


def test_a_side_of_one_word_only_has_no_odds() -> None:
    assert math.isnan(row_of(word_table(everybody("a", "a"), RAG, BASE, orders=(1,)), "a")["delta"])


def test_configurations_are_held_against_base_their_own_without_post_processor_and_random_memories(
    run: RunData, changed: MakeRun
) -> None:
    assert comparisons(run) == [(RAG, BASE), (REMINDER, BASE), (REMINDER, RAG), (MARAG, BASE), (MARAG, RAG)]
    rows = [*run.configurations.itertuples(index=False, name=None), RANDOM]
    more = changed(configurations=pd.DataFrame(rows, columns=run.configurations.columns))
    assert (RAG, RANDOM) in comparisons(more)
    assert (RANDOM, BASE) in comparisons(more)
    assert (RANDOM, RANDOM) not in comparisons(more)


def test_phrases_go_over_commas_and_not_over_the_ends_of_sentences_lines_and_lists() -> None:
    text = "1. **Really**, I don’t know: it's 3.5 km.\n- Nice — yes! (Maybe)\n2) well-being"
    assert clauses(text) == [
        ["really", "i", "don't", "know"],
        ["it's", "3.5", "km"],
        ["nice"],
        ["yes"],
        ["maybe"],
        ["well-being"],
    ]
    assert ngrams("No. No, no!", 2) == {"no no": 1}
    assert ngrams("one two", 3) == {}


def test_against_another_memory_system_each_side_has_the_memories_that_it_saw() -> None:
    found = texts_of(
        {"i": "boats boats boats boats boats"},
        {"i": "trains trains trains trains trains"},
        memories={"i": ["She likes boats."]},
    )
    other = found["memory"] == "base"
    found.loc[other, "memory"] = "random"
    found.loc[other, "retrieved"] = pd.Series([[{"text": "He takes trains.", "date": None, "score": None}]]).to_numpy()
    table = word_table(found, RAG, RANDOM, orders=[1])
    for word in ("boats", "trains"):
        row = row_of(table, word)
        assert (row["from_memories"], row["content"]) == (1.0, True), word
    # BASE saw none: what it says by itself is its own tone, though it stands in the other side's memories.
    base = texts_of({"i": "b"}, {"i": "boats boats boats boats boats"}, memories={"i": ["She likes boats."]})
    row = row_of(word_table(base, RAG, BASE, orders=[1]), "boats")
    assert (row["from_memories"], row["content"]) == (1.0, False)
