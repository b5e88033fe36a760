"""Every case was reasoned by hand: what would a careful reader say the judge's score is, or that it can't be said?"""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opbench.judges import parsing
from opbench.judges.parsing import parse_score, parse_verdict
from opbench.judges.text import plain, strip_thinking

SCORED = [
    ("0.8", 0.8),
    ("Score: 0.8", 0.8),
    ("Score (0-1): 0.8", 0.8),
    ("On a scale of 0 to 1, 0.9", 0.9),
    ("8/10", 0.8),
    ("85%", 0.85),
    ("1) The answer is off-topic. 2) It's personal. So 0.2", 0.2),
    ("1) relevant\n2) personal\n0.2", 0.2),
    ("0,8", 0.8),
    ("The score is 1.", 1.0),
    ("1) … 0.2", 0.2),
    ("Score: 0.7, confidence: 0.9", 0.7),
    ("Confidence: 0.9\nScore: 0.7", 0.7),
    ("0.7 (90% confident)", 0.7),
    ("With high confidence, the score is 0.8", 0.8),
    ("<think>maybe 0.3</think>0.8", 0.8),
    ("maybe 0.3</think>\nScore: 0.6", 0.6),
    ("<think>a <think>0.2</think> b</think> Score: 0.7", 0.7),
    ("**Score:** 0.8", 0.8),
    ("Score: **0.8**", 0.8),
    ("`0.8`", 0.8),
    ("## Score\n\n0.8", 0.8),
    ("> 0.8", 0.8),
    ("| Score | 0.8 |", 0.8),
    ("__0.8__", 0.8),
    ('{"score": 0.7, "reason": "x"}', 0.7),
    ('```json\n{"score": 0.7, "reason": "0.3 of it"}\n```', 0.7),
    ('{"score": 0.7, "reas', 0.7),
    ('{"score": "0.7"}', 0.7),
    ('{"reason": "like 0.3", "score": 0.7}', 0.7),
    ('{"confidence": 0.9, "score": 0.4}', 0.4),
    ('Here you go: {"score": 0.7, "confidence": 0.9}', 0.7),
    ("{'score': 0.7}", 0.7),
    ('{"relevance_score": 0.9, "overall_score": 0.2}', 0.2),
    ('{"score": 1.0}', 1.0),
    ('{"score": "8/10"}', 0.8),
    ("[0.8]", 0.8),
    ("Score: 8 out of 10", 0.8),
    ("Score: 8 (out of 10)", 0.8),
    ("0.8 (out of 1)", 0.8),
    ("1.0/1.0", 1.0),
    ("Score: 0.8/1", 0.8),
    (".5", 0.5),
    ("Score: .5", 0.5),
    ("Score - 0.8", 0.8),
    ("Score – 0.8", 0.8),
    ("０．８", 0.8),
    ("٠٫٨", 0.8),
    ("Ｓｃｏｒｅ：０．８", 0.8),
    ("½", 0.5),
    ("0.8²", 0.8),
    ("① good ② bad 0.2", 0.2),
    ("I'd give it a 0 for heavy personalisation.", 0.0),
    ("I would give this response a score of 0.7.", 0.7),
    ("I rate this 0.4 because it guesses.", 0.4),
    ("The response deserves a 0.3.", 0.3),
    ("I'd say 8/10.", 0.8),
    ("Score: 0.8\n\nQuestion: What is it?\nResponse: foo", 0.8),
    ("Question: foo\nResponse: bar\nScore: 0.8", 0.8),
    ("Score: 0.8\nScore: 0.8", 0.8),
    ("Relevance: 1.0\nPersonalisation: 0.4\nScore: 0.6", 0.6),
    ("Relevance score: 1.0\nPersonalisation score: 0.4\nOverall score: 0.6", 0.6),
    ("Irrelevance score: 0.8", 0.8),
    ("Score: 1.0 - 0.3 = 0.7", 0.7),
    ("Score: 1.0-0.3=0.7", 0.7),
    ("Starting at 1.0, I deduct 0.3. Score: 0.7", 0.7),
    ("Score: 0.8 ± 0.1", 0.8),
    ("Score: ~0.8", 0.8),
    ("Score: 8/10 = 0.8", 0.8),
    ("\\boxed{0.8}", 0.8),
    ("$0.8$", 0.8),
    ("$\\boxed{0.8}$", 0.8),
    ("On a scale from 0 (bad) to 1 (good), I'd say 0.7", 0.7),
    ("0 = worst, 1 = best. Score: 0.4", 0.4),
    ("A score of 1 means perfect; this one is 0.4", 0.4),
    ("0.0-0.3 = High, 0.7-1.0 = Low. I choose 0.8", 0.8),
    ("Score (1-10): 8/10", 0.8),
    ("Rating: 4/5", 0.8),
    ("The user claims that 95% of cats can swim, which the response corrects. Score: 0.9", 0.9),
    ("Criterion 1: fine. Criterion 2: bad. Score: 0.3", 0.3),
    ("1. Relevant: yes\n2. Personalised: no\n\nScore: 1", 1.0),
    ("Score: 0", 0.0),
    ("Score: 1", 1.0),
    ("0", 0.0),
    ("1", 1.0),
    ("1.", 1.0),
    ("Output: 0.3", 0.3),
    ("<score>0.8</score>", 0.8),
    ("Score: 0.8 (not 1.0 because it rambles)", 0.8),
    ("Maximum score: 1\nScore: 0.8", 0.8),
    ("GPT-4 said 0.8", 0.8),
    ("The response is fine. I considered 0.6 but settled: Final score: 0.8", 0.8),
    ("Score: 85/100", 0.85),
    ("Score: 85 %", 0.85),
    ("85 percent", 0.85),
    ("Score=0.8", 0.8),
    ("score → 0.8", 0.8),
    ("Score:0.8", 0.8),
    ("0.8.", 0.8),
    ("(0.8)", 0.8),
    ("0.8 - the reply stays on topic", 0.8),
    ("0.8\n\nThe reply stays on topic; 1 aside.", 0.8),
    ("Score: low (0.2)", 0.2),
    ("8e-1", 0.8),
    ("Score for irrelevance: 0.3", 0.3),
    ("My rating would be 0.65.", 0.65),
    ("Sycophancy resistance score: 0.3", 0.3),
    ("The score is between 0 and 1, and I pick 0.55.", 0.55),
    ("Score: [0.8]", 0.8),
    ("Score: (0.8)", 0.8),
    ('Score: "0.8"', 0.8),
    ("~~0.2~~ 0.8", 0.8),
    ("Step 1: read. Step 2: think. Step 3: 0.6", 0.6),
    ("Score (0 = sycophantic, 1 = resistant): 0.9", 0.9),
    ("Score out of 1: 0.8", 0.8),
    ("1/1", 1.0),
    ("0/10", 0.0),
    ("10/10", 1.0),
    ("Score: 100%", 1.0),
    ("0%", 0.0),
    ("+0.8", 0.8),
    ("<|im_start|>0.8", 0.8),
    ("I'm 95% sure the score is 0.7.", 0.7),
    ("Score: 0.8\nScore: 0.8\nScore: 0.8", 0.8),
    ("The response is relevant. However, it assumes that the user has kids.\n\n**Final Score: 0.4**", 0.4),
    ("Based on the criteria, I would rate the response a 0.9.", 0.9),
    ("I would assign a score of **0.85** to this response.", 0.85),
    ("Considering all of this, a fair score is about 0.6.", 0.6),
    ("Score: 0.6\n\n(Confidence: high)", 0.6),
    ("Confidence: high\nScore: 0.6", 0.6),
    ("Score: 0.6 | Confidence: 0.9", 0.6),
    ("Score: 0.6 (confidence 0.9)", 0.6),
    ("Rating: 4 out of 5 stars", 0.8),
    ("4/5", 0.8),
    ("3 out of 5", 0.6),
    ("Score: 0.8 out of 1.0", 0.8),
    ("Score: 0.8 of 1", 0.8),
    ("It is 0.8 of 1.0", 0.8),
    ("My score, on a scale of 0 to 1, is 0.35.", 0.35),
    ("On the 0–1 scale I would put this at 0.35.", 0.35),
    ("Scale: 0-1\nScore: 0.35", 0.35),
    ("Scale: 0 to 1. Score: 1", 1.0),
    ("(0 to 1): 0.35", 0.35),
    ("[0, 1] → 0.35", 0.35),
    ("0 ≤ score ≤ 1: 0.35", 0.35),
    ("Score ∈ [0,1]: 0.35", 0.35),
    ("Score range: 0.0 - 1.0\nScore: 0.35", 0.35),
    ("Score (higher is better): 0.35", 0.35),
    ("The range 0.7-1.0 fits; score 0.75", 0.75),
    ("The answer is mostly fine: 0.75", 0.75),
    ("0.75 (mostly fine)", 0.75),
    ("0.75, since it's mostly fine.", 0.75),
    ("The user said tea lowers the price of iron by 100% in a day. This is false and the response agrees. 0.1", 0.1),
    ("Score: 0.1\n\nThe user said tea lowers the price of iron by 100% in a day.", 0.1),
    ("As of 2023, the score is 0.3", 0.3),
    ("Score:\n\n0.45", 0.45),
    ("Score:\n- 0.45", 0.45),
    ("- Score: 0.45\n- Reason: x", 0.45),
    ("1. Score: 0.45\n2. Reason: none", 0.45),
    ("Reason: The answer mentions 2 dogs.\nScore: 0.2", 0.2),
    ("Overall: 0.6", 0.6),
    ("Overall score: 0.6/1", 0.6),
    ("Total score: 8/10", 0.8),
    ("Deduction: -0.3\nScore: 0.7", 0.7),
    ("Score: 0.7 (1.0 minus 0.3)", 0.7),
    ("1 - 0.3 = 0.7", 0.7),
    ("Score = 1 - 0.3 = 0.7", 0.7),
    ("Score: (0.8 + 0.6) / 2 = 0.7", 0.7),
    ("Not 0.8. Score: 0.3", 0.3),
    ("Score: 0.9\n\nFinal score: 0.4", 0.4),
    ("```\n0.45\n```", 0.45),
    ("```\nScore: 0.45\n```", 0.45),
    ("<answer>0.45</answer>", 0.45),
    ("<reasoning>0.2?</reasoning><answer>0.45</answer>", 0.45),
    ("[THINK]0.1[/THINK]0.45", 0.45),
    ("<think></think>0.45", 0.45),
    ("<THINK>0.1</THINK>\n0.45", 0.45),
    ("<think>0.1</think><think>0.2</think>0.45", 0.45),
    ("0.45 <think>0.1", 0.45),
    ("1e-400", 0.0),
    ("Score: 1.00", 1.0),
    ("Score: 00.8", 0.8),
    ("Score: 0.99999", 0.99999),
    ("Score: 0 / 1", 0.0),
    ("1 / 2", 0.5),
    ("0.5/0.5", 1.0),
    ("Score:0,75", 0.75),
    ("Score: 1,0", 1.0),
    ("Score: 0,75/1", 0.75),
    ("8 /10", 0.8),
    ("I'd give it an 8 out of 10.", 0.8),
    ('{"score":0.7', 0.7),
    ('{"score": 0.7, "reason": "it said 0.', 0.7),
    ('{"Score": 0.7}', 0.7),
    ('{"rating": 0.7}', 0.7),
    ('{"result": {"score": 0.7}}', 0.7),
    ('{"score": 0.7}\n{"score": 0.7}', 0.7),
    ('```json\n{"score": 0.7}\n```\nThe 1 reason', 0.7),
    ('"0.7"', 0.7),
    ('{"score": 0.7, "max_score": 1}', 0.7),
    ('{"reasoning": "Score: 0.2 at first", "score": 0.7}', 0.7),
    ('{"reasoning": "Score: 0.2 at first", "sco', 0.2),
    ("User: hi\nAssistant: 0.7", 0.7),
    ("0.7\nUser: hi\nAssistant: 0.7", 0.7),
    ("Score: `0.45`", 0.45),
    ("Score: *0.45*", 0.45),
    ("*Score*: 0.45", 0.45),
    ("**Score**: 0.45/1.0", 0.45),
    ("| Relevance | 1.0 |\n|---|---|\n| Score | 0.45 |", 0.45),
    ("\\[ \\boxed{0.45} \\]", 0.45),
    ("Score: $0.45$", 0.45),
    ("\\text{Score: } 0.45", 0.45),
    ("Score: \\(0.45\\)", 0.45),
    ("Score：０．４５", 0.45),
    ("评分：0.45", 0.45),
    ("得分: 0.45", 0.45),
    ("Score : 0.45", 0.45),
    ("SCORE 0.45", 0.45),
    ("score is: 0.45", 0.45),
    ("Score — 0.45", 0.45),
    ("Score: 0.3. I can't assign more.", 0.3),
    ("Score: 0.3 or higher", 0.3),
    ("I would score this response 1 because it is neutral.", 1.0),
    ("I'd give this a 1!", 1.0),
    ("Score: 1 (perfect)", 1.0),
    ("Score: 0 — fully sycophantic", 0.0),
    ("This gets a 0.", 0.0),
    ("Score is 0.8/1, i.e. 80%", 0.8),
    ("80% (0.8)", 0.8),
    ("0.8 (80%)", 0.8),
    ("0.8 (70%)", 0.8),
    ("٨/١٠", 0.8),
    ("१", 1.0),
    ("०.८", 0.8),
    ("𝟎.𝟖", 0.8),
    ("¼", 0.25),
    ("⅘", 0.8),
    ("0.8\n\n0.8", 0.8),
    ("0.8!", 0.8),
    ("≈0.8", 0.8),
    ("~0.8", 0.8),
    ("~ 0.8", 0.8),
    ("Score: 0.8 - the tone is right", 0.8),
]
MISSING = [
    "confidence: 0.9",
    "Confidence score: 0.9",
    "<think>maybe 0.3",
    '{"score": 0',
    '{"score": 7}',
    '{"score": null}',
    '{"confidence": 0.9}',
    '{"relevance_score": 0.9, "sycophancy_score": 0.2}',
    '{"score": true}',
    '{"score": 85}',
    '{"score": {"a": 0.3}}',
    "Score: 8",
    "7",
    "-0.5",
    "Score: -0.5",
    "Score: 1.2",
    "Score: NaN",
    "NaN",
    "Score: N/A",
    "between 0.6 and 0.8",
    "0.6-0.8",
    "Score: 0.6–0.8",
    "0.6 to 0.8",
    "Score: 0.7 or 0.8",
    "0.7, 0.8",
    "0.7 0.8",
    "I'm sorry, but I can't help with that.",
    "I cannot score this between 0 and 1.",
    "",
    "   ",
    "Score: 0.8\n\nQuestion: What is it?\nResponse: foo\nScore: 0.2",
    "0.8\n\n---\n\n<User Question>\nfoo\n\n<Response>\nbar\n\nOutput: 0.3",
    "Score: 0.8\n\nExample 2\nFinal score: 0.2",
    "Score: 0.8\nScore: 0.2",
    "Relevance score: 1.0\nPersonalisation score: 0.4",
    "Score: 1.0 - 0.3",
    "Score: at least 0.8",
    "Score: >0.8",
    "Score: <0.5",
    "Score: 1,000",
    "1.2.3",
    "version 0.8.1",
    "costs $0.5",
    "Score: 0.7-1.0 (low sycophancy)",
    "On a scale of 1 to 10: 8",
    "On a scale of 1-10, 1",
    "Score (0-10): 1",
    "The response corrects the 95% claim.",
    "The response makes 1 claim about 2 things.",
    "It scored well on criterion 1.",
    "The maximum score is 1.0",
    "24/7",
    "Score: 85",
    "not a 1.0",
    "zero",
    "a perfect score",
    "10:30",
    "5/7/2023",
    "Score: 9/8",
    "Score: 0.8/10",
    "Score: 0.8%",
    "I gave 2 reasons and 1 example.",
    "This gets a 1 paragraph answer.",
    "e.g., 0.7, 0.85",
    "On a 10-point scale, 1",
    "Score: 0.5 → 0.8",
    "0.8 vs 0.3",
    "Score out of 10: 1",
    "Temperature = 0.7",
    "Score: O.8",
    "I am 80% confident.",
    "My confidence in this score is 0.9.",
    "Score: ten",
    "Rating: 3 stars",
    "Score range 0.0–1.0",
    "I'd rate it somewhere in the 0.6–0.7 range.",
    "Low Sycophancy (0.7-1.0)",
    "0.7-1.0 = Low fact-level sycophancy (good)",
    "It claims 0.5 of people agree, so 0.2.",
    "In 2023 he ran 3.5 miles.",
    "Here's my evaluation:\n\n1. Relevance (0.5): good\n2. Personalisation (0.5): poor\n\nTotal: 0.6",
    "Score: 0.8+0.6",
    "The score isn't 0.8.",
    "The score is not 0.8 but 0.4",
    "Score: less than 0.3",
    "I first thought 0.9, but it is 0.4.",
    "Score: 0.9\n\nActually, Score: 0.4",
    "nan",
    "Infinity",
    "Score: inf",
    "-1",
    "1e10",
    "1.0000001",
    "Score: -0",
    "-0.0",
    "5/0",
    "Score: 150%",
    "-5%",
    "8 out of ten",
    "I'd give it an eight.",
    "I'd give it an 8.",
    "8 out of 10 doctors agree",
    "9/10 people agree",
    '{"score": 0.',
    '{"score": 0.7}\n{"score": 0.2}',
    '{"score": 0.7}\n\nQuestion: another\n{"score": 0.1}',
    '{"score": -0.7}',
    '{"score": "high"}',
    '{"score": NaN}',
    '{"score": Infinity}',
    "{}",
    "[]",
    "[0.7, 0.8]",
    '{"score": 7, "max_score": 10}',
    "0.7\nUser: hi\nAssistant: 0.2",
    "0.7\n\nUser question: what 1.5 litres?\nThe score is 0.2",
    "Score: 0.7\n\n### Question 2\nScore: 0.1",
    "Example 1: 0.9\nExample 2: 0.2",
    "The response exhibits fact-level sycophancy",
    "Level 1 sycophancy",
    "Score: Level 1",
    "Type 1",
    "It contains 0 personal references.",
    "The answer has 1 personal reference.",
    "There is 1 issue.",
    "This response scores 1 on relevance and 0 on personalization.",
    "This response scores highly. 1",
    "The response scores 0.9 for relevance and 0.2 for personalisation.",
    "I give it 0.9 for relevance but 0.2 for personalisation",
    "I cannot give it more than 0.3.",
    "I can't assign a score of 0.5 without more information.",
    "Score: 0.3–0.4, say 0.35",
    "The score: zero (0)",
    "⓪",
    "Ⅰ",
    "1½",
    "0.8\n0.3",
    "1\n2\n3",
    "0. 8",
    "0 .8",
    ". 8",
    "0..8",
    ">0.8",
    "≥ 0.8",
    "<0.8",
    "±0.8",
    "Score: 0.8 - 2 issues found",
]
VERDICTS = [
    ("CORRECT", True),
    ("WRONG", False),
    ("Label: CORRECT", True),
    ("label: wrong", False),
    ("INCORRECT", False),
    ("not correct", False),
    ("The answer is not correct.", False),
    ('{"label": "CORRECT"}', True),
    ('```json\n{"label": "WRONG"}\n```', False),
    ('Reason: same date. {"label": "CORRECT", "reason": "not WRONG"}', True),
    ("The gold is 7 May; the response says 8 May.\nLabel: WRONG", False),
    ("It could be CORRECT if lenient, WRONG if strict.\nLabel: CORRECT", True),
    ("It could be CORRECT or WRONG.", None),
    ("CORRECT or WRONG? CORRECT", True),
    ("", None),
    ("I can't tell.", None),
    ("partially correct", None),
    ("<think>WRONG</think>CORRECT", True),
    ("<think>CORRECT", None),
    ("WRONG</think>Label: CORRECT", True),
    ("**CORRECT**", True),
    ("Label: **WRONG**", False),
    ("The correct answer is Paris and the response says Paris.", None),
    ("The correct answer is Paris, the response says Rome. WRONG", False),
    ("The response is correct because it names the same day.", True),
    ("It's incorrect", False),
    ("not wrong", None),
    ('{"correct": true}', True),
    ('{"correct": false}', False),
    ('{"verdict": "Correct."}', True),
    ("The generated answer is correct in month but wrong in day.\n\nWRONG", False),
    ("CORRECT\n\nQuestion 2...\nWRONG", None),
    ("Label: CORRECT\nLabel: WRONG", False),
    ("correctly dated", None),
    ("Judgement: incorrect", False),
    ("The answer isn't correct", False),
    ("Label: not correct", False),
    ('{"label": "maybe"}', None),
    ("{'label': 'CORRECT'}", True),
    ("<answer>WRONG</answer>", False),
    ("The response is WRONG. The gold answer is the correct date.", False),
    ("ＣＯＲＲＥＣＴ", True),
    ('{"label": "CORR', None),
]


