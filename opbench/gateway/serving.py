"""A web application on loopback inside the running event loop, without uvicorn's signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from opbench.errors import UsageError

_POLL_S = 0.005
#: Seconds that open connections get when the server stops; the calls behind them are waited for by the gateway.
_GOODBYE_S = 1


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to whoever runs the loop."""
        yield


class Loopback:
    """Serves an application on 127.0.0.1 until `aclose`."""

    def __init__(self, server: uvicorn.Server, task: asyncio.Task[None], port: int) -> None:
        self._server = server
        self._task = task
        self.port = port

    @classmethod
    async def start(cls, app: ASGIApp, port: int = 0) -> Loopback:
        """Serve on that port, 0 for a free one; answers when this returns.

        Raises:
            UsageError: the port is taken.
        """
        # By the protocol's number asyncio knows that it may switch Nagle's algorithm off. Else every answer but a
        # connection's first waits 40 ms for an acknowledgement, which would stand in the latency of every retrieval.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            listening.close()
            raise UsageError(
                f"port {port} can't be had ({error.strerror}). Name another, or 0 for a free one."
            ) from None
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_GOODBYE_S,
        )
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(_POLL_S)
        return cls(server, task, int(listening.getsockname()[1]))

    async def aclose(self) -> None:
        """Stop listening, and close what is open."""
        self._server.should_exit = True
        await self._task
