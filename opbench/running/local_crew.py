"""Members of a team as processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from opbench.errors import UsageError
from opbench.running.crew import Part
from opbench.settings import ROOT
from opbench.study import Study

#: How long a killed process may take to be gone.
_GONE_S = 10.0


class LocalMember:
    """`opbench.commands.member` as a process of this machine; it is told its part on standard input."""

    def __init__(self, part: Part, orders: dict[str, Any], on_line: Callable[[str], None]) -> None:
        """`on_line` gets what it writes, line by line.

        Raises:
            OSError: no process can be started.
        """
        self.part = part
        self._on_line = on_line
        self._last = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "opbench.commands.member"],
            env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Ctrl-C is its leader's, who asks the members to end.
            start_new_session=True,
        )
        self._reading = threading.Thread(target=self._read, name=f"member-{part.number}", daemon=True)
        self._reading.start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as told:
            told.write(json.dumps(orders).encode())

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> str | None:
        code = self._process.poll()
        if code is None:
            return None
        self._reading.join(1.0)
        if code == 0:
            return ""
        who = f"worker {self.part.number + 1} (process {self.pid})"
        if code < 0:
            return f"{who} was killed by signal {-code}."
        return f"{who} ended: {self._last or f'exit code {code}'}"

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GONE_S)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            if text.startswith(_OURS):
                # Said by whoever asks how it ended.
                self._last = text.removeprefix(_OURS)
            elif text:
                self._last = text
                self._on_line(text)


_OURS = "opbench: "


class LocalCrew:
    """Members that are processes of this machine."""

    def __init__(
        self, size: int, study: Study, plugins: Sequence[Path] = (), on_line: Callable[[str], None] = print
    ) -> None:
        """`on_line` gets what members write beside their work: warnings, line by line, from other threads."""
        self._size = size
        self._orders = {"study": study.model_dump(mode="json"), "plugins": [str(file.resolve()) for file in plugins]}
        self._on_line = on_line
        self._members: list[LocalMember] = []

    @property
    def size(self) -> int:
        return self._size

    def start(self, part: Part) -> LocalMember:
        try:
            member = LocalMember(part, {"part": asdict(part), **self._orders}, self._on_line)
        except OSError as error:
            raise UsageError(f"no process can be started for a worker ({error.strerror or error}).") from error
        self._members.append(member)
        return member

    def close(self) -> None:
        for member in self._members:
            if member.ended() is None:
                member.kill()