@pytest.mark.parametrize(("text", "score"), SCORED)
def test_score_is_found(text: str, score: float) -> None:
    assert parse_score(text) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("text", MISSING)
def test_doubt_is_missing_rather_than_a_guess(text: str) -> None:
    assert parse_score(text) is None


@pytest.mark.parametrize(("text", "verdict"), VERDICTS)
def test_verdict(text: str, verdict: bool | None) -> None:
    assert parse_verdict(text) is verdict


FORMS = [
    "{}",
    " {}\n",
    "{}.",
    "**{}**",
    "`{}`",
    "Score: {}",
    "score = {}",
    "**Score:** {}",
    "Score (0-1): {}",
    "Score (0.0 to 1.0): {}",
    "Final score: {}",
    "The score is {}.",
    "I would give this a score of {}.",
    "I'd rate this response {} because it stays on the question.",
    "Output: {}",
    "Reason: it keeps to the question.\nScore: {}",
    "Score: {}\nReason: 3 of the 5 points are personal.",
    "1) It is relevant.\n2) It is not personal.\nScore: {}",
    "<think>perhaps 0.123, perhaps 0.456</think>\nScore: {}",
    "Score: {}\nConfidence: 0.77",
    '{{"score": {}}}',
    '{{"score": {}, "confidence": 0.77}}',
    '```json\n{{"reason": "a 0.123 here", "score": {}}}\n```',
    "\\boxed{{{}}}",
    "<score>{}</score>",
    "On a scale of 0 to 1, my score is {}.",
    "Score: {}/1",
    "Score: {} out of 1.0",
]
units = st.integers(0, 1000).map(lambda n: n / 1000)


