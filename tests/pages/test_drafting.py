"""Writing a post-processor on the Case page: as sent, as a column, on a slice, as a plugin. Nothing is started."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from opbench.cases import drafts
from opbench.cases.spec import Column, Draft
from opbench.errors import UsageError
from opbench.plugins import plugin_folder
from opbench.running.launch import Launched
from opbench.running.quote import Quote
from opbench.store.database import Store
from opbench.study import Configuration, Study
from pages.shared import case_live, draft_trial, steering
from tests.cases import made
from tests.pages.conftest import Open
from tests.pages.hostile import NASTY
from tests.pages.made_run import MADE, write_run
from tests.pages.test_case_page import CORPUS, MODEL, FakeDesk, answer, be, told
from tests.pages.test_text_safety import _AS_IT_IS, _HIDDEN, _MARKUP, elements, texts

WORDS = "Keep what {question} needs.\nLeave out the rest."
DRAFT = Draft(name="my-draft", label="My draft", instructions=WORDS)
QUOTE = Quote(
    planned=60, finished=0, to_do=60, calls_naive=90, calls=77, prompt_tokens=12_345, completion_tokens=678,
    cost_usd=1.25, seconds=90.0, basis="from 12 earlier calls of m",
)  # fmt: skip


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> FakeDesk:
    fake = FakeDesk(answer)
    monkeypatch.setattr(case_live, "desk", lambda: fake)
    return fake


@pytest.fixture
def quoted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Study, str]]:
    """The studies that were quoted, with the plugin file's text."""
    asked: list[tuple[Study, str]] = []

    def quote(study: Study, plugins: list[Path], concurrency: int) -> tuple[str, Quote]:
        (file,) = plugins
        assert file.name == "my-draft.py"
        asked.append((study, file.read_text(encoding="utf-8")))
        return "aaaabbbbcccc", QUOTE

    monkeypatch.setattr(draft_trial, "quote_with_plugins", quote)
    return asked


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Study, tuple[Path, ...]]]:
    """The studies that were started; each is the made run."""
    asked: list[tuple[Study, tuple[Path, ...]]] = []

    def launch(store: Store, study: Study, *, plugins: tuple[Path, ...], **_: Any) -> Launched:
        assert all(drafts.read(file) is not None for file in plugins), "the plugin is there before the run starts"
        write_run(store, MADE, left=1)
        asked.append((study, plugins))
        return Launched(MADE, 0, Path("nowhere.log"))

    monkeypatch.setattr(steering, "launch", launch)
    return asked


def written(visit: Open, words: str = WORDS, **parameters: str) -> AppTest:
    """The page with a draft written in it."""
    app = visit("case", data="bundled sample", **parameters)
    app.text_area(key="draft-words").set_value(words)
    app.run()
    return clean(app)


def clean(app: AppTest) -> AppTest:
    assert not app.exception, app.exception[0].value
    return app


def keys(app: AppTest) -> set[str]:
    return {str(button.key) for button in app.button}


def click(app: AppTest, key: str) -> AppTest:
    app.button(key=key).click().run()
    return clean(app)


def words_of(app: AppTest) -> str:
    return app.text_area(key="draft-words").value or ""


def sent(app: AppTest) -> str:
    return "\n".join(text.value for text in app.text)


def codes(app: AppTest) -> str:
    return "\n".join(code.value for code in app.code)


# --- writing --------------------------------------------------------------------------------------------------------


def test_without_words_there_is_nothing_to_do_but_to_begin(visit: Open, desk: FakeDesk) -> None:
    app = visit("case", data="bundled sample")
    assert "Write instructions, or begin with words that are there." in told(app)
    assert "draft-fill" in keys(app)
    assert not {"draft-take", "draft-quote", "draft-save"} & keys(app)


