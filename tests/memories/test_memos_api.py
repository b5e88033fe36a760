"""A MemOS server's HTTP API: what is sent, what counts as a memory, and that no delivery counts twice."""

from __future__ import annotations

import json
import subprocess
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from opbench.errors import MemoryFault
from opbench.gateway.lease import Lease
from opbench.memories.library import Added
from opbench.memories.systems import posting
from opbench.memories.systems.memos_api import MemosApi, MemosApiStore
from tests.memories.contract import OTHER_JOHN, ROMEO, session

LEASE = Lease("", "", "memos-api c-1/John", "", "", 0)
TALK = session(3, "I keep bees now.", "On the roof?")


class MemosServer:
    """MemOS 2.0.33's answers to `/product/add`, `search`, `get_memory` and `delete_memory`, as its handlers make them:
    a memory a message, and a working memory that repeats the last."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any], str]] = []
        self.cubes: dict[str, list[dict[str, Any]]] = {}
        self.lose_answers = 0
        """So many answers to add never arrive, though the server did its work."""
        self.replies: dict[str, tuple[int, dict[str, Any]]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, body, self.headers.get("Authorization", "")))
                status, reply = outer.replies.get(self.path) or (200, outer.answer(self.path, body))
                if self.path == "/product/add" and outer.lose_answers:
                    outer.lose_answers -= 1
                    return
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def sent(self, path: str) -> list[dict[str, Any]]:
        return [body for where, body, _ in self.requests if where == path]

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        match path:
            case "/product/add":
                cube = self.cubes.setdefault(body["writable_cube_ids"][0], [])
                made = [node(each["content"], "UserMemory", body["session_id"]) for each in body["messages"]]
                cube += [*made, node(made[-1]["memory"], "WorkingMemory", body["session_id"])]
                data: Any = [
                    {"memory": each["memory"], "memory_id": each["id"], "memory_type": "UserMemory", "cube_id": "c"}
                    for each in made
                ]
                return {"code": 200, "message": "Memory added successfully", "data": data}
            case "/product/search":
                cube = self.cubes.get(body["readable_cube_ids"][0], [])
                words = set(body["query"].split())
                found = [
                    {
                        **each,
                        "metadata": each["metadata"] | {"relativity": len(words & set(each["memory"].split())) / 9},
                    }
                    for each in cube
                ]
                found.sort(key=lambda each: -each["metadata"]["relativity"])
                data = {"text_mem": [{"cube_id": "c", "memories": found[: body["top_k"]], "total_nodes": 1}]}
                return {"code": 200, "message": "Search completed successfully", "data": data | {"pref_mem": []}}
            case "/product/get_memory":
                cube = self.cubes.get(body["mem_cube_id"], [])
                data = {"text_mem": [{"cube_id": "c", "memories": cube, "total_nodes": len(cube)}]}
                return {"code": 200, "message": "Memories retrieved successfully", "data": data}
            case "/product/delete_memory":
                for name, cube in self.cubes.items():
                    if name in body["writable_cube_ids"]:
                        cube[:] = [each for each in cube if each["id"] not in body["memory_ids"]]
                return {"code": 200, "message": "Memories deleted successfully", "data": {"status": "success"}}
        raise AssertionError(path)


def node(text: str, kind: str, session_id: str) -> dict[str, Any]:
    metadata = {"memory_type": kind, "session_id": session_id, "created_at": "2026-11-30T00:00:00"}
    return {"id": str(uuid.uuid4()), "memory": text, "metadata": metadata}


@pytest.fixture
def server() -> Iterator[MemosServer]:
    served = MemosServer()
    yield served
    served.close()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "_wait", lambda state: 0.0)


def place(tmp_path: Path, digest: str = "3f2a91c04b7d", copy: str = "1-a") -> Path:
    """A store's folder as `Ingesting` lays it out."""
    folder = tmp_path / digest / "open" / copy / "store"
    folder.mkdir(parents=True)
    return folder


async def opened(server: MemosServer, folder: Path, user: Any = ROMEO, **changed: Any) -> MemosApiStore:
    return await MemosApi("memos-api", "MemOS server", base_url=server.url, timeout_s=5.0, **changed).open(
        folder, user, LEASE
    )