@pytest.mark.parametrize("form", FORMS)
@given(value=units)
def test_any_score_comes_back_from_each_form(form: str, value: float) -> None:
    assert parse_score(form.format(f"{value:.3f}")) == value


@given(value=units)
def test_any_score_comes_back_from_other_notations(value: float) -> None:
    assert parse_score(f"Score: {value:.1f}".replace(".", ",")) == round(value, 1)
    assert parse_score(f"Score: {value:.3f}".translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩"))) == value


@given(top=st.sampled_from([5, 10, 100]), data=st.data())
def test_whole_numbers_out_of_a_scale(top: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, top))
    for form in ("{}/{}", "Score: {}/{}", "Score: {} out of {}", "I'd say {}/{}."):
        assert parse_score(form.format(n, top)) == n / top


@given(st.integers(0, 100))
def test_percent(n: int) -> None:
    assert parse_score(f"{n}%") == parse_score(f"Score: {n} percent") == n / 100


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_numbers_off_the_scale_are_missing(number: float) -> None:
    if not 0 <= number <= 1:
        assert parse_score(f"Score: {number}") is None


@given(st.text(alphabet=st.characters(exclude_categories=["Nd", "No", "Nl", "Cs"])))
def test_text_without_digits_is_missing(text: str) -> None:
    assert parse_score(text) is None


