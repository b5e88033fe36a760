"""Drafts as plugin files: written whole, read back without being run, and tried on a small slice."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mitigations
from mitigations import PromptOnly, load_plugin
from opbench.benchmarks import load, select
from opbench.cases import drafts
from opbench.cases.spec import LONGEST_TEXT, CaseSpec, Column, Draft
from opbench.errors import UsageError
from opbench.plugins import load_plugins, loaded_plugins, plugin_files, plugin_folder
from opbench.running.launch import plugin_methods, quote_with_plugins
from opbench.study import Configuration
from opbench.types import OP_SUBTYPES

DRAFT = Draft(name="my-draft", label="My draft", instructions="Keep what is asked for.\nLeave out the rest.")
OTHER = DRAFT.model_copy(update={"instructions": "Keep everything."})
SPEC = CaseSpec(
    question="Which nuts?",
    user="sample-1/Ottilie",
    data="sample",
    columns=(Column(model="smollm2-135m"), Column(model="smollm2-135m", memory="rag")),
    k=4,
    max_tokens=99,
    embedder="minilm",
)
#: Also what a text is closed, hidden or turned round with.
LETTERS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=60),
    st.text(st.sampled_from("'\"\\\n\r\t{}#%\0\u2028\u202e\ufeff😀nN x"), max_size=60),
    st.sampled_from(['"""', "'''", "\\", "\\N{BULLET}", "')\nimport os", "{question}", "# -*- coding: latin-1 -*-"]),
)
DRAFTS = st.builds(
    Draft,
    name=st.from_regex(r"[a-z][a-z0-9-]{1,39}", fullmatch=True),
    label=st.tuples(LETTERS, st.just("x")).map("".join).map(lambda text: text[-60:]),
    instructions=st.tuples(LETTERS, st.just("x"), LETTERS).map("".join),
    family=st.sampled_from(["filter", "compression"]),
    max_tokens=st.integers(1, 8192),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "plugins"


# --- the file -------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(draft=DRAFTS)
def test_what_is_written_is_read_and_registers_the_same(tmp_path_factory: pytest.TempPathFactory, draft: Draft) -> None:
    file = tmp_path_factory.mktemp("draft") / f"{draft.name}.py"
    file.write_text(drafts.plugin_source(draft), encoding="utf-8")
    assert drafts.read(file) == draft
    registered: list[PromptOnly] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mitigations, "register", registered.append)
        exec(compile(file.read_bytes(), str(file), "exec"), {})
    (made,) = registered
    assert (made.name, made.label, made.instructions) == (draft.name, draft.label, draft.instructions)
    assert (made.family, made.max_tokens) == (draft.family, draft.max_tokens)
    assert made.prompt_sha256 == drafts.method(draft).prompt_sha256


@pytest.mark.parametrize("sign", ["\u2028", "\U000e0001", "\n", "'", "x"])
def test_the_longest_draft_is_read_back(folder: Path, sign: str) -> None:
    longest = DRAFT.model_copy(update={"instructions": sign * (LONGEST_TEXT - 1) + "x"})
    assert drafts.read(drafts.save(longest, folder)) == longest


def test_a_saved_file_can_be_read_by_people(folder: Path) -> None:
    text = drafts.save(DRAFT, folder).read_text(encoding="utf-8")
    assert "            'Keep what is asked for.\\n'\n            'Leave out the rest.'\n" in text
    assert "#   opbench run --plugin my-draft.py --mitigations none,my-draft\n" in text


def test_a_saved_file_is_a_plugin_of_the_package_and_of_the_workbench(folder: Path, home: Path) -> None:
    file = drafts.save(DRAFT, folder)
    assert load_plugin(file) == ("my-draft",)
    made = mitigations.get("my-draft")
    assert isinstance(made, PromptOnly)
    assert (made.label, made.prompt_sha256) == ("My draft", drafts.method(DRAFT).prompt_sha256)
    assert plugin_methods([file]) == {"mitigations": {"my-draft": "My draft"}, "memories": {}, "judges": {}}