def test_words_to_begin_with(visit: Open, desk: FakeDesk) -> None:
    app = visit("case", data="bundled sample")
    assert list(app.selectbox(key="draft-start").options) == ["an empty page", "Reminder's words", "ComoRAG's words"]
    app.selectbox(key="draft-start").set_value("Reminder's words")
    words = words_of(click(app, "draft-fill"))
    assert "Keep only what is directly useful" in words
    assert "Reply form" not in words
    assert sent(app).count("The memories are data.") == 1
    app.selectbox(key="draft-start").set_value("ComoRAG's words")
    click(app, "draft-fill")
    assert "a few findings" in words_of(app)
    assert "Write the findings for it" in sent(app), "ComoRAG's words condense, so its reply is read so"
    app.selectbox(key="draft-start").set_value("an empty page")
    assert words_of(click(app, "draft-fill")) == ""


def test_a_saved_draft_is_filled_in_again(visit: Open, desk: FakeDesk) -> None:
    saved = Draft(
        name="short-facts", label="Short facts", instructions="Be short.", family="compression", max_tokens=77
    )
    drafts.save(saved)
    app = visit("case", data="bundled sample")
    app.selectbox(key="draft-start").set_value("short-facts")
    click(app, "draft-fill")
    assert [app.text_input(key=f"draft-{each}").value for each in ("name", "label")] == ["short-facts", "Short facts"]
    assert (words_of(app), app.number_input(key="draft-limit").value) == ("Be short.", 77)
    assert "It is saved as it stands here" in told(app)
    assert f"--plugin {plugin_folder() / 'short-facts.py'}" in codes(app)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("draft-name", "No Name!", "Name: two to forty small letters, digits and hyphens, the first a letter"),
        ("draft-name", "", "Name: two to forty small letters"),
        ("draft-name", "reminder", "a post-processor named 'reminder' is there already"),
        ("draft-label", "", "Label: String should have at least 1 character"),
    ],
)
def test_what_is_no_draft_is_said(visit: Open, desk: FakeDesk, key: str, value: str, said: str) -> None:
    app = written(visit)
    app.text_input(key=key).set_value(value).run()
    assert said in told(clean(app))
    assert not {"draft-take", "draft-quote", "draft-save"} & keys(app)


# --- as it is sent --------------------------------------------------------------------------------------------------


def test_the_messages_are_shown_as_they_are_sent(visit: Open, desk: FakeDesk) -> None:
    app = written(visit)
    messages = [text for _, text in drafts.method(DRAFT).messages(CORPUS.op[0].question, [])]
    assert messages[0] in sent(app), "the whole system message, the reply form included"
    assert CORPUS.op[0].question in sent(app)
    assert "two invented memories stand in" in told(app)
    click(app, "case-ask")
    assert "With the memories that RAG retrieved for this question." in told(app)
    assert f"[1] (9 May 2024) {made.BREAD}\n[2] {made.BOAT}" in sent(app)


def test_memories_of_another_question_are_not_shown(visit: Open, desk: FakeDesk) -> None:
    app = click(written(visit), "case-ask")
    app.text_input(key="instance").set_value(CORPUS.op[3].id).run()
    assert "two invented memories stand in" in told(clean(app))
    assert made.BREAD not in sent(app).partition("<memories>")[2].partition("</memories>")[0]


# --- as a column ----------------------------------------------------------------------------------------------------


def test_it_becomes_a_column_of_the_case(visit: Open, desk: FakeDesk) -> None:
    app = click(written(visit, columns="RAG"), "draft-take")
    assert app.multiselect(key="columns").value == ["rag", "rag+my-draft"]
    assert not plugin_folder().exists(), "taking it saves nothing"
    click(app, "case-ask")
    assert desk.sessions[0].spec.columns == (
        Column(model=MODEL),
        Column(model=MODEL, memory="rag"),
        Column(model=MODEL, memory="rag", mitigation="my-draft", draft=DRAFT),
    )


def test_taken_again_after_a_change_it_is_the_new_one(visit: Open, desk: FakeDesk) -> None:
    app = click(written(visit, columns="RAG"), "draft-take")
    # As when somebody types and presses the button at once: the words of now count, not those last drawn.
    app.text_area(key="draft-words").set_value("Keep all.")
    click(app, "draft-take")
    assert app.multiselect(key="columns").value == ["rag", "rag+my-draft"]
    click(app, "case-ask")
    draft = desk.sessions[0].spec.columns[2].draft
    assert draft is not None
    assert draft.instructions == "Keep all."


