"""The command line as a user meets it: exit codes, one-line errors, tables that agree with each other."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opbench import cli
from opbench.settings import settings
from tests.running.study import reply, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

RUN = "run --models scripted --memories base,rag --mitigations none,reminder --embedder scripted --data sample"


@pytest.fixture
def endpoint(home: Path) -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(reply=reply) as served:
        use_endpoint(home, served)
        yield served
    os.environ.pop("OPBENCH_MODELS", None)


@pytest.fixture
def opbench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line in this process; returns (exit code, standard output, standard error)."""

    def run(line: str | list[str]) -> tuple[int, str, str]:
        settings.cache_clear()
        monkeypatch.setattr("sys.argv", ["opbench", *(line.split() if isinstance(line, str) else line)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def test_every_command_has_a_help_text(opbench: Any) -> None:
    code, out, _ = opbench("--help")
    assert code == 0
    for command in ("data", "models", "run", "status", "table", "ask", "audit", "export", "import"):
        assert command in out
        assert opbench(f"{command} --help")[0] == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run", "name a study file, or at least --models"),
        ("run nowhere.toml", "nowhere.toml: can't be read (No such file or directory)"),
        ("run --models smollm2-135 --data sample", "smollm2-135m"),
        ("run --models smollm2-135m --memories rga --data sample", "Did you mean 'rag'?"),
        ("run --models smollm2-135m --mitigations remind --data sample", "reminder"),
        ("run --models smollm2-135m --users sample-1/Otilie --data sample", "sample-1/Ottilie"),
        ("run --models smollm2-135m --memories base --mitigations reminder", "BASE takes no post-processor"),
        ("run --models smollm2-135m --benchmarks opp", "benchmarks"),
        ("run --models smollm2-135m --limit 0", "limit"),
        ("run --models smollm2-135m --plugin none.py", "none.py: no such plugin file"),
        ("table zzz", "there is no run in this store yet"),
        ("status zzz", "there is no run in this store yet"),
        ("table --aggregate mean", "no rule 'mean'. There are: task-mean, instance, category-macro"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(opbench: Any, line: str, message: str) -> None:
    code, out, err = opbench(line)
    assert code == 2
    assert out == ""
    assert err.startswith("opbench: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_study_file_with_a_wrong_key_names_file_and_key(opbench: Any, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('models = ["smollm2-135m"]\nmemory = ["rag"]\n')
    code, _, err = opbench(["run", str(file)])
    assert code == 2
    assert f"{file}: no key 'memory'. Known keys:" in err
    file.write_text('models = ["smollm2-135m"\n')
    assert "isn't TOML" in opbench(["run", str(file)])[2]


def test_data_check_of_the_sample_is_not_the_papers(opbench: Any) -> None:
    code, out, _ = opbench("data check --sample")
    assert code == 1
    assert "sample" in out


def test_data_check_of_the_real_data_is_the_papers(opbench: Any, use_real_data: Path) -> None:
    code, out, _ = opbench("data check --json")
    assert code == 0
    report = json.dumps(json.loads(out))
    for count in ("318", "100", "882", "200", "1700", "1986"):
        assert count in report


def test_a_study_from_run_to_bundle(opbench: Any, endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    code, out, _ = opbench(f"{RUN} --limit 12 --dry-run")
    assert code == 0
    assert "72 of 72 records to do" in out
    assert endpoint.ledger.total == 0, "a dry run asks nobody"

    code, out, _ = opbench(f"{RUN} --limit 12 --name first --json")
    assert code == 0
    state = json.loads(out)
    assert (state["planned"], state["done"], state["errors"], state["complete"]) == (72, 72, 0, True)

    code, out, _ = opbench("status first --json")
    assert json.loads(out)["done"] == 72

    code, out, _ = opbench("table first --of op --json")
    table = json.loads(out)
    assert table["comparable"] is False
    assert any("not comparable with the paper" in note for note in table["notes"])
    rows = {(row["memory"], row["mitigation"]): row for row in table["rows"]}
    assert set(rows) == {("base", "none"), ("rag", "none"), ("rag", "reminder")}
    assert rows["rag", "none"]["n_planned"] == 12
    code, out, _ = opbench("table first --of op --csv")
    listed = {(row["memory"], row["mitigation"]): row for row in csv.DictReader(io.StringIO(out))}
    for key, row in rows.items():
        assert float(listed[key]["op"]) == pytest.approx(row["op"])
    for of in ("op", "locomo", "latency", "cost"):
        code, out, _ = opbench(f"table first --of {of}")
        assert code == 0
        assert "reminder" in out

    bundle = tmp_path / "first.opbench.zip"
    assert opbench(["export", "first", str(bundle)])[0] == 0
    code, out, _ = opbench(["import", str(bundle)])
    assert code == 0
    recorded = out.strip()
    assert recorded.startswith("rec-")
    again = json.loads(opbench(f"table {recorded} --of op --json")[1])
    assert again["rows"] == table["rows"]
    assert again["recorded"] is True


def test_a_dead_endpoint_is_told_with_the_mend(opbench: Any, home: Path) -> None:
    home.mkdir(parents=True)
    (home / "models.toml").write_text(
        '[models.dead]\nbase_url = "http://127.0.0.1:9/v1"\nattempts = 1\n[embedders.dead]\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    os.environ["OPBENCH_MODELS"] = str(home / "models.toml")
    try:
        code, out, _ = opbench(
            "run --models dead --memories base --embedder dead --data sample --benchmarks locomo --limit 2"
        )
    finally:
        del os.environ["OPBENCH_MODELS"]
    assert code == 1
    assert "errors, connection: 2" in out
    assert "127.0.0.1:9" in out
    assert "The same command again tries these again." in out


def test_plugins_bring_methods_and_memories(opbench: Any, endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent / "docs" / "plugins.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```python")[1:]]
    files = []
    for number, block in enumerate(blocks):
        files.append(tmp_path / f"plugin_{number}.py")
        files[-1].write_text(block)
    line = "run --models scripted --memories base,last-turns --mitigations none,nearest-only --embedder scripted"
    flags = [flag for file in files for flag in ("--plugin", str(file))]
    code, out, err = opbench(
        [
            *line.split(),
            "--data",
            "sample",
            "--benchmarks",
            "op",
            "--limit",
            "4",
            "--judge",
            "short-is-good",
            "--json",
            *flags,
        ]
    )
    assert code == 0, err
    assert json.loads(out)["done"] == 12
    broken = tmp_path / "broken.py"
    broken.write_text("1/0\n")
    code, _, err = opbench(["run", "--models", "scripted", "--plugin", str(broken)])
    assert code == 2
    assert "broken.py: the plugin failed while loading: ZeroDivisionError" in err


def test_audit_says_which_rule_fits(opbench: Any) -> None:
    code, out, _ = opbench("audit --json")
    assert code == 0
    rows = {(row["model"], row["memory"]): row for row in json.loads(out)}
    assert len(rows) == 20
    code, out, _ = opbench("audit")
    assert "fits category-macro" in out
