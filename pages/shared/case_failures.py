"""What went wrong in a column, so that each kind of it looks like what it is, with what to do."""

from __future__ import annotations

from typing import get_args

import streamlit as st

from opbench.cases.outcome import Outcome
from opbench.errors import ModelErrorKind
from opbench.sharing.visible import visible
from pages.shared import parts

#: By `Outcome.error_kind`: an icon, and what it means.
_KINDS: dict[str, tuple[str, str]] = {
    "auth": ("key_off", "The endpoint refuses the key. Type another one above, and ask again."),
    "not_found": ("link_off", "The endpoint knows no such model or address: check its entry in models.toml."),
    "quota": ("money_off", "The account's quota is used up: waiting doesn't help."),
    "rate_limit": ("speed", "The endpoint takes no more calls for now. Ask again later, or fewer columns at once."),
    "timeout": ("timer_off", "No answer in time: the endpoint is slow, or hangs."),
    "connection": ("cloud_off", "The endpoint can't be reached: it is dead, or its address is wrong."),
    "server": ("dns", "The endpoint has a fault of its own. Ask again later."),
    "bad_request": ("report", "The endpoint refuses the request."),
    "too_long": (
        "format_overline",
        "The prompt is longer than the model can take. Ask with fewer memories (k), or a shorter question.",
    ),
    "content_filter": ("gpp_bad", "Refused: the provider's filter let no answer through."),
    "bad_reply": ("broken_image", "The endpoint's reply is no chat completion: is this address an OpenAI API?"),
    "empty": ("check_box_outline_blank", "The model answered with nothing."),
    "memory": ("memory", "The memory system gave nothing to work with."),
    "usage": ("help", "This column can't be asked."),
    "store": ("storage", "The store couldn't be read or written."),
    "internal": ("bug_report", "A fault of the workbench; details are in the server's log."),
}
assert set(get_args(ModelErrorKind)) <= _KINDS.keys()


def failed(outcome: Outcome) -> None:
    """Why a column has no response."""
    icon, means = _KINDS.get(outcome.error_kind or "", ("error", "It failed."))
    st.error(means, icon=f":material/{icon}:")
    if outcome.error:
        st.caption(parts.plain(visible(outcome.error)))
    if outcome.error_kind == "memory":
        st.page_link("pages/views/memories.py", label="Ingest on the Memories page", icon=":material/input:")


def ended(outcome: Outcome, most_tokens: int) -> None:
    """How a response ended, where it isn't by itself."""
    if outcome.finish_reason == "length":
        st.warning(
            f"Cut off: the longest response is {most_tokens:,} tokens. Raise it to read the rest.",
            icon=":material/content_cut:",
        )
    elif outcome.finish_reason == "content_filter":
        st.warning("Refused: the provider's filter cut the answer off.", icon=":material/gpp_bad:")
    elif outcome.state == "done" and not outcome.response.strip():
        st.warning("The model answered with nothing.", icon=":material/check_box_outline_blank:")


def processed(outcome: Outcome, *, given: bool) -> None:
    """What is to be known of retrieval and post-processing before the memories are read. `given`: whether somebody gave
    the memories in the place of a retrieval."""
    if outcome.retrieved is not None and not outcome.retrieved:
        empty = "No memory was given" if given else "The search found no memory"
        st.info(f"{empty}: the prompt is the one without memories, as BASE's.", icon=":material/search_off:")
    reason = f" ({parts.plain(visible(outcome.post_reason))})" if outcome.post_reason else ""
    if outcome.post_state == "failed":
        revising = outcome.draft is not None
        instead = "the draft stands as it was" if revising else "the memories went on as they were retrieved"
        st.warning(f"The post-processor failed{reason}: {instead}.", icon=":material/undo:")
    elif outcome.post_state == "nothing":
        st.info(
            f"The post-processor keeps nothing{reason}: the prompt is the one without memories.",
            icon=":material/filter_alt_off:",
        )
    elif outcome.post_state == "unchanged":
        st.caption(f"The post-processor left the draft as it was{reason}.")
