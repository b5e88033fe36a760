"""Vectors of responses, asked for once for equal ones: a post-processor that changes nothing leaves the response."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence

import numpy as np

#: Texts whose vectors stay at hand: equal responses come close together, and 2,048 vectors are some megabytes.
KEPT = 2048
Earlier = Callable[[], Awaitable[Iterable[tuple[str, np.ndarray]]]]


class SharedVectors:
    """An embedder's vectors, one text at a time. Belongs to one event loop.

    Not for what a retrieval's latency is taken of: there every search asks for itself.
    """

    def __init__(self, embed: Callable[[Sequence[str]], Awaitable[np.ndarray]]) -> None:
        self._embed = embed
        self._known: OrderedDict[str, asyncio.Future[np.ndarray]] = OrderedDict()
        self._earlier: Earlier | None = None
        self._taking_over = asyncio.Lock()

    def know(self, earlier: Earlier) -> None:
        """Take over (text, vector) pairs of an earlier execution, once the first vector is asked for: whoever only
        leads others asks for none."""
        self._earlier = earlier

    async def _take_over(self, earlier: Earlier) -> None:
        for text, vector in await earlier():
            known: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
            known.set_result(vector)
            self._known[text] = known

    async def of(self, text: str) -> np.ndarray:
        """The text's vector, float32 of shape (d,), L2-normalised.

        Raises:
            ModelError: the embedder failed for good, for all who wait for this text.
            StoreError: what is to be taken over can't be read.
        """
        if self._earlier is not None:
            async with self._taking_over:
                if self._earlier is not None:
                    await self._take_over(self._earlier)
                    self._earlier = None
        if (known := self._known.get(text)) is not None:
            self._known.move_to_end(text)
            return await asyncio.shield(known)
        making: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        self._known[text] = making
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        try:
            vectors = await self._embed([text])
        except BaseException as error:
            self._known.pop(text, None)
            if isinstance(error, Exception):
                making.set_exception(error)
                making.exception()  # told to whoever waits; nobody need
            else:
                making.cancel()
            raise
        making.set_result(np.asarray(vectors[0], dtype=np.float32))
        return await making