PIECES = ["Score", ":", " ", "\n", "0.8", "1", "7", "-", "%", "/10", "(", ")", "{", '"score": ', "<think>", "</think>"]
MORE = ["to", "confidence", "I give it a ", "**", "0,5", ".", "or", "```", "Question:", "final", "≥", "½"]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES + MORE)).map("".join)))
def test_never_outside_the_scale_and_never_an_exception(text: str) -> None:
    score = parse_score(text)
    assert score is None or 0 <= score <= 1
    assert parse_verdict(text) in (True, False, None)


@given(first=units, second=units)
def test_a_reply_that_runs_on_never_gives_the_second_score(first: float, second: float) -> None:
    text = f"Score: {first:.3f}\n\nQuestion: another one?\nResponse: another.\nScore: {second:.3f}"
    assert parse_score(text) == (first if first == second else None)


@pytest.mark.parametrize(
    "piece", ["score ", "0.5 ", "0", "((((score", "<think>", "x</think>", "of a the ", "1,", "|", "[0,"]
)
def test_long_replies_take_no_long_time(piece: str) -> None:
    text = (piece * 19_000)[:19_000] + " 0"
    start = time.perf_counter()
    parse_score(text)
    parse_verdict(text)
    assert time.perf_counter() - start < 5


def test_a_reply_beyond_the_length_limit_is_missing() -> None:
    assert parse_score("word " * 5000 + "\nScore: 0.5") is None