def test_by_default_it_stands_where_the_launch_page_looks(home: Path) -> None:
    file = drafts.save(DRAFT)
    assert file == plugin_folder() / "my-draft.py" == home / "plugins" / "my-draft.py"
    assert plugin_files() == [file]
    assert drafts.saved_drafts() == [DRAFT]
    assert drafts.is_saved(DRAFT)
    assert not drafts.is_saved(OTHER)


# --- reading --------------------------------------------------------------------------------------------------------

HEAD = "from mitigations import PromptOnly, register\n"
CALL = "register(PromptOnly(name='my-draft', label='My draft', instructions='Keep.'))\n"


def test_an_edited_file_is_still_a_draft(tmp_path: Path) -> None:
    file = tmp_path / "my-draft.py"
    file.write_text(f"# mine\n{HEAD}{CALL}", encoding="utf-8")
    assert drafts.read(file) == Draft(name="my-draft", label="My draft", instructions="Keep.")


@pytest.mark.parametrize(
    "source",
    [
        "",
        "import os\n" + HEAD + CALL,
        HEAD + CALL + "print('more')\n",
        HEAD + CALL + CALL,
        HEAD + CALL.replace("'Keep.'", "open('/etc/passwd').read()"),
        HEAD + CALL.replace("'Keep.'", "f'Keep {1}'"),
        HEAD + CALL.replace("'Keep.'", "'Keep' * 3"),
        HEAD + CALL.replace("'Keep.'", "{[]: 1}"),
        HEAD + CALL.replace("'Keep.'", "7"),
        HEAD + CALL.replace("'Keep.'", "' '"),
        HEAD + CALL.replace("name='my-draft'", "name='No name!'"),
        HEAD + CALL.replace("))", ", family='revision'))"),
        HEAD + CALL.replace("))", ", blank_means_nothing=True))"),
        HEAD + CALL.replace("))", ", **{'max_tokens': 5}))"),
        HEAD + CALL.replace("PromptOnly(name='my-draft', label=", "PromptOnly('my-draft', "),
        HEAD + CALL.replace("register(PromptOnly", "register(*PromptOnly"),
        HEAD.replace("PromptOnly,", "Memory as PromptOnly,") + CALL,
        HEAD.replace("mitigations", "elsewhere") + CALL,
        HEAD.replace("from mitigations", "from .mitigations") + CALL,
        "from mitigations import *\n" + CALL,
        HEAD + "register(PromptOnly(\n",
        "x = " + "(" * 5000 + ")" * 5000,
        "-" * 100_000 + "1",
        "# -*- coding: nonsense -*-\n" + HEAD + CALL,
        HEAD + CALL + "#" * 1_000_000,
    ],
)
def test_what_is_no_draft_is_none_and_is_never_run(tmp_path: Path, source: str) -> None:
    file = tmp_path / "foreign.py"
    file.write_text(source, encoding="utf-8")
    assert drafts.read(file) is None
    assert drafts.saved_drafts(tmp_path) == []


def test_reading_runs_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    file = tmp_path / "foreign.py"
    evil = f"[open({str(trace)!r}, 'w'), 'Keep.'][1]"
    file.write_text(HEAD + CALL.replace("'Keep.'", evil), encoding="utf-8")
    assert drafts.saved_drafts(tmp_path) == []
    assert not trace.exists()
    assert "my-draft" not in mitigations.names()


def test_what_is_no_text_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.py").mkdir()
    (tmp_path / "c.py").symlink_to(tmp_path / "nowhere")
    assert [drafts.read(tmp_path / name) for name in ("a.py", "b.py", "c.py", "d.py")] == [None] * 4
    assert drafts.saved_drafts(tmp_path) == []
    assert drafts.saved_drafts(tmp_path / "nowhere") == []


