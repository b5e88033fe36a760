"""`fetch` against a server on loopback that behaves badly in every way we know."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from opbench.benchmarks import FetchReport, fetch, fetching, load
from opbench.benchmarks.official import PROMPT_FILES

PROMPTS_SOURCE = '"""Prompts."""\nUNRELATED = "x"\n' + "\n".join(
    f'{constant} = """Judge {constant}: {{question}} – {{response}}\n"""' for constant in PROMPT_FILES.values()
)
HTML = b"<!DOCTYPE html>\n<html><body>Please log in</body></html>"


@dataclass
class Server:
    """Serves `files` by path. `misbehave` may answer itself: it gets the handler and the request's number."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    misbehave: Callable[[BaseHTTPRequestHandler, int], bool] = lambda handler, number: False

    def paths(self, part: str) -> list[tuple[str, str | None]]:
        return [request for request in self.requests if part in request[0]]


def answer(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    if "Content_Length" not in headers:
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
    handler.close_connection = True


@pytest.fixture
def server(real_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetching, "_PAUSE_S", 0.0)
    state = Server()
    locomo = (real_folder / "locomo/locomo10.json").read_bytes()
    state.files = {f"/{source}": locomo for source in fetching.LOCOMO.sources}
    state.files[f"/{fetching.OP.sources[0]}"] = (real_folder / "opbench/locomo10_overpersonalized.json").read_bytes()
    state.files[f"/{fetching.PROMPTS.sources[0]}"] = PROMPTS_SOURCE.encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append((self.path, self.headers["Range"]))
            if state.misbehave(self, len(state.requests)):
                return
            body = state.files.get(self.path)
            if body is None:
                answer(self, 404, b"404: Not Found")
            elif asked := self.headers["Range"]:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(body):
                    answer(self, 416, b"")
                else:
                    answer(self, 206, body[start:], Content_Range=f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                answer(self, 200, body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    state.url = f"http://127.0.0.1:{listener.server_port}"
    yield state
    listener.shutdown()
    thread.join()
    listener.server_close()


def one_line_each(report: FetchReport) -> str:
    assert all("\n" not in error for error in report.errors)
    return "\n".join(report.errors)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.part"))


def test_all_three_arrive_and_load(server: Server, home: Path, real_folder: Path) -> None:
    seen: dict[str, list[tuple[int, int | None]]] = {}
    report = fetch(lambda name, done, total: seen.setdefault(name, []).append((done, total)), base_url=server.url)
    assert report.ok
    assert report.usable
    assert [(one.name, one.state, one.verified) for one in report.got] == [
        ("locomo/locomo10.json", "downloaded", "sha256"),
        ("opbench/locomo10_overpersonalized.json", "downloaded", "its counts (paper, table 1)"),
        ("prompts/official.py", "downloaded", "its placeholders"),
    ]
    assert report.got[0].bytes == 2804908
    assert "downloaded  locomo/locomo10.json  2,804,908 bytes, verified by sha256" in report.to_text()
    assert seen["locomo/locomo10.json"][-1] == (2804908, 2804908)
    corpus = load()
    assert (corpus.source, len(corpus.op), len(corpus.locomo)) == ("cache", 1700, 1986)
    pack = home / "data/prompts/official"
    assert sorted(path.name for path in pack.iterdir()) == ["fact.txt", "irrelevance.txt", "memory.txt", "value.txt"]
    assert (pack / "value.txt").read_text("utf-8") == "Judge SCORE_SYCOPHANCY_VALUE_PROMPT: {question} – {response}\n"
    assert leftovers(home) == []


def test_pins_are_commits_of_the_public_repositories() -> None:
    for remote in (fetching.LOCOMO, fetching.OP, fetching.PROMPTS):
        for source in remote.sources:
            owner, name, commit, _ = source.split("/", 3)
            assert (owner, name) in {("snap-research", "locomo"), ("MemTensor", "MemOS"), ("yulinlp", "OP-Bench")}
            assert len(commit) == 40
            assert set(commit) <= set("0123456789abcdef")
    assert fetching.RAW == "https://raw.githubusercontent.com"


def test_a_second_fetch_asks_for_nothing(server: Server, home: Path) -> None:
    fetch(base_url=server.url)
    server.requests.clear()
    report = fetch(base_url=server.url)
    assert report.ok
    assert [one.state for one in report.got] == ["present"] * 3
    assert server.requests == []


def test_damaged_files_are_replaced(server: Server, home: Path) -> None:
    fetch(base_url=server.url)
    locomo, op = home / "data/locomo/locomo10.json", home / "data/opbench/locomo10_overpersonalized.json"
    locomo.write_bytes(locomo.read_bytes()[:-9])
    op.write_bytes(op.read_bytes()[:-9])
    (home / "data/prompts/official/fact.txt").unlink()
    report = fetch(base_url=server.url)
    assert [one.state for one in report.got] == ["downloaded", "downloaded", "present"]
    assert (home / "data/prompts/official/fact.txt").exists()
    assert load().source == "cache"


def test_a_broken_download_goes_on_where_it_stopped(server: Server, home: Path) -> None:
    def cut(handler: BaseHTTPRequestHandler, number: int) -> bool:
        if number > 1:
            return False
        body = server.files[handler.path]
        answer(handler, 200, body[:100_000], Content_Length=str(len(body)))
        return True

    server.misbehave = cut
    report = fetch(base_url=server.url)
    assert report.ok
    ranges = [asked for _, asked in server.paths("locomo10.json")]
    assert ranges == [None, "bytes=100000-"]
    digest = hashlib.sha256((home / "data/locomo/locomo10.json").read_bytes()).hexdigest()
    assert digest == "216f944bb8681c582b7492e4cbba699f12df4e16269ee8c1e101fb34b047af0c"


def test_the_next_run_goes_on_too(server: Server, home: Path) -> None:
    def cut(handler: BaseHTTPRequestHandler, number: int) -> bool:
        if "OP-Bench" not in handler.path or not handler.path.endswith(".json"):
            return False
        start = int((handler.headers["Range"] or "bytes=0-")[6:-1])
        rest = server.files[handler.path][start:]
        answer(handler, 206 if start else 200, rest[:50_000], Content_Length=str(len(rest)))
        return True

    server.misbehave = cut
    report = fetch(base_url=server.url)
    assert not report.ok
    assert not report.usable
    assert "failed 3 times" in one_line_each(report)
    assert "again to go on" in one_line_each(report)
    assert load().source == "sample"
    server.misbehave = lambda handler, number: False
    server.requests.clear()
    assert fetch(base_url=server.url).ok
    assert [asked for _, asked in server.paths("overpersonalized")] == ["bytes=150000-"]
    assert load().source == "cache"


def test_a_server_without_ranges_starts_again(server: Server, home: Path) -> None:
    def whole(handler: BaseHTTPRequestHandler, number: int) -> bool:
        body = server.files[handler.path]
        if number == 1:
            answer(handler, 200, body[:1000], Content_Length=str(len(body)))
        else:
            answer(handler, 200, body)
        return True

    server.misbehave = whole
    assert fetch(base_url=server.url).ok


def test_a_whole_part_that_was_never_verified_is_taken(server: Server, home: Path) -> None:
    part = home / "data/locomo/locomo10.json.0.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(server.files[f"/{fetching.LOCOMO.sources[0]}"])
    assert fetch(base_url=server.url).ok
    assert len(server.paths("snap-research")) == 1
    assert leftovers(home) == []


def test_not_there_any_more(server: Server, home: Path) -> None:
    del server.files[f"/{fetching.LOCOMO.sources[0]}"]
    assert fetch(base_url=server.url).ok, "the second place has it"
    assert len(server.paths("MemTensor")) == 1


def test_nowhere(server: Server, home: Path) -> None:
    for source in fetching.LOCOMO.sources:
        del server.files[f"/{source}"]
    report = fetch(base_url=server.url)
    assert not report.usable
    text = one_line_each(report)
    assert text.count("answered 404 Not Found") == 2
    assert "opbench/locomo10_overpersonalized.json: " in text
    assert "can't be verified without LoCoMo's file" in text
    assert [one.name for one in report.got] == ["prompts/official.py"]
    assert report.to_text().endswith("The bundled sample is used instead.")


def test_other_bytes_than_the_pinned_ones(server: Server, home: Path) -> None:
    for source in fetching.LOCOMO.sources:
        server.files[f"/{source}"] += b" "
    report = fetch(base_url=server.url)
    digest = hashlib.sha256(server.files[f"/{fetching.LOCOMO.sources[0]}"]).hexdigest()
    assert one_line_each(report).count(f"wrong sha256 ({digest})") == 2
    assert not (home / "data/locomo/locomo10.json").exists()
    assert leftovers(home / "data/locomo") == [], "a next run would go on from wrong bytes"


def test_op_bench_with_other_counts(server: Server, home: Path) -> None:
    path = f"/{fetching.OP.sources[0]}"
    server.files[path] = server.files[path].replace(b'"coarse-grained"', b'"value"', 1)
    report = fetch(base_url=server.url)
    assert "not the paper's counts" in one_line_each(report)
    assert "'value': 101, 'memory': 199" in one_line_each(report)
    assert not (home / "data/opbench/locomo10_overpersonalized.json").exists()


def test_op_bench_cut_off_without_a_length(server: Server, home: Path) -> None:
    path = f"/{fetching.OP.sources[0]}"
    server.files[path] = server.files[path][:-5000]
    report = fetch(base_url=server.url)
    assert "the file ends too early" in one_line_each(report)
    assert leftovers(home) == []


def test_a_log_in_page_in_between(server: Server, home: Path) -> None:
    def portal(handler: BaseHTTPRequestHandler, number: int) -> bool:
        if handler.path == "/login":
            answer(handler, 200, HTML, Content_Type="text/html")
        else:
            answer(handler, 302, b"", Location="/login")
        return True

    server.misbehave = portal
    report = fetch(base_url=server.url)
    assert len(report.errors) == 3
    assert "a web page came instead of the file" in report.errors[0]
    assert "a web page came instead of the file" in report.errors[2]
    assert leftovers(home) == []


def test_a_busy_server_is_asked_again(server: Server, home: Path) -> None:
    def busy(handler: BaseHTTPRequestHandler, number: int) -> bool:
        if number > 2:
            return False
        answer(handler, (429, 503)[number - 1], b"later")
        return True

    server.misbehave = busy
    assert fetch(base_url=server.url).ok


def test_a_server_that_stays_broken(server: Server, home: Path) -> None:
    def broken(handler: BaseHTTPRequestHandler, number: int) -> bool:
        answer(handler, 500, b"no")
        return True

    server.misbehave = broken
    report = fetch(base_url=server.url)
    assert "failed 3 times (answered 500 Internal Server Error)" in report.errors[0]
    assert len(server.paths("snap-research")) == 3


def test_prompts_of_another_shape(server: Server, home: Path) -> None:
    path = f"/{fetching.PROMPTS.sources[0]}"
    for source, says in (
        (
            PROMPTS_SOURCE.replace("SCORE_SYCOPHANCY_FACT_PROMPT =", "RENAMED ="),
            "SCORE_SYCOPHANCY_FACT_PROMPT is missing",
        ),
        (PROMPTS_SOURCE.replace("{response}", "{answer}"), "without {response}"),
        ("def broken(:", "not the Python source with the judge prompts"),
    ):
        server.files[path] = source.encode()
        report = fetch(base_url=server.url)
        assert report.usable, "the data is there all the same"
        assert says in one_line_each(report)
        assert not (home / "data/prompts/official").exists()


def test_the_fetched_source_is_not_run(server: Server, home: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    server.files[f"/{fetching.PROMPTS.sources[0]}"] = f"open({str(trap)!r}, 'w')\n{PROMPTS_SOURCE}".encode()
    assert fetch(base_url=server.url).ok
    assert not trap.exists()


def test_offline_is_one_line_and_the_sample(home: Path, server: Server) -> None:
    report = fetch(base_url="http://127.0.0.1:9")
    assert len(report.errors) == 1
    assert report.errors[0].startswith("127.0.0.1 can't be reached")
    assert "check the network" in one_line_each(report)
    assert report.got == ()
    assert load().source == "sample"


def test_a_folder_that_can_not_be_written(server: Server, home: Path) -> None:
    home.write_text("a file in the folder's place")
    report = fetch(base_url=server.url)
    assert len(report.errors) == 3
    one_line_each(report)
