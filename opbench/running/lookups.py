"""Looking calls up in the store, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy import bindparam, null, select

from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.writing import CallRow

#: Keys in one query: below SQLite's limit on bound values.
_KEYS = 500
#: What was asked for isn't read back: it's as long as the prompt, and whoever looks a call up has just asked for it.
_COLUMNS = tuple(null() if name == "request" else s.calls.c[name] for name in CallRow.__slots__)
_FIND = select(*_COLUMNS).where(s.calls.c.key.in_(bindparam("keys", expanding=True)))


class Lookups:
    """Finds calls in the store: all that is asked for while a query is under way is one query together.

    Belongs to one event loop.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: dict[str, list[asyncio.Future[CallRow | None]]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def find(self, key: str) -> CallRow | None:
        """The call of that key, without its request; None when it isn't in the store.

        Raises:
            StoreError: the store can't be read.
        """
        found: asyncio.Future[CallRow | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(key, []).append(found)
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        return await found

    async def _ask(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                await self._answer(asked)
        finally:
            self._asking = None

    async def _answer(self, asked: dict[str, list[asyncio.Future[CallRow | None]]]) -> None:
        try:
            found = await self.find_all(list(asked))
        except BaseException as error:
            for waiting in (each for all_of_key in asked.values() for each in all_of_key if not each.done()):
                if isinstance(error, Exception):
                    waiting.set_exception(error)
                else:
                    waiting.cancel()
            if not isinstance(error, Exception):
                raise
        else:
            for key, all_of_key in asked.items():
                for waiting in all_of_key:
                    if not waiting.done():
                        waiting.set_result(found.get(key))

    async def find_all(self, keys: Sequence[str]) -> dict[str, CallRow]:
        """Those of the calls that are in the store, by key, without their requests.

        Raises:
            StoreError: the store can't be read.
        """
        return await self._store.in_thread(self._read, keys)

    def _read(self, keys: Sequence[str]) -> dict[str, CallRow]:
        found: dict[str, CallRow] = {}
        with self._store.begin() as connection:
            for start in range(0, len(keys), _KEYS):
                for row in connection.execute(_FIND, {"keys": keys[start : start + _KEYS]}):
                    call = CallRow(*row)
                    found[call.key] = call
        return found