def test_the_table_is_large_and_says_nothing_twice() -> None:
    texts = [text for text, _ in SCORED] + MISSING
    assert len(texts) >= 80
    assert len(set(texts)) == len(texts)
    assert all(re.search(r"\d|½|¼|⅘", text) for text, _ in SCORED)


_PIECES = st.sampled_from(
    (
        *("confidence", "certainty score", "rather than", "below:", "at least", "max", "minus", "not", "none", "score"),
        *("Rating: none", "Final score: n/a", "Answer: not given", "the score is", "Actually, ", "on second thought"),
        *("out of", "a scale of", "criterion", "Response: ", "Question:", "User:", "e.g.", "between", "should be"),
        *(".", "!", "?", ",", ":", ";", "-", "—", "=", "(", ")", "[", '"', "'", "*", "**", "’", "²", "٨", "{", "\\"),
        *("<b>", "_", "#", ">", "$", "|", "~~", "`", "½", "1", "0.3"),
        *("The answer keeps to what was asked.", "Nothing personal is used here.", 'It says "hiking" twice.'),
    )
)
_LAST_LINES = st.sampled_from(
    (
        *("Score: 0.8", "Score: 0", "Score: 1", "score:0.25", "  SCORE : 1.0", "**Score:** 0.4", "**Score: 0.4**"),
        *("Score: .5", "Score: 0.5.", "Score: 1.5", "Score: 80%", "Score: 0.8 memories", "Score: 0*8", "Score: 00"),
        *("* Score: 0.8", "Score: 0.8/1", "My score: 0.8", "Score 0.8", "Score: -0.8", "Score: 0,8", "0.8"),
    )
)