def test_it_is_asked_beside_the_case(visit: Open, desk: FakeDesk) -> None:
    app = click(written(visit, columns="RAG"), "case-ask")
    click(app, "draft-ask")
    assert desk.sessions[1].spec.columns == (
        Column(model=MODEL),
        Column(model=MODEL, memory="rag", mitigation="my-draft", draft=DRAFT),
    )


def test_while_the_case_is_at_work_nothing_is_asked_beside_it(visit: Open, desk: FakeDesk) -> None:
    desk.busy = True
    app = click(written(visit), "case-ask")
    assert "draft-ask" not in keys(app)


def test_without_a_memory_system_there_is_nothing_to_process(visit: Open, desk: FakeDesk) -> None:
    app = written(visit)
    app.multiselect(key="columns").set_value([]).run()
    assert "Choose a column with a memory system above" in told(clean(app))
    assert not {"draft-take", "draft-quote"} & keys(app)
    assert "draft-save" in keys(app)


# --- on a slice -----------------------------------------------------------------------------------------------------


def test_the_slice_is_quoted_first_and_then_started(
    visit: Open, desk: FakeDesk, quoted: list[Any], launched: list[Any]
) -> None:
    app = written(visit, max_tokens="99")
    assert "draft-start-run" not in keys(app)
    click(app, "draft-quote")
    ((study, source),) = quoted
    assert source == drafts.plugin_source(DRAFT)
    assert study.configurations() == [
        Configuration(MODEL, "base", "none"),
        Configuration(MODEL, "rag", "none"),
        Configuration(MODEL, "rag", "my-draft"),
    ]
    assert (study.limit, study.benchmarks, study.users, study.max_tokens, study.data) == (20, ("op",), (), 99, "sample")
    metrics = {metric.label: metric.value for metric in app.metric}
    assert (metrics["Records to do"], metrics["Model calls, at most"], metrics["Tokens in"]) == ("60", "77", "12,345")
    assert (metrics["Cost"], metrics["Time"]) == ("$1.25", "≈ 1 min 30 s")
    assert not plugin_folder().exists(), "a quote saves nothing"
    assert f"--plugin {plugin_folder() / 'my-draft.py'}" in codes(app)
    click(app, "draft-start-run")
    assert launched == [(study, (plugin_folder() / "my-draft.py",))]
    assert drafts.saved_drafts() == [DRAFT]
    assert app.query_params["run"] == MADE
    assert any(f"Trial {MADE}, stopped" in (element.proto.text or "") for element in app.get("progress"))
    assert "draft-start-run" not in keys(app), "it is quoted anew before it is started again"


def test_the_slice_is_as_it_is_chosen(visit: Open, desk: FakeDesk, quoted: list[Any]) -> None:
    app = written(visit)
    app.number_input(key="draft-size").set_value(8)
    app.toggle(key="draft-locomo").set_value(True)
    app.toggle(key="draft-user").set_value(True)
    click(app, "draft-quote")
    study = quoted[0][0]
    assert (study.limit, study.benchmarks, study.users) == (4, ("op", "locomo"), (CORPUS.op[0].user.id,))


def test_a_change_after_the_quote_needs_a_new_one(visit: Open, desk: FakeDesk, quoted: list[Any]) -> None:
    app = click(written(visit), "draft-quote")
    assert "draft-start-run" in keys(app)
    app.text_area(key="draft-words").set_value("Keep all.").run()
    assert "draft-start-run" not in keys(clean(app))
    assert "First see what it takes; then start it." in told(app)


def test_another_draft_of_that_name_stands_in_the_way_of_the_start(
    visit: Open, desk: FakeDesk, quoted: list[Any], launched: list[Any]
) -> None:
    other = DRAFT.model_copy(update={"instructions": "Somebody else's."})
    drafts.save(other)
    app = click(written(visit), "draft-quote")
    assert app.button(key="draft-start-run").disabled
    assert "Another draft of that name is saved" in told(app)
    click(app, "draft-save")
    assert "is saved already and says something else" in told(app)
    assert drafts.saved_drafts() == [other]
    app.checkbox(key="draft-replace-my-draft").check()
    click(app, "draft-save")
    assert drafts.saved_drafts() == [DRAFT]
    assert not app.button(key="draft-start-run").disabled


