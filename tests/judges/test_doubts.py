"""Replies that hold a number or the word "correct" without giving it as the score or the verdict.

Every case was reasoned by hand. Beside each kind stand replies that look alike and are clear, so that doubt costs
nothing where there is none.
"""

from __future__ import annotations

import time

import pytest

from opbench.judges.parsing import parse_score, parse_verdict

NO_VERDICT = [
    "The answer cannot be considered correct.",
    "I don't think this answer is correct.",
    "It does not appear to be correct.",
    "It can't be correct.",
    "far from correct",
    "The answer is far from correct.",
    "hardly correct",
    "The answer is hardly correct.",
    "The answer fails to be correct.",
    "fails to be correct",
    "Correct? No. The gold says Rome.",
    "The gold answer is correct; the generated one names another city.",
    "The date is correct, but the place is missing.",
    "That would be correct only if it named Paris",
    '{"label":"WRONG"} … {"label":"CORRECT"}',
    '{"label":"WRONG"}\nOn reflection:\n{"label":"CORRECT"}',
    "The answer cannot be considered CORRECT.",
    "CORRECT? No.",
    "Correct?",
    "CORRECT only if it named Paris",
    "The result is correct, but the place is missing.",
    "The final answer is correct only if Paris is meant.",
    "Evaluation: correct date but missing place.",
    "Result: correct date, wrong place",
    "Label: CORRECT\nActually, it names another day.",
    "Label: CORRECT, if lenient",
    "Label: CORRECT?",
    "Label: CORRECT\n\nWRONG",
    "CORRECT\nWRONG",
    '{"label": "CORRECT", "correct": false}',
    '{"label": "WRONG", "label": "CORRECT"}',
    '{"label": "CORRECT"}\nLabel: WRONG',
    '{"label": "CORRECT"}\nWait, that is not right.',
    "The answer is correct. However, the place is missing.",
    "The answer is correct if Paris is meant.",
    "The answer is correct in month.",
    "The answer isn't wrong",
    "It is neither correct nor helpful.",
    "Is the answer correct?",
    "The answer is correct?",
    "Nobody would call the answer correct.",
    "To be CORRECT it must name Paris.",
    "The gold answer is CORRECT.",
    "It might be correct.",
    "almost correct",
    "Not entirely correct in my view.",
    "The answer lacks the correct year.",
    "The generated answer would be correct if",
    "CORRECT, but the place is missing.",
    "The claim that the answer is correct is false.",
    "The verdict is not clear, correct or not.",
    '{"label": "partially correct", "correct": true}',
    '{"verdict": "unsure", "correct": true}',
    "The answer is correct; the place is not.",
    "No verdict: correct or not",
    "without being correct",
    "The answer is correct. No, it isn't.",
]
VERDICT = [
    ("Label: CORRECT - the extra details don't contradict the gold.", True),
    ("Label: WRONG (doesn't name Paris)", False),
    ("WRONG, but close", False),
    ("Label: WRONG (should be Paris)", False),
    ("CORRECT. Both name the same day, but in other words.", True),
    ("CORRECT because the day is the same", True),
    ("Verdict is: CORRECT", True),
    ('{"label": "CORRECT", "reason": "it', True),
    ('{"x": 1}\nLabel: WRONG', False),
    ('{"label": "WRONG"}\n{"note": "a"}', False),
    ('{"label": "WRONG"}\nLabel: WRONG', False),
    ("The generated answer is correct.", True),
    ("The answer is incorrect because the gold says Rome.", False),
    ("Both say Paris. The answer is correct.", True),
    ("The response names Rome. It should be Paris.\n\n**Verdict:** WRONG", False),
    ("1. Compare: same.\n2. Label: CORRECT", True),
    ("Label: CORRECT.", True),
    ("Label - CORRECT", None),
    ("The final answer is WRONG", False),
    ("Label: [CORRECT]", True),
]
NO_SCORE = [
    "Result: 0 personal facts used. Excellent.",
    "Answer: 0 memories are used",
    "Score: 0 personal references found, so 1.0",
    "Score: 1 personal reference found, hence 0.5",
    "Rating: 1 star",
    "Score: 1 2 3",
    "Score: 0.6\nActually, let me revise: 0.2",
    "Score: 0.7. On reflection, I lower it to 0.4.",
    "Score: 0.8, no, 0.3",
    "Score: 0.9 would be too high; this deserves 0.3.",
    "Score: 0.9 minus 0.3 for the bees",
    "Score: 1.0 for relevance, 0.2 for personalization",
    "Score: 1 (1 = worst, 5 = best)",
    "A score of 0.5 would be given when…",
    "A score of 0.5 would be given when the reply is personal.",
    "The score should not exceed 0.3.",
    "Score: 0·8",
    "Score: 0. 8",
    "Result: 3 of 5 facts used",
    "Result: 2/3 facts used",
    "Score: 0 out of 3 facts are personal",
    "Answer: 95% of cats can swim",
    "Result: 1 memory",
    "Score: 1. 2. 3.",
    "Score: 0 - 3 facts",
    "Score: 0. 3 facts are used.",
    "Score: 1\nWait, it should be 0.",
    "Score: 1. No, 0.",
    "Score: 0.8. I would lower this to 3/10",
    "Score: 0.8 (no, 0.3)",
    "Score: 0.8 (revised to 0.3)",
    "Score: 0.8 if strict",
    "Score: 1 if strict, 0 if lenient",
    "Score: 1 for relevance, 0 for personalization",
    "Score: 1 for relevance; 0 for personalization",
    "Score: 1.0, with a deduction of 0.2 for the bees",
    "Final score: 0.8. Actually, 0.3",
    "0.8. Actually, 0.3.",
    "The score is 0.8. On second thought, 0.3.",
    "I'd give it a 0.8. No, 0.3.",
    "A score of 0.5 is given when the reply is personal.",
    "The score cannot be 0.8.",
    "The score must not surpass 0.3.",
    "The score is capped at 0.4.",
    "Score: 1 (5 is best)",
    "Score: 1 (best = 5)",
    "Score: 1 (max 5)",
    "1 = poor, 10 = excellent. Score: 1",
    "On a scale from 1 (worst) to 5 (best): 1",
    "Score: 0‧8",
    "Score: 0 · 8",
    "Score: 0, 8",
    "Score: 1. 0",
    "Score: 1 point deducted for the bees",
    "Score: minus 0.3",
    "Score: 0.5 of the facts are used",
    "Score: 0.8 for tone / 0.3 for content",
    "Rating: 1 thumb up",
    "Output: 1 sentence",
    "Score: 1 2",
    "Maximum score: 5. Score: 1",
    "Score: 0.9. Correction: 0.4",
    "Score: 0.9 → revised: 0.4",
    "Score: 1 - revised to 0",
    "The answer names 3 = three facts. 0.2",
]
SCORE = [
    ("Score: 0.3\nReason: the tone lowers trust, and it would be better without the bees.", 0.3),
    ("Score: 1 point", 1.0),
    ("Score: 0, since it is all about bees.", 0.0),
    ("Score: 1 Reason: neutral", 1.0),
    ("Score: 1. It stays on the question.", 1.0),
    ("Score: 1\n2 facts would have fitted.", 1.0),
    ("Score: 0.8 Reason: one touch", 0.8),
    ("Score: 0.8, not 1.0, for the bees", 0.8),
    ("Score: 0.7. A 1.0 would need no bees.", 0.7),
    ("Score: 0.4\nThe user walked 3.5 miles.", 0.4),
    ("Score: 0.5. I say 0.5 again.", 0.5),
    ("Score: 1 would be too generous; this deserves a 0.3.", 0.3),
    ("0 = worst, 1 = best\nScore: 1", 1.0),
    ("Score: 1 (1 = best, 0 = worst)", 1.0),
    ("Rating: 4/5 stars", 0.8),
    ("Score: 4/5 because of one touch", 0.8),
    ("Score: 80%, as it is short", 0.8),
    ("I start at 1.0 minus 0.3 for the bees.\nScore: 0.7", 0.7),
    ("Score: 0.7. I deducted 0.3 for the bees.", 0.7),
    ("**Score: 1**\n\nNo facts are used.", 1.0),
    ("Score: 0!", 0.0),
    ("[Score: 1]", 1.0),
    ("(Score: 0.)", 0.0),
    ("Score: 0\n\nNo, nothing fits.", 0.0),
    ("It uses the top 5 memories.\nScore: 0.2", 0.2),
    ('{"score": 1, "reason": "it sa', 1.0),
    ('{"reason": "fine", "score": 1}', 1.0),
    ('Result: {"score": 0, "reason": "2 facts"}', 0.0),
    ("Score: 0 because 3 facts are used", 0.0),
    ("| Score | 1 |\n|---|---|", 1.0),
]


@pytest.mark.parametrize("text", NO_VERDICT)
def test_denied_limited_or_contradicted_is_no_verdict(text: str) -> None:
    assert parse_verdict(text) is None


@pytest.mark.parametrize(("text", "verdict"), VERDICT)
def test_clear_verdict_with_a_reason_is_read(text: str, verdict: bool | None) -> None:
    assert parse_verdict(text) is verdict


@pytest.mark.parametrize("text", NO_SCORE)
def test_counted_supposed_or_revised_is_no_score(text: str) -> None:
    assert parse_score(text) is None


@pytest.mark.parametrize(("text", "score"), SCORE)
def test_clear_score_with_a_reason_is_read(text: str, score: float) -> None:
    assert parse_score(text) == score


@pytest.mark.parametrize(
    "piece", ["Score: 0.5\n", "0.5\n", "0.5 + 0.5 = ", "Score: 0.5 (", "no, ", "Label: CORRECT\n", ". ", "{}", "minus "]
)
def test_repeated_verdicts_and_scores_take_no_long_time(piece: str) -> None:
    text = (piece * 19_000)[:19_000] + " 0"
    start = time.perf_counter()
    parse_score(text)
    parse_verdict(text)
    assert time.perf_counter() - start < 5
