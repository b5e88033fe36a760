"""A case of the sample's people as it would be saved, made by hand: its numbers are easy to reckon with."""

from __future__ import annotations

from opbench.cases.outcome import Ablation, Found, Judged, LeftOut, Outcome, Shown
from opbench.cases.spec import CaseSpec, Column, Draft, Given

USER = "sample-1/Ottilie"
QUESTION = "What should I read on the train?"
BREAD = "Ottilie bakes sourdough bread on Sundays."
BOAT = "Ottilie sold her boat in March."

SPEC = CaseSpec(
    question=QUESTION,
    user=USER,
    data="sample",
    columns=(
        Column(model="m"),
        Column(model="m", memory="rag"),
        Column(model="m", memory="rag", mitigation="reminder"),
    ),
)

BASE = Outcome(
    state="done",
    response="A short novel.",
    finish_reason="stop",
    scores=(Judged(metric="score", value=1.0),),
    milliseconds={"response": 120.0},
    reused={"response": False},
    prompt_tokens=20,
    completion_tokens=4,
    total_ms=130.0,
)
RETRIEVED = (Found(text=BREAD, date="9 May 2024", score=0.4567), Found(text=BOAT, date=None, score=0.25))
RAG = Outcome(
    state="done",
    retrieved=RETRIEVED,
    context=(Shown(text=BREAD, date="9 May 2024"), Shown(text=BOAT)),
    response="A book about sourdough bread, since you bake on Sundays.",
    finish_reason="stop",
    scores=(Judged(metric="score", value=0.25, reason="1 of 2 memories are used unasked"),),
    milliseconds={"retrieval": 10.0, "response": 200.0},
    reused={"retrieval": True, "response": False},
    prompt_tokens=60,
    completion_tokens=12,
    cost_usd=0.0015,
    total_ms=340.0,
)
REMINDER = Outcome(
    state="done",
    retrieved=RETRIEVED,
    post_text="1",
    post_state="kept",
    counts={"altered": 1},
    context=(Shown(text="Ottilie bakes bread on Sundays.", date="9 May 2024", sources=(1,), altered=True),),
    response="A novel about bread.",
    finish_reason="stop",
    scores=(Judged(metric="score", value=None, reason="the judge's reply has no number"),),
    milliseconds={"retrieval": 10.0, "post": 90.0, "response": 150.0},
    reused={"retrieval": True, "post": False, "response": True},
    prompt_tokens=100,
    completion_tokens=9,
    cost_usd=None,
    total_ms=600.0,
)
OUTCOMES = (BASE, RAG, REMINDER)


def left_out(number: int, text: str, score: float, similarity: float, *, same: bool = False) -> LeftOut:
    """`RAG` without a memory."""
    outcome = RAG.model_copy(
        update={"scores": (Judged(metric="score", value=score),), "response": f"Without {number}."}
    )
    assert RAG.score is not None
    return LeftOut(
        number=number, text=text, outcome=outcome, score_change=score - RAG.score, similarity=similarity, same=same
    )


#: Without the bread the score rises from 0.25 to 1; without the boat it falls to 0.
ABLATION = Ablation(column=1, base=RAG, items=(left_out(1, BREAD, 1.0, 0.5), left_out(2, BOAT, 0.0, 0.9)), over=True)
PROVENANCE: dict[str, object] = {
    "data": {"op.json": "00" * 32},
    "data_source": "sample",
    "comparable": False,
    "workbench": "0",
}
DRAFT = Draft(name="mine", label="Mine", instructions="Keep what the question is about.")
EDITED = SPEC.model_copy(
    update={
        "columns": (
            Column(model="m"),
            Column(model="m", memory="rag", k=3, temperature=0.7, without=(2,), given=(Given(text=BREAD),)),
            Column(model="m", memory="rag", mitigation="mine", draft=DRAFT, repeat=1),
        )
    }
)