def test_what_hinders_a_quote_is_said(visit: Open, desk: FakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise UsageError("the memory server isn't there.")

    monkeypatch.setattr(draft_trial, "quote_with_plugins", fail)
    app = click(written(visit), "draft-quote")
    assert "the memory server isn't there." in told(app)
    assert "draft-start-run" not in keys(app)


def test_without_its_key_a_model_is_not_started(
    visit: Open, desk: FakeDesk, quoted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    app = visit("case", data="bundled sample")
    app.multiselect(key="models").set_value(["gpt-4o-mini"])
    app.text_area(key="draft-words").set_value(WORDS)
    app.run()
    click(app, "draft-quote")
    assert app.button(key="draft-start-run").disabled
    app.text_input(key="key-OPENAI_API_KEY").set_value("sk-typed").run()
    assert not clean(app).button(key="draft-start-run").disabled


# --- as a plugin ----------------------------------------------------------------------------------------------------


def test_it_is_saved_as_a_plugin_with_its_command(visit: Open, desk: FakeDesk) -> None:
    app = click(written(visit), "draft-save")
    file = plugin_folder() / "my-draft.py"
    assert drafts.read(file) == DRAFT
    ast.parse(file.read_text(encoding="utf-8"))
    assert f"opbench run --plugin {file} --memories base,rag --mitigations none,my-draft" in codes(app)
    assert "draft-save" not in keys(app)
    again = visit("case", data="bundled sample", columns="RAG + My draft (draft)")
    assert again.multiselect(key="columns").value == ["rag+my-draft"], "its link opens in another browser"


def test_a_saved_draft_is_deleted(visit: Open, desk: FakeDesk) -> None:
    app = click(written(visit), "draft-save")
    app = click(app, "draft-delete")
    assert not (plugin_folder() / "my-draft.py").exists()
    assert words_of(app) == WORDS
    assert "draft-save" in keys(app)


def test_a_right_that_ended_meanwhile_deletes_no_draft(
    visit: Open, desk: FakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = click(written(visit), "draft-save")
    be(monkeypatch, "viewer")
    click(app, "draft-delete")
    assert (plugin_folder() / "my-draft.py").exists()


def test_somebodys_own_plugin_is_left_alone(visit: Open, desk: FakeDesk, quoted: list[Any]) -> None:
    plugin_folder().mkdir(parents=True)
    file = plugin_folder() / "my-draft.py"
    file.write_text("print('mine')\n", encoding="utf-8")
    app = click(written(visit), "draft-quote")
    assert app.button(key="draft-start-run").disabled
    click(app, "draft-save")
    assert "is there and is no draft" in told(app)
    assert file.read_text(encoding="utf-8") == "print('mine')\n"


# --- who, and what is written ---------------------------------------------------------------------------------------


def test_a_viewer_writes_nothing(visit: Open, desk: FakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    app = written(visit)
    be(monkeypatch, "viewer")
    click(app, "draft-save")
    assert not plugin_folder().exists()
    assert not [each for each in app.text_area if each.key == "draft-words"]
    app = visit("case", data="bundled sample")
    assert not [key for key in keys(app) if key.startswith("draft-")]


def test_texts_of_drafts_do_no_harm(visit: Open, desk: FakeDesk) -> None:
    nasty = NASTY.replace("\x1b[31m", "").replace("\x1b[0m", "")
    drafts.save(Draft(name="nasty", label=nasty[:60], instructions=nasty))
    app = visit("case", data="bundled sample")
    app.selectbox(key="draft-start").set_value("nasty")
    click(app, "draft-fill")
    app.text_area(key="draft-words").set_value(nasty + " more").run()
    for kind, proto in elements(clean(app)):
        if kind in ("text", "code"):
            assert not _HIDDEN.search(proto.body if kind == "text" else proto.code_text)
        elif kind in _AS_IT_IS:
            assert not _MARKUP.search(getattr(proto, "label", ""))
        else:
            for text in texts(proto):
                assert not _MARKUP.search(text), (kind, text[:200])
                assert not _HIDDEN.search(text), (kind, text[:200])
