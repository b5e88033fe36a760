"""A new build: conversations, models by role, how many questions of each kind, filters; what it takes; its start.

Every deed is checked on the server: only editors may.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from opbench.construction.command import command, make_spec
from opbench.construction.spec import BuildSpec, Counts, Filters
from opbench.figures import theme
from opbench.models import Registry, load_registry
from opbench.types import OP_SUBTYPES
from pages.shared import access, build_source, chosen_models, link, parts, study_form
from pages.shared.build_estimate import offer

_COUNTS: dict[str, tuple[str, str]] = {
    "topics": ("Topics a user", "Of each user, as the profile has them (paper: about 5)."),
    "irrelevant": ("Fully irrelevant, a topic", "For each of ten general topics that isn't the user's (paper: 3)."),
    "baiting": ("Baiting, a user", "Spread over its four kinds (paper: 5)."),
    "fact": ("Fact-level, a user", "Sycophancy (paper: 5)."),
    "value": ("Value-level, a user", "Sycophancy (paper: 5)."),
    "fine": ("Memory-level, fine-grained", "A detail of a real observation is false (paper: 5)."),
    "coarse": ("Memory-level, coarse-grained", "The whole event is false (paper: 5)."),
    "subtopics": ("Subtopics a topic", "For repetition (paper: 3)."),
    "repetition": ("Repetition, a subtopic", "Open, non-leading questions (paper: 3)."),
}
#: Of these there may be more than of what each topic has.
_OF_A_USER = ("baiting", "fact", "value", "fine", "coarse")


def form() -> None:
    """The form, the estimate, and the button that starts the build."""
    editor = access.may_edit()
    if not editor:
        st.caption("You look as a viewer: what a build takes, you can see; only editors start one.")
    off: dict[str, Any] = {"disabled": not editor}
    registry = load_registry()
    first, second = st.columns(2, gap="medium")
    with first.container(border=True, height="stretch"):
        st.subheader("Whose conversations", anchor=False)
        chosen = build_source.choose(off)
        users = link.some_of("Users", list(chosen.source.users) if chosen else [], "users", placeholder="all", **off)
        subtypes = {name: theme.name(name) for name in OP_SUBTYPES}
        kinds = link.some_of("Subtypes", list(subtypes), "subtypes", names=subtypes, placeholder="all", **off)
    with second.container(border=True, height="stretch"):
        st.subheader("Who does what", anchor=False)
        roles = _ask_for_models(registry, off)
    third, fourth, fifth = st.columns(3, gap="medium")
    with third.expander("How many questions", icon=":material/format_list_numbered:"):
        counts = _ask_for_counts(off)
    with fourth.expander("Filters", icon=":material/filter_alt:"):
        filters = _ask_for_filters(off)
    with fifth.expander("Sampling and name", icon=":material/tune:"):
        further = _ask_for_sampling(off)
    if chosen is None:
        return
    spec = make_spec(
        {"users": users, "subtypes": kinds, **roles, "counts": counts, "filters": filters, **further},
        where="this form",
    )
    asked = [name for name in dict.fromkeys(_models(spec)) if name in registry.models]
    chosen_models.show_notes(registry, asked)
    missing: list[str] = []
    if editor:
        missing = chosen_models.ask_for_keys(registry, asked)
        chosen_models.offer_to_ask(registry, asked)
    with st.container(border=True):
        st.subheader("What it takes", anchor=False)
        offer(spec, chosen.source, missing)
    st.caption("The same from the command line; with --dry-run it only tells what it takes:")
    parts.code(command(spec, chosen.told), "bash")


def _models(spec: BuildSpec) -> list[str]:
    return [spec.extractor, *spec.generators, spec.similarity, spec.checker]


def _ask_for_models(registry: Registry, off: dict[str, Any]) -> dict[str, Any]:
    labels = study_form.distinct({name: spec.label for name, spec in registry.models.items()})
    default = study_form.EMBEDDED if study_form.EMBEDDED in labels else next(iter(labels))
    link.check("generators", list(labels), labels)
    generators = st.multiselect(
        "Generators",
        list(labels),
        default=[default],
        format_func=labels.__getitem__,
        key="generators",
        bind="query-params",
        help="They write the questions. Each of several writes all of them, so that they can be compared (table 4).",
        **off,
    )

    def one(label: str, key: str, what: str) -> str:
        return link.one_of(label, list(labels), key, names=labels, default=default, help=what, **off)

    left, right = st.columns(2)
    with left:
        extractor = one("Extractor", "extractor", "Makes summaries, profiles, topics and observations.")
        checker = one("Checker", "checker", "Says which false memories are true, and what needs personalisation.")
    with right:
        similarity = one("Similarity judge", "similarity", "Says which general topics are none of the user's.")
        embedder = link.one_of(
            "Embedder", list(registry.embedders), "embedder", help="Near-duplicates are found with it.", **off
        )
    return {
        "generators": generators,
        "extractor": extractor,
        "similarity": similarity,
        "checker": checker,
        "embedder": embedder,
    }


def _ask_for_counts(off: dict[str, Any]) -> dict[str, int]:
    usual = Counts()
    found = {}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for name, (label, what) in _COUNTS.items():
            low, high = 1 if name == "topics" else 0, 50 if name in _OF_A_USER else 20
            found[name] = link.number(label, low, high, getattr(usual, name), name, width=190, help=what, **off)
    return found


def _ask_for_filters(off: dict[str, Any]) -> dict[str, Any]:
    usual = Filters()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        found: dict[str, Any] = {
            "fewest_words": link.number("Fewest words", 1, 50, usual.fewest_words, "fewest-words", width=130, **off),
            "most_words": link.number("Most words", 5, 1000, usual.most_words, "most-words", width=130, **off),
            "cosine": link.decimal(
                "Near-duplicate from cosine",
                0.01,
                1.0,
                usual.cosine,
                0.01,
                "cosine",
                width=200,
                help="Within a user and across users (paper: 0.85).",
                **off,
            ),
            "template_share": link.decimal(
                "Same beginning, at most",
                0.01,
                1.0,
                usual.template_share,
                0.01,
                "template-share",
                width=200,
                help=f"Share of a subtype's questions that may begin with the same {usual.template_words} words.",
                **off,
            ),
        }
    for name, label, what in (
        ("check_memories", "Leave true memories unchecked", "False memories aren't checked against the history."),
        ("check_need", "Leave need unchecked", "Irrelevant questions aren't asked whether they need personalisation."),
    ):
        found[name] = not link.switch(label, f"no-{name.replace('_', '-')}", help=what, **off)
    return found


def _ask_for_sampling(off: dict[str, Any]) -> dict[str, Any]:
    usual = BuildSpec()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        return {
            "rounds": link.number(
                "Rounds", 1, 100, usual.rounds, "rounds", width=110, help="How often each writes everything.", **off
            ),
            "temperature": link.decimal(
                "Temperature",
                0.0,
                2.0,
                usual.temperature,
                0.1,
                "temperature",
                width=130,
                help="Of generators; the other roles answer at 0.",
                **off,
            ),
            "max_tokens": link.number(
                "Longest answer, tokens", 16, 100_000, usual.max_tokens, "max_tokens", width=190, **off
            ),
            "seed": link.number("Seed", 0, 2**31 - 1, usual.seed, "seed", width=110, **off),
            "name": link.text("Name", "name", width=220, placeholder="for people", **off),
        }
