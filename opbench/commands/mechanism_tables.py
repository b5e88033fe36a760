"""`opbench mechanism retrieval`, `language` and `repetition`: tables from the records of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import pandas as pd
import typer

from opbench.analysis import language, response_map
from opbench.analysis import retrieval_similarity as retrieval
from opbench.analysis.grids import Key, configuration_keys
from opbench.analysis.recurring import recurring
from opbench.commands.instances import Memory, Mitigation, Model, one_of
from opbench.commands.options import Exclude, leave_out, print_json, print_table, rows_of, say, the_store, words
from opbench.errors import UsageError
from opbench.figures import theme
from opbench.figures.language import names_of
from opbench.figures.mechanism_answers import language_answers, repetition_answers, retrieval_answers
from opbench.sharing.tables import csv_bytes
from opbench.store.database import PATIENCE_OF_A_RUN_S, Store
from opbench.store.reading import find_run, read_run
from opbench.store.rundata import RunData
from opbench.store.similarities import measured_embedders, read_similarities, waiting_similarities
from opbench.store.texts import read_texts
from opbench.study import BASE, NO_MITIGATION

Run = Annotated[str | None, typer.Argument(help="Run id or name; default: the newest.")]
User = Annotated[str | None, typer.Option(help="Users, e.g. conv-26/Caroline; default all.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV, all columns.")]


class RetrievalTable(StrEnum):
    means = "means"
    differences = "differences"
    abstain = "abstain"
    thresholds = "thresholds"
    told_apart = "told-apart"
    cosines = "cosines"


class RepetitionTable(StrEnum):
    changes = "changes"
    users = "users"
    pairs = "pairs"
    memories = "memories"
    points = "map"


_RETRIEVAL = {
    RetrievalTable.means: "memory group mean low high median n n_empty n_cosines users reason",
    RetrievalTable.differences: "memory against difference low high p n n_against users reason",
    RetrievalTable.abstain: "memory n n_retrieved share low high users reason",
    RetrievalTable.thresholds: "memory group threshold share n",
    RetrievalTable.told_apart: "memory group against auc low high threshold abstains loses separates n n_against "
    "users reason",
    RetrievalTable.cosines: "memory group instance user cosine",
}
_REPETITION = {
    RepetitionTable.changes: "memory mitigation against_memory against_mitigation dispersion against change low high p "
    "p_holm closer users responses reason",
    RepetitionTable.users: "memory mitigation user n dispersion reason",
    RepetitionTable.pairs: "cosine cosine_against instance_a instance_b",
    RepetitionTable.memories: "retrieved went_on shows questions date memory",
    RepetitionTable.points: "memory mitigation user instance x y",
}
_LANGUAGE = "word count_with count_without responses_with responses_without users delta low high p_adjusted z"
_HEADS = {
    "against_memory": "against",
    "against_mitigation": "with",
    "n_retrieved": "retrieved",
    "p_adjusted": "p adj.",
    "p_holm": "p Holm",
}


def add(app: typer.Typer) -> None:
    app.command("retrieval")(retrieval_command)
    app.command("language")(language_command)
    app.command("repetition")(repetition_command)


def retrieval_command(
    run: Run = None,
    of: Annotated[RetrievalTable, typer.Option("--of", help="Which table.")] = RetrievalTable.means,
    every: Annotated[
        bool, typer.Option("--all", help="All retrieved memories instead of the most similar one.")
    ] = False,
    memory: Annotated[str | None, typer.Option(help="Memory systems; default all.")] = None,
    group: Annotated[str | None, typer.Option(help="OP-Bench subtypes and locomo; default all.")] = None,
    user: User = None,
    embedder: Annotated[str | None, typer.Option(help="Embedder by registry name; default: the study's own.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="First measure what isn't measured yet.")] = False,
    exclude: Exclude = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """How alike questions and retrieved memories are (cosine), and whether a threshold tells when to abstain."""
    store = the_store(patience_s=PATIENCE_OF_A_RUN_S)
    run_id = find_run(store, run)
    data = leave_out(read_run(store, run_id), words(exclude) or ())
    name = embedder or data.study.embedder
    notes = [_measure(store, run_id, embedder)] if measure else []
    rows = read_similarities(store, run_id, name)
    if not len(rows):
        others = [each for each in measured_embedders(store, run_id) if each != name]
        told = f" (it is by {', '.join(others)})" if others else ""
        raise UsageError(f"run {run_id} isn't measured by {name}{told}: add --measure.")
    if not data.text_left_out and (left := waiting_similarities(store, run_id, name)):
        notes.append(f"{left:,} retrievals aren't measured yet: add --measure.")
    found = retrieval.retrievals(data, rows)
    for column, told_names in (("memory", words(memory)), ("group", words(group)), ("user", words(user))):
        found = _only(found, column, told_names)
    which: retrieval.Which = "all" if every else "top1"
    means, differences = retrieval.similarity_table(found, which), retrieval.similarity_differences(found, which)
    abstained, separated = retrieval.should_abstain(found), retrieval.separations(found)
    frames = {
        RetrievalTable.means: means,
        RetrievalTable.differences: differences,
        RetrievalTable.abstain: abstained,
        RetrievalTable.told_apart: separated,
    }
    if of is RetrievalTable.thresholds:
        frames[of] = retrieval.abstention_curves(found)
    elif of is RetrievalTable.cosines:
        frames[of] = retrieval.cosines(found, which)
    first = (means, differences)
    if every:
        first = retrieval.similarity_table(found), retrieval.similarity_differences(found)
    said = ["By the most similar memory of each question:", *retrieval_answers(*first, abstained, separated)]
    heading = f"cosine by {name}, {'all retrieved memories' if every else 'the most similar memory'}"
    _print(data, frames[of], _RETRIEVAL[of], [heading, *said, *notes], as_json, as_csv, embedder=name, which=which)


def language_command(
    run: Run = None,
    model: Model = None,
    memory: Memory = None,
    mitigation: Mitigation = None,
    against: Annotated[
        str, typer.Option(help="What it is held against, MEMORY/MITIGATION, e.g. rag/none or random/none.")
    ] = f"{BASE}/{NO_MITIGATION}",
    subtypes: Annotated[str, typer.Option(help="Subtypes.")] = ",".join(language.SYCOPHANCY),
    user: User = None,
    order: Annotated[str, typer.Option(help="Lengths of phrases in words.")] = "1,2,3",
    minimum: Annotated[int, typer.Option(min=1, help="Fewest times on both sides together.")] = language.MINIMUM,
    prior: Annotated[float, typer.Option(min=1e-6, help="alpha0: words that the prior weighs.")] = language.PRIOR,
    tone: Annotated[bool, typer.Option("--tone", help="Leave out what comes from memories or the question.")] = False,
    most: Annotated[int, typer.Option(min=1, help="Phrases to print of each side.")] = 15,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Words and phrases that become more frequent with memory: log odds with an informative prior."""
    store = the_store()
    data = read_run(store, find_run(store, run))
    keys = configuration_keys(data)
    key = one_of([each for each in keys if each[1] != BASE], (model, memory, mitigation), _WHICH)
    other = _other(keys, key, against)
    texts = read_texts(store, data.run_id, subtypes=words(subtypes) or (), users=words(user) or (), memories=True)
    n_instances, n_users = language.paired_responses(texts, key, other)
    if not n_instances:
        raise UsageError(f"no question of these was answered by both {'/'.join(key)} and {'/'.join(other)} yet.")
    table = language.word_table(texts, key, other, orders=_orders(order), minimum=minimum, alpha0=prior)
    paper = language.paper_words(texts, key, other, alpha0=prior)
    said = language_answers(paper, table, n_instances, n_users, names_of(key, other))
    shown = language.tone(table) if tone else table
    notes = [
        f"{'/'.join(key)} against {'/'.join(other)}. delta: log odds ratio, above 0 more frequent in the first; "
        "low and high: 95 % by users; z ignores that words of one response hang together. "
        f"alpha0 {prior:g}, at least {minimum} times.",
        *said,
    ]
    if not as_csv and not as_json:
        shown = pd.concat([shown.head(most), shown.iloc[most:].tail(most)])
    told = {"configuration": "/".join(key), "held_against": "/".join(other), "alpha0": prior, "minimum": minimum}
    _print(data, shown, _LANGUAGE, notes, as_json, as_csv, **told)


