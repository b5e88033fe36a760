"""`make bench`: how much of a bare HTTP client's speed the engine keeps, against the scripted endpoint.

The floor is raw HTTP over kept-alive loopback connections: no SDK, no store, no judge. The engine does the whole of a
record: plan, post-processing none, response, LLM judge, durable write in SQLite. Both in the same minute, the endpoint
in a process of its own; the numbers are medians of the repeats and are compared as a ratio.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

CONNECTIONS = 64
FLOOR_REQUESTS = 4_000
REPEATS = 3


async def _floor(url: str) -> float:
    """Requests per second of bare HTTP, a chat request and its whole answer each time."""
    place = urlsplit(url)
    body = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "x" * 400}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def connection(count: int) -> None:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        for _ in range(count):
            writer.write(head + body)
            await writer.drain()
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answer.split(b"content-length:")[1].split(b"\r\n")[0]))
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(connection(FLOOR_REQUESTS // CONNECTIONS) for _ in range(CONNECTIONS)))
    return FLOOR_REQUESTS / (time.perf_counter() - start)


async def _engine() -> float:
    """Model calls per second of a study on the sample's OP-Bench instances and LoCoMo questions under BASE."""
    from opbench.running.prepare import prepare
    from opbench.running.worker import execute
    from opbench.store.database import open_store
    from opbench.study import Study

    folder = tempfile.mkdtemp()
    store = open_store(f"sqlite:///{folder}/bench.sqlite3")
    # Twelve names for one endpoint: each is a set of new calls, so that nothing is reused.
    prepared = prepare(
        Study(
            models=tuple(f"scripted-{n}" for n in range(12)),
            memories=("base",),
            benchmarks=("op", "locomo"),
            judge="scripted-judge",
            judge_pack="own",
            embedder="scripted-0",
            data="sample",
        )
    )
    start = time.perf_counter()
    await execute(store, prepared, concurrency=CONNECTIONS, on_progress=lambda progress: None)
    taken = time.perf_counter() - start
    calls = prepared.client.stats.requests
    await prepared.aclose()
    return calls / taken


def main() -> None:
    """Print the medians and the line `engine/floor R`."""
    home = Path(tempfile.mkdtemp())
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.scripted_endpoint"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    try:
        assert server.stdout
        url = server.stdout.readline().strip()
        names = [*(f"scripted-{n}" for n in range(12)), "scripted-judge"]
        entry = 'base_url = "{url}"\nserved = "{name}"\nconcurrency = 64\n'
        registry = "".join(f'[models."{name}"]\n' + entry.format(url=url, name=name) for name in names)
        registry += f'[embedders."scripted-0"]\nbase_url = "{url}"\n'
        (home / "models.toml").write_text(registry)
        os.environ |= {"OPBENCH_HOME": str(home), "OPBENCH_MODELS": str(home / "models.toml")}
        floors, engines = [], []
        for _ in range(REPEATS):
            floors.append(asyncio.run(_floor(url)))
            engines.append(asyncio.run(_engine()))
    finally:
        server.terminate()
    floor, engine = statistics.median(floors), statistics.median(engines)
    print(f"floor   {floor:8.0f} requests/s   (of {', '.join(f'{x:.0f}' for x in floors)})")
    print(f"engine  {engine:8.0f} calls/s      (of {', '.join(f'{x:.0f}' for x in engines)})")
    print(f"engine/floor {engine / floor:.3f}")


if __name__ == "__main__":
    main()
