"""Where responses with people's scores come from: a run's, a review's, the paper's cases. (`csv_sets.py`: a file's.)

A set is a copy: scores that people give afterwards make another set, and its judgings pay for no call twice.
"""

from __future__ import annotations

import pandas as pd
from sqlalchemy import select

from opbench.calibration.material import Item, of_run
from opbench.calibration.spec import Rated, Response
from opbench.cases.published import PublishedCase, published_cases
from opbench.errors import UsageError
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.frames import CONFIGURATION
from opbench.store.human import human_scores
from opbench.store.judgings import item_of, save_set
from opbench.store.reading import read_run

#: What has to stand beside numbers over the published cases.
PUBLISHED_NOTE = (
    "The over-personalised responses have the scores of the paper's judge, the references beside them the authors' "
    "own, which are all high: over both together a correlation says mostly whether good and bad are told apart. By "
    "kind, each stands alone. The offline judge's rules were written by people who had read these cases: on others it "
    "may do worse."
)
INVENTED_NOTE = (
    "These cases and their scores are invented, since the data folder has no appendix: they show how this works, and "
    "say nothing of a judge."
)
#: Who gave the published cases their scores; nobody's but the paper's, and no mean of several people.
JUDGE_OF_PAPER = "judge of the paper"
AUTHORS = "authors of the paper"
INVENTED = "invented"
REPETITION = "repetition"


def run_set(store: Store, run_id: str, maker: str = "") -> str:
    """The responses of a run that people scored beside the judge (the Explore page, `opbench rate`), with all that the
    run's judge looked at. Only entries that count: each rater's newest, of the response that the record has now.

    Raises:
        UsageError: nobody has scored one, or the run's texts or data aren't here.
    """
    data = read_run(store, run_id)
    scores = human_scores(store, run_id, data.study)
    scores = scores[scores["current"] & (scores["subtype"] != REPETITION)]
    if scores.empty:
        raise UsageError(
            f"run {run_id} has no response that people scored and a judge scores too: score some on the page Explore, "
            "or with 'opbench rate'."
        )
    known = {each.item: each for each in of_run(store, run_id).items}
    c = s.configurations.c
    with store.begin() as connection:
        rows = connection.execute(select(c.id, *CONFIGURATION).where(c.run_id == run_id)).all()
    numbers = {(row.model, row.memory, row.mitigation): row.id for row in rows}
    items = []
    for place, given in scores.groupby(["model", "memory", "mitigation", "instance"], sort=True):
        model, memory, mitigation, instance = map(str, place)
        key = (model, memory, mitigation)
        items.append(_of_record(known[item_of(numbers[key], instance)], key, given))
    name = data.name or run_id
    return save_set(store, f"people's scores of {name}", {"kind": "run", "run": run_id}, items, maker)


def review_set(store: Store, review_id: str, maker: str = "") -> str:
    """Both responses of each item of a review, with the scores that its reviewers and its senior gave.

    Raises:
        UsageError: no such review, or none of its answers has a score.
    """
    from opbench.review.rated import rated
    from opbench.store.reviews import get_review

    review = get_review(store, review_id)
    items = [each for each in rated(store, review_id) if each.response.subtype != REPETITION and each.human]
    if not items:
        raise UsageError(
            f"review {review_id} has no answer with a score yet: reviewers give one from 0 to 1 by response."
        )
    return save_set(store, f"review {review.name}", {"kind": "review", "review": review_id}, items, maker)


def published_set(store: Store, maker: str = "") -> str:
    """The paper's cases (appendix D): the over-personalised responses with the scores of the paper's judge, and the
    fitting ones beside them with the authors' scores. Where the data folder has no appendix, invented ones, which say
    so.

    Both are one person's or one model's number each, so they are a check of a judge and no measure of people's
    agreement. Repetition is left out: its scores are of single responses there, and of users with us.

    Raises:
        DataError: the file is damaged.
    """
    cases = published_cases()
    invented = cases[0].origin == INVENTED
    items = [item for each in cases if each.case.subtype != REPETITION for item in _of_case(each)]
    left_out = sum(len(each.case.exchanges) for each in cases if each.case.subtype == REPETITION)
    source = {"kind": "published", "origin": cases[0].origin, "left_out": left_out}
    name = "invented cases (the data folder has no appendix)" if invented else "published cases (appendix D)"
    return save_set(store, name, source, items, maker)


def _of_case(each: PublishedCase) -> list[Rated]:
    case = each.case
    user = each.user or f"appendix/{case.user}"
    found = []
    for number, exchange in enumerate(case.exchanges):
        pair = each.exchange_id(number)
        for which, text, score in (
            ("response", exchange.response, exchange.score),
            ("reference", exchange.fitting, exchange.fitting_score),
        ):
            by = INVENTED if each.origin == INVENTED else JUDGE_OF_PAPER if which == "response" else AUTHORS
            response = Response(
                question=exchange.question,
                response=text,
                subtype=case.subtype,
                user=user,
                memories=exchange.memories,
                context=exchange.memories,
                kind=which,
                pair=pair,
            )
            found.append(Rated(item=f"{pair}/{which}", response=response, human=((by, score),)))
    return found


def _of_record(item: Item, key: tuple[str, str, str], given: pd.DataFrame) -> Rated:
    evidence = item.evidence
    instance = evidence.instance
    response = Response(
        question=instance.question,
        response=evidence.response,
        benchmark=instance.benchmark,
        subtype=instance.subtype,
        user=instance.user.id,
        profile=evidence.profile,
        memories=evidence.memories,
        context=evidence.context,
        facts=evidence.own_facts,
        gold=instance.answer or "",
        explanation=instance.explanation or "",
        kind=" · ".join(key),
        pair=instance.id,
    )
    human = tuple((str(rater), float(value)) for rater, value in zip(given["rater"], given["value"], strict=True))
    return Rated(item=f"{'/'.join(key)}|{instance.id}", response=response, human=human)