def repetition_command(
    run: Run = None,
    of: Annotated[RepetitionTable, typer.Option("--of", help="Which table.")] = RepetitionTable.changes,
    model: Model = None,
    memory: Memory = None,
    mitigation: Mitigation = None,
    user: Annotated[str | None, typer.Option(help="User of pairs and memories; users of the map.")] = None,
    first_only: Annotated[bool, typer.Option("--first-only", help="First speakers only.")] = False,
    most: Annotated[int, typer.Option(min=1, help="Rows of pairs and memories.")] = 20,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """How far apart a user's responses to repetition questions lie, which are alike, which memories come back."""
    store = the_store()
    data = read_run(store, find_run(store, run))
    keys = configuration_keys(data)
    notes: list[str] = []
    if of is RepetitionTable.changes:
        frame = response_map.dispersion_changes(data, first_only)
        notes = ["Dispersion: mean pairwise cosine distance of a user's responses, 0 to 100; the repetition score."]
        notes += repetition_answers(frame)
        notes += [] if any(key[1] == language.CONTROL for key in keys) else [_NO_CONTROL]
    elif of is RepetitionTable.users:
        frame = response_map.dispersions(data, first_only)
    elif of is RepetitionTable.points:
        wanted = (model, memory, mitigation)
        chosen = [key for key in keys if all(want in (None, have) for want, have in zip(wanted, key, strict=True))]
        found = response_map.response_map(data, chosen or keys, words(user) or ())
        frame = found.points
        first, second = (theme.share(share) for share in found.explained)
        notes = [
            f"x holds {first} of the variance, y {second}; {found.n} responses, {found.missing} without embedding."
        ]
    else:
        key = one_of([each for each in keys if each[1] != BASE], (model, memory, mitigation), _WHICH)
        frame = _of_a_user(store, data, of, key, user).head(most)
        notes = ["/".join(key)]
    _print(data, frame, _REPETITION[of], notes, as_json, as_csv)


_WHICH = "Name one with --model, --memory and --mitigation"
_NO_CONTROL = (
    "No control: the run has no random memories. Add the memory system random to the study and launch it: only its "
    "records are new."
)


def _measure(store: Store, run_id: str, embedder: str | None) -> str:
    # Its models take seconds to load, and what is measured is told without them.
    from opbench.mechanism.similarity import measure_similarities

    def show(done: int, planned: int) -> None:
        say(f"{done:,}/{planned:,} retrievals measured", err=True)

    measured = measure_similarities(store, run_id, embedder, show)
    control = {"run": "the run's own random memories", "drawn": "random memories, drawn for this", "": measured.note}
    return f"Measured by {measured.embedder}: {measured.made:,} now. Control: {control[measured.control]}"


def _only(frame: pd.DataFrame, column: str, names: Sequence[str] | None) -> pd.DataFrame:
    """Rows of these names. Raises UsageError for one that isn't there."""
    if not names:
        return frame
    known = list(dict.fromkeys(frame[column]))
    for name in names:
        if name not in known:
            raise UsageError(f"no {column} '{name}' is measured here. There are: {', '.join(known[:12])}.")
    return frame[frame[column].isin(names)].reset_index(drop=True)


def _other(keys: Sequence[Key], key: Key, told: str) -> Key:
    memory, _, mitigation = told.partition("/")
    other = (key[0], memory, mitigation or NO_MITIGATION)
    if other not in keys or other == key:
        there = ", ".join("/".join(each[1:]) for each in keys if each[0] == key[0] and each != key)
        raise UsageError(f"--against {told}: {key[0]} has no such other configuration. There are: {there}.")
    return other


def _orders(told: str) -> list[int]:
    orders = [int(each) for each in words(told) or () if each.isdecimal() and int(each) in language.ORDERS]
    if not orders or len(orders) != len(words(told) or ()):
        raise UsageError(f"--order {told}: name 1, 2 or 3, several separated by commas.")
    return sorted(set(orders))


def _of_a_user(store: Store, data: RunData, of: RepetitionTable, key: Key, user: str | None) -> pd.DataFrame:
    known = list(dict.fromkeys(data.instances.loc[data.instances["subtype"] == response_map.REPETITION, "user"]))
    if user is None or user not in known:
        raise UsageError(f"name one user with --user: {', '.join(known)}.")
    wants_memories = of is RepetitionTable.memories
    texts = read_texts(store, data.run_id, subtypes=[response_map.REPETITION], users=[user], memories=wants_memories)
    if wants_memories:
        return recurring(texts, key, user)
    base = (key[0], BASE, NO_MITIGATION)
    against = base if base in configuration_keys(data) else None
    return response_map.alike(data, texts, key, user, against, most=len(texts) ** 2)


def _print(
    data: RunData,
    frame: pd.DataFrame,
    columns: str,
    notes: Sequence[str],
    as_json: bool,
    as_csv: bool,
    **told: Any,
) -> None:
    if as_csv:
        # What the notes say must not be lost where a file goes on alone.
        marked = frame.assign(run=data.run_id, recorded=data.recorded, **told)
        typer.echo(csv_bytes(marked).decode(), nl=False)
    elif as_json:
        print_json({"run": data.run_id, "recorded": data.recorded, **told, "notes": notes, "rows": rows_of(frame)})
    else:
        heads: Mapping[str, str] = {name: _HEADS.get(name, name.replace("_", " ")) for name in columns.split()}
        print_table(frame, heads, title=f"run {data.run_id} {data.name}".rstrip(), notes=notes)
