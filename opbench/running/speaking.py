"""The texts of a stage's calls as one text: a post-processor may ask several times, and side by side."""

from __future__ import annotations

from opbench.running.watching import Stage, Watch

_BETWEEN = "\n\n"


class Speech:
    """Tells a watch what the calls of one stage answer, one after the other in the order in which they were asked."""

    def __init__(self, watch: Watch, stage: Stage) -> None:
        self._watch = watch
        self._stage = stage
        self._voices: list[Voice] = []
        self._told = False

    def voice(self) -> Voice:
        """One for each call, in order; it must be ended."""
        made = Voice(self)
        self._voices.append(made)
        return made

    def _turn(self) -> Voice | None:
        """Whose text is told as it comes; the later ones wait."""
        return next((voice for voice in self._voices if not voice.ended), None)

    def _tell(self, voice: Voice, piece: str, first: bool) -> None:
        if piece:
            self._watch.text(self._stage, _BETWEEN + piece if first and self._told else piece)
            self._told = True

    def _again(self) -> None:
        self._watch.anew(self._stage)
        self._told = False
        turn = self._turn()
        for voice in self._voices:
            if voice is turn:
                break
            self._tell(voice, voice.said, first=True)


class Voice:
    """One call's text."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self.said = ""
        self.ended = False

    def text(self, piece: str) -> None:
        if self._speech._turn() is self:
            self._speech._tell(self, piece, first=not self.said)
        self.said += piece

    def anew(self) -> None:
        told = self.said and self._speech._turn() is self
        self.said = ""
        if told:
            self._speech._again()

    def end(self) -> None:
        """Nothing more comes: it is the next one's turn."""
        before = self._speech._turn()
        self.ended = True
        if before is not self:
            return
        for voice in self._speech._voices[self._speech._voices.index(self) + 1 :]:
            self._speech._tell(voice, voice.said, first=True)
            if not voice.ended:
                break
