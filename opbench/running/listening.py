"""Those who want the text of a call as it comes, and the call that tells it to them."""

from __future__ import annotations

from dataclasses import dataclass, field

from opbench.models.streaming import OnAnew, OnText


@dataclass(eq=False, slots=True)
class Listener:
    """One who waits for an answer and wants its text as it comes."""

    on_text: OnText
    on_anew: OnAnew | None
    told: list[str] = field(default_factory=list)

    def text(self, piece: str) -> None:
        self.told.append(piece)
        self.on_text(piece)

    def anew(self) -> None:
        if self.told:
            self.told = []
            if self.on_anew is not None:
                self.on_anew()

    def whole(self, text: str) -> None:
        """This is the answer, whatever came of it before."""
        if "".join(self.told) != text:
            self.anew()
            self.text(text)


@dataclass(eq=False, slots=True)
class Flow:
    """The text of one call under way, for all who wait for it."""

    listeners: list[Listener] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    def join(self, listener: Listener) -> None:
        if self.pieces:
            listener.text("".join(self.pieces))
        self.listeners.append(listener)

    def text(self, piece: str) -> None:
        self.pieces.append(piece)
        for listener in self.listeners:
            listener.text(piece)

    def anew(self) -> None:
        self.pieces = []
        for listener in self.listeners:
            listener.anew()