async def test_a_session_is_added_as_memos_takes_it(server: MemosServer, tmp_path: Path) -> None:
    store = await opened(server, place(tmp_path))
    assert await store.add(TALK) == Added(2, 1, 0)
    (body,) = server.sent("/product/add")
    assert body == {
        "user_id": "opbench-3f2a91c04b7d-c-1-John",
        "writable_cube_ids": ["opbench-3f2a91c04b7d-c-1-John"],
        "session_id": "session-3",
        "async_mode": "sync",
        "mode": "fine",
        "messages": [
            {"role": "user", "content": "(3 May 2023) John: I keep bees now.", "chat_time": "10:00 AM on 03 May, 2023"},
            {
                "role": "assistant",
                "content": "(3 May 2023) Maria: On the roof?",
                "chat_time": "10:00 AM on 03 May, 2023",
            },
        ],
    }


async def test_found_memories_have_their_similarity_and_the_sessions_day(server: MemosServer, tmp_path: Path) -> None:
    store = await opened(server, place(tmp_path))
    await store.add(TALK)
    await store.add(session(4, "The bees are fine.", "Good bees."))
    found = await store.search("keep bees", 2)
    (body,) = server.sent("/product/search")
    assert {key: body[key] for key in ("query", "top_k", "mode", "relativity")} == {
        "query": "keep bees",
        "top_k": 2,
        "mode": "fast",
        "relativity": 0,
    }
    assert not any(body[kind] for kind in ("include_preference", "search_tool_memory", "include_skill_memory"))
    assert (found[0].text, found[0].date, found[0].score) == (
        "(3 May 2023) John: I keep bees now.",
        "3 May 2023",
        2 / 9,
    )
    assert await store.search("keep bees", 0) == []
    everything = await store.search("keep bees", 50)
    assert len(everything) == 4, "its working memory repeats what is there"
    assert [memory.date for memory in await store.memories()] == ["3 May 2023"] * 2 + ["4 May 2023"] * 2


async def test_an_answer_that_got_lost_does_not_double_a_session(server: MemosServer, tmp_path: Path) -> None:
    store = await opened(server, place(tmp_path))
    server.lose_answers = 2
    assert await store.add(TALK) == Added(2, 1, 0)
    assert len(server.sent("/product/add")) == 3
    assert len(await store.memories()) == 2


async def test_a_session_in_flight_when_we_were_killed_counts_once(server: MemosServer, tmp_path: Path) -> None:
    first = place(tmp_path)
    store = await opened(server, first)
    await store.add(TALK)
    kept = (first / "sessions.json").read_bytes()  # the checkpoint
    await store.add(session(4, "The bees are fine.", "Good."))  # and then we died
    again = place(tmp_path, copy="2-b")
    (again / "sessions.json").write_bytes(kept)
    store = await opened(server, again)
    assert await store.add(session(4, "The bees are fine.", "Good.")) == Added(2, 1, 0)
    assert [memory.date for memory in await store.memories()] == ["3 May 2023"] * 2 + ["4 May 2023"] * 2


async def test_what_was_begun_and_thrown_away_is_cleared_at_the_server(server: MemosServer, tmp_path: Path) -> None:
    await (await opened(server, place(tmp_path))).add(TALK)
    anew = await opened(server, place(tmp_path, copy="2-b"))
    assert await anew.memories() == []
    assert await anew.add(TALK) == Added(2, 1, 0)
    assert len(await anew.memories()) == 2


async def test_users_and_ingestions_are_strangers(server: MemosServer, tmp_path: Path) -> None:
    mine = await opened(server, place(tmp_path))
    other = await opened(server, place(tmp_path, copy="2-b"), OTHER_JOHN)
    changed = await opened(server, place(tmp_path, "aaaaaaaaaaaa"))
    await mine.add(TALK)
    assert [len(await store.memories()) for store in (mine, other, changed)] == [2, 0, 0]
    assert len({store.cube for store in (mine, other, changed)}) == 3


