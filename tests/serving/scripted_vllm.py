"""What stands in for an installed vLLM in these tests: a package of that name, and a server of a few lines.

The package is written into a folder of PYTHONPATH; its command runs `main` below in a real process. What it does is in
the environment: SCRIPTED_FOLDER (a folder that it tells its flags and environment to, and reads metrics.txt of),
SCRIPTED (`dies`, `late`: see `main`), SCRIPTED_DEVICE and SCRIPTED_DEVICES (what `vllm.platforms` finds). Standard
library alone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_PLATFORMS = """
import os
if os.environ.get("SCRIPTED") == "broken":
    raise ImportError("libcudart.so.13: cannot open shared object file")
class current_platform:
    device_type = os.environ.get("SCRIPTED_DEVICE", "cuda")
    device_control_env_var = "CUDA_VISIBLE_DEVICES"
    @classmethod
    def device_count(cls):
        return int(os.environ.get("SCRIPTED_DEVICES", "2"))
print("INFO something that vLLM says first")
"""
#: As an installation's last words are: the exception, then lines that only say that there was one.
TRACEBACK = """(EngineCore pid=77) ERROR 11-30 10:00:00 [core.py:1001] Traceback (most recent call last):
(EngineCore pid=77) ERROR 11-30 10:00:00 [core.py:1001] ValueError: To serve at least one request 9 GiB are needed.
(APIServer pid=70) Traceback (most recent call last):
(APIServer pid=70) RuntimeError: Engine core initialization failed. See root cause above.
"""
DIES, LATE = "dies", "late"


def install(folder: Path, distribution: str = "vllm", version: str = "0.33.0") -> None:
    """Write the package into a folder."""
    package = folder / "vllm"
    for name in ("", "entrypoints", "entrypoints/cli", "entrypoints/openai"):
        (package / name).mkdir(parents=True, exist_ok=True)
        (package / name / "__init__.py").touch()
    (package / "platforms.py").write_text(_PLATFORMS)
    start = f"import runpy; runpy.run_path({str(Path(__file__))!r}, run_name='__main__')\n"
    (package / "entrypoints" / "cli" / "main.py").write_text(start)
    (package / "entrypoints" / "openai" / "api_server.py").write_text(start)
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "top_level.txt").write_text("vllm\n")


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"{}"
        match self.path:
            case "/metrics":
                body = (Path(os.environ["SCRIPTED_FOLDER"]) / "metrics.txt").read_bytes()
            case "/v1/models":
                body = json.dumps({"data": [{"id": "something/Else"}]}).encode()
            case "/die":
                print(TRACEBACK, flush=True)
                os._exit(3)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    """Tell how it was started, then serve; with SCRIPTED=dies the server of the last port dies at once, with
    SCRIPTED=late none ever answers."""
    flags = sys.argv[1:]
    port = int(flags[flags.index("--port") + 1])
    told = {"flags": flags, "pid": os.getpid(), "environment": dict(os.environ)}
    # Whoever waits for the file reads it whole.
    file = Path(os.environ["SCRIPTED_FOLDER"]) / f"{port}.json"
    part = file.with_suffix(".part")
    part.write_text(json.dumps(told))
    part.replace(file)
    if os.environ.get("SCRIPTED") == DIES and port == int(os.environ["SCRIPTED_PORT"]):
        print(f"the key is {os.environ.get('VLLM_API_KEY')}\n{TRACEBACK}", flush=True)
        sys.exit(1)
    if os.environ.get("SCRIPTED") == LATE:
        print("INFO 11-30 10:00:00 [loader.py:1] still loading", flush=True)
        threading.Event().wait()
    time.sleep(0.1)
    ThreadingHTTPServer(("127.0.0.1", port), _Handler).serve_forever()


if __name__ == "__main__":
    main()
