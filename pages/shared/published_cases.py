"""The paper's published cases on the Case page: the choice, what was published, and our judges' scores beside it."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from opbench.cases import published, published_scores
from opbench.cases.marks import spans
from opbench.cases.outcome import Found
from opbench.cases.published import PublishedCase
from opbench.cases.published_scores import Ratings, Which
from opbench.figures import theme
from opbench.models import load_registry
from opbench.sharing.sheet import Words
from opbench.sharing.visible import visible
from opbench.types import Corpus
from pages.shared import access, case_text, chosen_models, collecting, link, parts, results, study_form, texts
from pages.shared.case_question import Asked

_OFFLINE = "offline"
#: What was rated last in this browser session.
_RATED = "published-rated"
#: The offline judge's scores, by case.
_OWN = "published-offline"


def choose(corpus: Corpus, off: dict[str, Any]) -> Asked | None:
    """Draw the choice of a case and what was published of it; None where its user isn't in the data. `off` are further
    arguments of the widgets.

    The case's own data are taken, whatever `corpus` is: the appendix's people are the benchmark's, the invented ones
    the sample's. Raises DataError for a damaged file.
    """
    known = published.published_cases()
    places = {each.exchange_id(number): (each, number) for each in known for number in range(len(each.case.exchanges))}
    names = {key: _label(key, each) for key, (each, _) in places.items()}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = link.one_of(
            "Published case", list(places), "published", names=study_form.distinct(names), width=420, **off
        )
        each, number = places[chosen]
        user = each.user
        if len(each.users) > 1:
            user = link.one_of(f"Which {parts.as_label(each.case.user)}", list(each.users), "persona", width=220, **off)
    _say_origin(each, known)
    _show(each, number)
    if link.switch("Our judges' scores beside the published ones", "rated"):
        _scores(known)
    if user is None:
        st.warning(
            f"{parts.plain(each.case.user)} is no user of these data: the case can be read, not asked.",
            icon=":material/person_off:",
        )
        return None
    return Asked.of(each.to_spec([_any_model()], number, user))


def _any_model() -> str:
    """The form puts the chosen models in its place."""
    return next(iter(load_registry().models))


def _label(key: str, each: PublishedCase) -> str:
    """E.g. `fig-22 · Baiting · James · MemU`."""
    return parts.as_label(" · ".join((key, theme.name(each.case.subtype), each.case.user, each.case.method)))


def _say_origin(each: PublishedCase, known: list[PublishedCase]) -> None:
    with st.container(horizontal=True, gap="small"):
        if each.origin == "appendix":
            st.badge("published", icon=":material/menu_book:", color="violet")
            st.badge(parts.PAPER, color="gray")
        else:
            st.badge("invented, not published", icon=":material/edit_note:", color="orange")
        st.badge(parts.plain(published.counted(known)), color="gray")
    said = published.ABOUT[each.origin]
    st.caption(parts.plain(f"{said} {published.LISTED}" if each.mitigation else said))


def _show(each: PublishedCase, number: int) -> None:
    """What was published: the response with its score and its marks, the memories, and the reference response."""
    exchange = each.case.exchanges[number]
    ours = "published" if each.origin == "appendix" else "invented"
    key = f"published-{each.exchange_id(number).replace('/', '-')}"
    found = [Found(text=text) for text in exchange.memories]
    left, right = st.columns(2, gap="medium")
    scores = _offline(each, number)
    with left:
        st.markdown(
            f"**Over-personalised response** :orange-badge[{ours} score {exchange.score:.2f}]{scores['response']}"
        )
        shown = texts.cut(visible(exchange.response), key)
        held = spans(shown, found, exchange.question, known=(each.case.user,))
        case_text.marked(shown, held, dict(enumerate(found, 1)), key)
    with right:
        st.markdown(
            f"**Reference response** :violet-badge[{ours} score {exchange.fitting_score:.2f}]{scores['reference']}"
        )
        st.text(texts.cut(visible(exchange.fitting), f"{key}-reference"))
    with st.expander(f"Memories of the case ({len(found)})"):
        for place, memory in enumerate(found, 1):
            with st.container(horizontal=True, gap="small"):
                case_text.number(key, place)
                st.text(visible(memory.text))
    collecting.add(Words(f"Response of {each.exchange_id(number)}", exchange.response))


def _offline(each: PublishedCase, number: int) -> dict[Which, str]:
    """Badges with the offline judge's scores, which take no time; none for repetition, which takes an embedder."""
    if each.case.subtype == "repetition":
        return {"response": "", "reference": ""}
    kept: dict[object, Ratings] = st.session_state.setdefault(_OWN, {})
    if each.case not in kept:
        kept[each.case] = asyncio.run(published_scores.rate(results.opened().store, (_OFFLINE,), only=each.id))
    mine = {one.which: one for one in kept[each.case].rated if one.published_id == each.exchange_id(number)}
    return {
        which: f" :gray-badge[offline judge {theme.MISSING if one.value is None else f'{one.value:.2f}'}]"
        for which, one in mine.items()
    }