async def test_the_key_is_sent_and_never_told(
    server: MemosServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMOS_KEY", "mk-0123456789abcdefghij")
    store = await opened(server, place(tmp_path), key_env="MEMOS_KEY", mend="memories.local.toml: [memories.m]")
    assert server.requests[0][2] == "Bearer mk-0123456789abcdefghij"
    server.replies["/product/add"] = (401, {"detail": "Bearer mk-0123456789abcdefghij is no key"})
    with pytest.raises(MemoryFault) as refused:
        await store.add(TALK)
    assert "MEMOS_KEY" in str(refused.value)
    assert "mk-0123456789" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "reply", "said"),
    [
        ("/product/add", {"code": 500, "message": "no\nmodel"}, "answered /product/add with code 500: no model"),
        ("/product/add", {"code": 200, "data": None}, "without the ids of what it made"),
        (
            "/product/search",
            {"code": 200, "data": {"text_mem": None}},
            "answered /product/search without text memories",
        ),
        ("/product/search", {"code": 200, "data": {"text_mem": [{"memories": [{"id": 1}]}]}}, "without text memories"),
        ("/product/get_memory", {"code": 200, "data": []}, "answered /product/get_memory without text memories"),
    ],
)
async def test_an_answer_that_is_not_memos_is_told(
    path: str, reply: dict[str, Any], said: str, server: MemosServer, tmp_path: Path
) -> None:
    store = await opened(server, place(tmp_path))
    server.replies[path] = (200, reply)
    with pytest.raises(MemoryFault) as told:
        await (store.search("bees", 3) if path == "/product/search" else store.add(TALK))
    assert said in str(told.value)
    assert str(told.value).startswith("c-1/John: the MemOS server at http://127.0.0.1:")


async def test_what_it_cannot_delete_is_a_fault(server: MemosServer, tmp_path: Path) -> None:
    await (await opened(server, place(tmp_path))).add(TALK)
    server.replies["/product/delete_memory"] = (200, {"code": 200, "data": {"status": "failure"}})
    with pytest.raises(MemoryFault, match="didn't delete 2 memories of an earlier delivery"):
        await opened(server, place(tmp_path, copy="2-b"))


def test_what_it_costs_is_not_known() -> None:
    library = MemosApi("memos-api", "MemOS server", base_url="http://user:pw@host:1/", version="2.0.33")
    assert not library.extracts
    assert "isn't counted" in library.note
    assert library.estimate(TALK, ROMEO).calls == 0
    assert library.identity()["base_url"] == "http://host:1"
    assert library.identity()["version"] == "2.0.33"


async def test_the_real_servers_models_take_what_is_sent(memos: Path, server: MemosServer, tmp_path: Path) -> None:
    """Every field is one of MemOS 2.0.33's own request, none of the deprecated ones."""
    store = await opened(server, place(tmp_path))
    server.lose_answers = 1
    await store.add(TALK)
    await store.search("bees", 3)
    sent = {
        path: server.sent(path)[-1]
        for path in ("add", "search", "get_memory", "delete_memory")
        for path in [f"/product/{path}"]
    }
    names = {"add": "APIADDRequest", "search": "APISearchRequest", "get_memory": "GetMemoryRequest"}
    names["delete_memory"] = "DeleteMemoryRequest"
    script = f"""
import json
from memos.api import product_models
sent = json.loads({json.dumps(sent)!r})
for path, name in {names!r}.items():
    model, body = getattr(product_models, name), sent["/product/" + path]
    unknown = set(body) - set(model.model_fields)
    told = model.model_validate(body)
    deprecated = [field for field in body if "(Deprecated" in (model.model_fields[field].description or "")]
    print(path, sorted(unknown), deprecated)
"""
    told = await memos_says(memos, script, tmp_path)
    assert told[-4:] == [f"{path} [] []" for path in names]


async def memos_says(python: Path, script: str, base: Path) -> list[str]:
    """Lines that a script prints in MemOS's environment."""
    ran = subprocess.run(  # noqa: ASYNC221
        [python, "-I", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={"MEMOS_BASE_PATH": str(base), "PYTHON_DOTENV_DISABLED": "1"},
        cwd=base,
    )
    return ran.stdout.splitlines() or [ran.stderr]