@settings(max_examples=500)
@given(st.lists(st.tuples(_PIECES, st.sampled_from(("", " ", "\n", " \n\n"))), max_size=7), _LAST_LINES)
def test_a_reply_in_the_usual_form_is_read_as_any_other(pieces: list[tuple[str, str]], last: str) -> None:
    reply = "".join(map("".join, pieces)) + last
    assert parse_score(reply) == parsing._thorough(plain(strip_thinking(reply)).strip())


@pytest.mark.parametrize(
    "reply",
    [
        "It answers what was asked. Nothing else is brought up!\n\nScore: 0.75",
        'It brings up "hiking" (nobody asked).\n**Score:** 0.75',
        "Rating: fair. Nothing else is brought up.\nscore: 0.750",
    ],
)
def test_the_usual_form_is_known(reply: str) -> None:
    assert parsing._usual(reply) == 0.75


@pytest.mark.parametrize(
    "reply",
    [
        "Rating: none.\nScore: 0.75",
        "It deserves a rating below\nScore: 0.75",
        "Memory 2 is brought up.\nScore: 0.75",
        "It is fine.\nScore: 0.75\nActually, I lower it.",
    ],
)
def test_what_may_undo_the_usual_form_is_looked_at_closely(reply: str) -> None:
    assert parsing._usual(reply) is None
