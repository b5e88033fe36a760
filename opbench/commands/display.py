"""Progress of a command's work on standard error."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars

from opbench.models.secrets import log_without_keys


class Display:
    """A bar on a terminal; what a log gets is said by whoever shows. While it is shown, what is logged has no keys."""

    def __init__(self, console: Console, counted: str) -> None:
        self._console = console
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task(counted, total=None, told="")

    def __enter__(self) -> Self:
        log_without_keys()
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