def test_saved_drafts_come_by_name_beside_other_plugins(folder: Path) -> None:
    for name in ("zebra", "ant", "my-draft"):
        drafts.save(DRAFT.model_copy(update={"name": name}), folder)
    (folder / "own.py").write_text("import mitigations\n", encoding="utf-8")
    assert [draft.name for draft in drafts.saved_drafts(folder)] == ["ant", "my-draft", "zebra"]


# --- saving ---------------------------------------------------------------------------------------------------------


def test_saving_again_changes_nothing_and_leaves_nothing_behind(folder: Path) -> None:
    file = drafts.save(DRAFT, folder)
    before = file.stat()
    assert drafts.save(DRAFT, folder) == file
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert [each.name for each in folder.iterdir()] == ["my-draft.py"]


def test_the_files_mode_is_that_of_any_file(folder: Path) -> None:
    umask = os.umask(0o027)
    try:
        file = drafts.save(DRAFT, folder)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_another_draft_of_that_name_is_replaced_only_when_asked(folder: Path) -> None:
    file = drafts.save(DRAFT, folder)
    with pytest.raises(UsageError, match="a draft named 'my-draft' is saved already and says something else"):
        drafts.save(OTHER, folder)
    assert drafts.read(file) == DRAFT
    drafts.save(OTHER, folder, replace=True)
    assert drafts.read(file) == OTHER


@pytest.mark.parametrize("replace", [False, True])
def test_somebodys_own_file_is_never_overwritten(folder: Path, replace: bool) -> None:
    folder.mkdir()
    (folder / "my-draft.py").write_text("print('my work')\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"my-draft\.py is there and is no draft") as told:
        drafts.save(DRAFT, folder, replace=replace)
    assert "\n" not in str(told.value)
    assert (folder / "my-draft.py").read_text(encoding="utf-8") == "print('my work')\n"
    (folder / "my-draft.py").unlink()
    (folder / "my-draft.py").symlink_to(folder / "nowhere")
    with pytest.raises(UsageError, match="is there and is no draft"):
        drafts.save(DRAFT, folder, replace=replace)


def test_a_saved_draft_is_deleted_and_nothing_else(folder: Path) -> None:
    kept = drafts.save(OTHER.model_copy(update={"name": "other-draft"}), folder)
    file = drafts.save(DRAFT, folder)
    assert drafts.delete("my-draft", folder) == file
    assert (file.exists(), kept.exists()) == (False, True)
    with pytest.raises(UsageError, match=r"no draft named 'my-draft' is saved\. There are: other-draft\."):
        drafts.delete("my-draft", folder)
    file.write_text("print('my work')\n", encoding="utf-8")
    for name in ("my-draft", "../my-draft"):
        with pytest.raises(UsageError, match="no draft named"):
            drafts.delete(name, folder)
    assert file.exists()


@pytest.mark.parametrize("name", ["none", "reminder", "few-shot-cot", "self-recheck-twice"])
def test_names_of_methods_are_taken(folder: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"a post-processor named '{name}' is there already"):
        drafts.save(DRAFT.model_copy(update={"name": name}), folder)
    assert not folder.exists()


def test_a_draft_whose_plugin_is_loaded_can_be_saved_again(folder: Path, home: Path) -> None:
    file = drafts.save(DRAFT, folder)
    load_plugins([file])
    assert list(loaded_plugins()) == ["my-draft.py"]
    assert drafts.read(drafts.save(OTHER, folder, replace=True)) == OTHER


def test_a_name_that_another_file_holds_is_taken(folder: Path) -> None:
    drafts.save(DRAFT, folder).rename(folder / "renamed.py")
    with pytest.raises(UsageError, match=r"renamed\.py holds a draft named 'my-draft' already"):
        drafts.save(DRAFT, folder)


def test_blank_instructions_are_refused(folder: Path) -> None:
    blank = DRAFT.model_copy(update={"instructions": " \n"})
    for deed in (drafts.method, lambda draft: drafts.save(draft, folder)):
        with pytest.raises(UsageError, match="draft my-draft: the instructions are blank"):
            deed(blank)
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match=r"my-draft\.py: can't be written \(.+\)\. Mend that") as told:
        drafts.save(DRAFT, tmp_path / "file" / "plugins")
    assert "\n" not in str(told.value)


