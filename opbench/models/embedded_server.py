"""The embedded server itself, a program: `python -m opbench.models.embedded_server FOLDER`.

`FOLDER` is where embedded.py meets it: `lease` is locked by its users, `state.json` says where it answers.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import struct
import sys
import threading
import time
from pathlib import Path

from opbench.models.embedded import NAME, SLOT_CONTEXT, SLOTS, gguf

_POLL_S = 0.5
_FREE_POLLS = 3
"""Polls in a row that must find no user before the server exits: a client that follows at once finds it warm."""
#: Where a GGUF file says the length that the model was trained for: the key as a string, then the type of an integer.
_KEY = b"llama.context_length"
_TRAINED_FOR = struct.pack("<Q", len(_KEY)) + _KEY + struct.pack("<I", 4)
_HEAD = 1 << 20  # the key is among the first ones


def _watch(folder: Path) -> None:
    """End this process when no user holds the lease, or when another server has taken the place."""
    state = folder / "state.json"
    free = 0
    with (folder / "lease").open("a") as lease:
        while True:
            time.sleep(_POLL_S)
            try:
                fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free = 0
                if _displaced(state):
                    os._exit(0)
                continue
            free += 1
            if free >= _FREE_POLLS:
                # Still under the lock: whoever comes next waits for it and then finds no state.
                state.unlink(missing_ok=True)
                os._exit(0)
            fcntl.flock(lease, fcntl.LOCK_UN)


def _displaced(state: Path) -> bool:
    """Whether the state file names another server, started because this one didn't answer."""
    try:
        return bool(json.loads(state.read_text(encoding="utf-8"))["pid"] != os.getpid())
    except FileNotFoundError:
        return False


def lengthened(source: Path, copy: Path, context: int) -> None:
    """Copy the model with another length that it was trained for: llama.cpp cuts a slot's context down to that, and
    its Python binding can't override it. Nothing else reads the number, so answers stay the same.

    Raises:
        ValueError: the file doesn't say its length where a GGUF file of the llama kind does.
    """
    shutil.copyfile(source, copy)
    with copy.open("r+b") as file:
        head = file.read(_HEAD)
        place = head.find(_TRAINED_FOR)
        if place < 0 or head.find(_TRAINED_FOR, place + 1) >= 0:
            raise ValueError(f"{source}: no single {_KEY.decode()} in its head")
        file.seek(place + len(_TRAINED_FOR))
        file.write(struct.pack("<I", context))


def serve(folder: Path) -> None:
    """Load the model, answer on a free loopback port, and write the state file. Returns never."""
    threading.Thread(target=_watch, args=(folder,), daemon=True).start()
    import xllamacpp

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    key = secrets.token_urlsafe(24)
    params = xllamacpp.CommonParams()
    for left in folder.glob("*.gguf"):
        left.unlink()
    model = folder / f"{os.getpid()}.gguf"
    lengthened(gguf(), model, SLOT_CONTEXT)
    params.model.path = str(model)
    params.model_alias = {NAME}
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * SLOT_CONTEXT
    # One thread for generating: two that wait passively made 35 to 41 tokens a second, one 76. A prompt is worth all.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = threads
    params.cont_batching = True
    params.cache_prompt = True
    params.cache_ram_mib = 1024
    # With flash attention a greedy answer depends on what the prompt cache held. Without it the same request always
    # gets the same text at concurrency 1, at the same speed; side by side, some texts still differ.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = 2
    server = xllamacpp.Server(params)
    # It is mapped into memory now.
    model.unlink()
    state = {"base_url": f"{server.listening_address}/v1", "key": key, "pid": os.getpid()}
    draft = folder / f"state.{os.getpid()}"
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(state), encoding="utf-8")
    draft.replace(folder / "state.json")
    threading.Event().wait()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