def _scores(known: list[PublishedCase]) -> None:
    ratings = _ratings()
    if ratings is None:
        return
    origin = known[0].origin if known else "invented"
    parts.remark(f"{published.counted(known)}. {published_scores.SEEN}")
    table = published_scores.published_table(ratings)
    if origin == "invented":
        table = table.rename(columns=lambda name: str(name).replace("published", "invented"))
    mark = "published" if origin == "appendix" else "invented"
    shown = table[table["subtype"] != "repetition"]
    shown = shown.assign(subtype=[theme.name(name) for name in shown["subtype"]])
    columns: dict[str, Any] = {"id": "case", "subtype": "subtype", "text": "text", mark: _number(mark)}
    for judge in ratings.judges:
        columns[judge] = _number(judge)
        columns[f"{judge} − {mark}"] = st.column_config.NumberColumn(f"{judge} − {mark}", format="%+.2f")
        if shown[f"{judge}: missing"].notna().any():
            columns[f"{judge}: missing"] = f"{judge}: why missing"
    parts.table(shown, columns, "published-scores", table)
    agreement = published_scores.agreement_table(ratings)
    numbers = {
        "judge": "judge",
        "of": "of",
        "n": st.column_config.NumberColumn("n", help="Texts that both sides scored"),
        "missing": "missing",
        "spearman": _number("Spearman's ρ"),
        "pearson": _number("Pearson's r"),
        "mean_absolute_error": _number("mean absolute difference"),
        "separated": st.column_config.NumberColumn("told apart", help="References that score above their response"),
        "pairs": st.column_config.NumberColumn("of pairs"),
    }
    st.markdown("**Agreement**")
    parts.table(agreement, numbers, "published-agreement", agreement)
    parts.remark(
        "Ten responses are too few to trust a correlation. The offline judge's rules were written with the appendix at "
        "hand (docs/offline-judge.md)."
        if origin == "appendix"
        else "Invented scores: nothing can be concluded from these."
    )
    repetition = published_scores.repetition_table(ratings)
    if len(repetition):
        st.markdown("**Repetition**")
        looks = {
            "case": "case",
            "user": "user",
            "text": "text",
            "n": st.column_config.NumberColumn("n", help="Responses that the score is made of"),
            "ours": _number(f"ours ({ratings.embedder})"),
            "published": f"{mark}, one each",
        }
        if repetition["missing"].notna().any():
            looks["missing"] = "why missing"
        parts.table(repetition, looks, "published-repetition", repetition)
        parts.remark(published_scores.NOT_THE_SAME)
    collecting.sheet().provenance |= {"published cases": ratings.provenance}


def _ratings() -> Ratings | None:
    """By the offline judge at once, by a model when an editor asks for it."""
    registry = load_registry()
    models = {name: spec.label for name, spec in registry.models.items()}
    judge = link.one_of(
        "Judge",
        [_OFFLINE, *models],
        "rated_by",
        names=study_form.distinct({_OFFLINE: _OFFLINE} | models),
        width=300,
        help="The paper's is GPT-4o-mini. The offline judge's scores stand beside those of the one that you choose.",
    )
    wanted = (_OFFLINE,) if judge == _OFFLINE else (_OFFLINE, judge)
    stamp = (wanted, tuple(each.id for each in published.published_cases()))
    kept: tuple[object, Ratings] | None = st.session_state.get(_RATED)
    if kept is not None and kept[0] == stamp and not _asks_again(kept[1]):
        return kept[1]
    if judge != _OFFLINE:
        if not access.may_edit():
            st.caption("To ask a judge, sign in as an editor.")
            return None
        variable = registry.models[judge].key_env
        if variable and not os.environ.get(variable) and variable not in chosen_models.typed_keys():
            # The form below has the input, and a page has each but once.
            st.caption(f"Its key is missing: set {variable}, or choose it as the case's judge below and type it there.")
            return None
        again = kept is not None and kept[0] == stamp
        if not again and not st.button("Ask this judge", key="rate-published", icon=":material/gavel:"):
            st.caption("Two calls a case that isn't a repetition; what it was asked before is reused.")
            return None
        access.demand_edit()
    bar = st.progress(0.0, "Judging…")
    ratings = asyncio.run(
        published_scores.rate(
            results.opened().store,
            wanted,
            keys=chosen_models.typed_keys(),
            told=partial(_tell, bar),
        )
    )
    bar.empty()
    st.session_state[_RATED] = (stamp, ratings)
    return ratings


def _tell(bar: DeltaGenerator, done: int, count: int) -> None:
    bar.progress(done / count, f"Judging… {done} of {count}")


def _asks_again(ratings: Ratings) -> bool:
    """A button where scores are missing that another try may bring."""
    missing = sum(each.passing for each in ratings.rated)
    if not missing or not access.may_edit():
        return False
    return st.button(f"Ask again for {missing} that failed", key="rate-again", icon=":material/refresh:")


def _number(label: str) -> Any:
    return st.column_config.NumberColumn(label, format="%.2f")