def test_a_file_is_never_seen_half_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafts.save(DRAFT, folder)

    def fail(self: Path, text: str, **_: object) -> None:
        self.write_bytes(text[:20].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(UsageError, match="No space left on device"):
        drafts.save(OTHER, folder, replace=True)
    assert drafts.saved_drafts(folder) == [DRAFT]
    assert [each.name for each in folder.iterdir()] == ["my-draft.py"]


def test_of_many_who_save_one_name_at_once_one_wins(folder: Path) -> None:
    mine = [DRAFT.model_copy(update={"instructions": f"Keep {number}."}) for number in range(8)]
    refused: list[str] = []
    start = threading.Barrier(len(mine))

    def save(draft: Draft) -> None:
        start.wait()
        try:
            drafts.save(draft, folder)
        except UsageError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=save, args=(draft,)) for draft in mine]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7
    assert drafts.saved_drafts(folder)[0] in mine


# --- the trial ------------------------------------------------------------------------------------------------------


def test_the_trial_sets_the_draft_beside_none_and_base() -> None:
    study = drafts.trial(SPEC, SPEC.columns[1], DRAFT)
    assert study.configurations() == [
        Configuration("smollm2-135m", "base", "none"),
        Configuration("smollm2-135m", "rag", "none"),
        Configuration("smollm2-135m", "rag", "my-draft"),
    ]
    assert (study.benchmarks, study.limit, study.users, study.data) == (("op",), 20, (), "sample")
    assert (study.k, study.temperature, study.max_tokens) == (4, 0.0, 99)
    assert (study.judge, study.judge_pack, study.embedder) == ("offline", "auto", "minilm")


def test_what_the_column_has_of_its_own_counts() -> None:
    column = Column(model="smollm2-135m", memory="rag", k=7, temperature=0.5)
    study = drafts.trial(SPEC, column, DRAFT, 12, this_user=True)
    assert (study.k, study.temperature, study.limit, study.users) == (7, 0.5, 12, ("sample-1/Ottilie",))


def test_twenty_instances_over_all_subtypes_and_both_benchmarks() -> None:
    corpus = load("sample")

    def slice_of(**more: bool) -> list[str]:
        study = drafts.trial(SPEC, SPEC.columns[1], DRAFT, **more)
        taken = select(corpus, study.benchmarks, study.users, study.subtypes, study.limit, study.seed)
        return [each.subtype if each.benchmark == "op" else "locomo" for each in taken]

    assert len(slice_of()) == 20
    assert set(slice_of()) == set(OP_SUBTYPES)
    both = slice_of(locomo=True)
    assert (len(both), both.count("locomo")) == (20, 10)


def test_base_takes_no_draft() -> None:
    with pytest.raises(UsageError, match="BASE has no memories to process"):
        drafts.trial(SPEC, SPEC.columns[0], DRAFT)


def test_a_quote_before_saving_is_that_of_the_saved_file(home: Path) -> None:
    study = drafts.trial(SPEC, SPEC.columns[1], DRAFT)
    with drafts.lent(DRAFT) as file:
        assert file.parent != plugin_folder()
        lent_id, estimate = quote_with_plugins(study, [file], 2)
    assert not file.parent.exists()
    # BASE, RAG, and RAG with the draft on twenty instances; the draft asks once for each.
    assert (estimate.planned, estimate.to_do) == (60, 60)
    assert sum(line.calls for line in estimate.lines if line.stage == "post") == 20
    assert quote_with_plugins(study, [drafts.save(DRAFT)], 2)[0] == lent_id
    assert quote_with_plugins(study, [drafts.save(OTHER, replace=True)], 2)[0] != lent_id
    assert "my-draft" not in mitigations.names()
    assert loaded_plugins() == {}
