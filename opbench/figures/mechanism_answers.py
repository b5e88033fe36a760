"""What the analyses of retrieval, language and repetition come to, in sentences of plain text; each tells its n, and
its interval or why there is none."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from opbench.analysis.intervals import FEWEST_USERS
from opbench.analysis.retrieval_similarity import LOCOMO
from opbench.figures import theme
from opbench.figures.dots import between, cosine
from opbench.figures.language import MEMORY, Names, signed
from opbench.figures.response_map import interval_words

_NAMED = 8
_SURE = 0.05
Row = dict[Any, Any]


def retrieval_answers(
    table: pd.DataFrame, differences: pd.DataFrame, abstained: pd.DataFrame, separated: pd.DataFrame
) -> list[str]:
    """Of `similarity_table`, `similarity_differences`, `should_abstain` and `separations` of the top-1 cosine."""
    said = []
    for cell in _rows(abstained):
        name = _system(cell)
        said.append(
            f"{name} retrieved something for {cell['n_retrieved']} of {cell['n']} fully irrelevant questions "
            f"({theme.share(cell['share'])}), none of which needs a memory."
        )
    means = {(cell["memory"], cell["group"]): cell for cell in _rows(table)}
    for cell in _rows(differences):
        first, second = (means[cell["memory"], cell[side]] for side in ("group", "against"))
        said.append(
            f"{_system(cell)}: mean cosine {cosine(first['mean'])} of fully irrelevant questions "
            f"({between(first['low'], first['high'], first['reason'])}) and {cosine(second['mean'])} of "
            f"{_group(cell['against'])} ({between(second['low'], second['high'], second['reason'])}); difference "
            f"{signed(cell['difference'])}, {_signed_between(cell)}, n = {cell['n']} and {cell['n_against']}."
        )
    for cell in _rows(separated[~separated["control"].astype(bool)]):
        said.append(f"{_system(cell)}: {_told_apart(cell)}")
    if len(table) and LOCOMO not in set(table["group"]):
        said.append(
            "Questions that need a memory (LoCoMo) aren't among these: what a threshold would lose can't be told."
        )
    return said


def language_answers(
    paper: pd.DataFrame, table: pd.DataFrame, n_instances: int, n_users: int, names: Names = MEMORY
) -> list[str]:
    """Of `paper_words` and `word_table` (all of it, or `tone`'s part) of one comparison, whose sides have `names`."""
    said = [f"{n_instances} questions that both sides answered, of {theme.users(n_users)}."]
    for cell in _rows(paper):
        if math.isnan(cell["delta"]):
            said.append(f"“{cell['word']}” (named by the paper) stands in no response of either side.")
            continue
        said.append(
            f"“{cell['word']}” (named by the paper): {cell['count_with']} times {names.first}, {cell['count_without']} "
            f"{names.second}; log odds ratio {signed(cell['delta'])}, {_signed_between(cell)}"
            + ("." if math.isnan(cell["p_adjusted"]) else f", Holm's {theme.chance(cell['p_adjusted'])}.")
        )
    sure = table[table["p_adjusted"] <= _SURE]
    if not len(table):
        return [*said, "No phrase is frequent enough to be tested."]
    if table["p_adjusted"].isna().all():
        most = int(table["users"].max())
        if most < FEWEST_USERS:
            why = f"an interval needs {FEWEST_USERS} users who have a phrase, and there are {most} at most"
        else:
            why = str(table["reason"].iloc[0])
        return [*said, f"{len(table)} phrases counted; none can be tested: {why}."]
    n_tested = int(table["p"].notna().sum())
    sides = ((names.first, sure[sure["delta"] > 0]), (names.second, sure[sure["delta"] < 0].iloc[::-1]))
    for heading, part in sides:
        if len(part):
            told = ", ".join(f"“{word}”" for word in part["word"].head(_NAMED))
            more = f" and {len(part) - _NAMED} more" if len(part) > _NAMED else ""
            said.append(f"More frequent {heading} (adjusted p at most {_SURE}): {told}{more}.")
    if not len(sure):
        said.append(f"Of {n_tested} phrases tested none differs with an adjusted p of {_SURE} or less.")
    return said


def repetition_answers(changes: pd.DataFrame) -> list[str]:
    """Of `dispersion_changes`: a sentence a comparison."""
    said = []
    for cell in _rows(changes):
        if math.isnan(cell["change"]):
            continue
        verdict = "no difference can be told"
        if cell["low"] == cell["high"] == 0.0:
            verdict = "the same for each of them"
        elif cell["low"] > 0 or cell["high"] < 0:
            verdict = "closer together" if cell["change"] < 0 else "farther apart"
            if not cell["p_holm"] <= _SURE:
                verdict = (
                    f"{verdict} by itself, but not sure among {cell['tests']} changes (Holm's "
                    f"{theme.chance(cell['p_holm'])})"
                )
        unequal = f" {theme.users(cell['unequal'])} rest on different questions." if cell["unequal"] else ""
        said.append(
            f"{_first_large(_configuration(cell['memory'], cell['mitigation']))} against "
            f"{_configuration(cell['against_memory'], cell['against_mitigation'])}: dispersion "
            f"{theme.points(cell['dispersion'])} and {theme.points(cell['against'])} points, change "
            f"{theme.change(cell['change'])}, {interval_words(cell)}: {verdict}. Closer for {cell['closer']} of "
            f"{theme.users(cell['users'])}.{unequal}"
        )
    return said


def _told_apart(cell: Row) -> str:
    first, second = _group(cell["group"]), _group(cell["against"])
    area = f"area {cosine(cell['auc'])}, {between(cell['low'], cell['high'], cell['reason'])}"
    n = f"n = {cell['n']} and {cell['n_against']}"
    if math.isnan(cell["abstains"]):
        return f"{first} and {second} questions: {area}; one user tells nothing about a threshold for others; {n}."
    found = (
        f"{theme.share(cell['abstains'])} of {first} and {theme.share(cell['loses'])} of {second} questions lie below "
        f"the threshold that is best for the other users (about {cosine(cell['threshold'])}); {n}."
    )
    if not cell["separates"]:
        return f"it can't be said whether a threshold tells {first} from {second} questions ({area}): {found}"
    how = {"well": "tells {} well from {}", "in part": "tells {} in part from {}", "hardly": "hardly tells {} from {}"}
    return f"a threshold {how[cell['separates']].format(first, second)} questions ({area}): {found}"


def _signed_between(cell: Row) -> str:
    if math.isnan(cell["low"]):
        return f"no interval: {cell['reason']}"
    return f"{signed(cell['low'])} to {signed(cell['high'])} (95 %)"


def _system(cell: Row) -> str:
    return _first_large(f"{theme.name(cell['memory'])}{' (control)' if cell['control'] else ''}")


def _group(group: str) -> str:
    return "LoCoMo" if group == "locomo" else theme.name(group).lower()


def _configuration(memory: str, mitigation: str) -> str:
    name = theme.name(memory)
    return name if memory == "base" or mitigation == "none" else f"{name} · {theme.name(mitigation)}"


def _first_large(text: str) -> str:
    return text[:1].upper() + text[1:]


def _rows(frame: pd.DataFrame) -> list[Row]:
    return list(frame.to_dict("records"))
