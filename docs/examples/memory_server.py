"""The smallest memory server that the workbench can measure: the standard library, two requests, nothing else.

    python docs/examples/memory_server.py 9000

It keeps every message as a memory, and finds those that share most words with the query. It forgets all when it ends.
"""

import contextlib
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = ""  # set it, and the workbench must send the same (key_env)
memories = {}  # by user: list of {"text", "date"}
taken_in = {}  # by the session's id: what was answered
lock = threading.Lock()


def ingest(body):
    with lock:
        # Sent again after a timeout or a crash: the session is in, and the answer is the one from then.
        if body["id"] not in taken_in:
            date = body["session"]["date"]
            new = [{"text": each["content"], "date": date} for each in body["session"]["messages"]]
            memories.setdefault(body["user"], []).extend(new)
            taken_in[body["id"]] = {"memories": new}
        return taken_in[body["id"]]


def search(body):
    asked = words(body["query"])
    with lock:
        own = list(memories.get(body["user"], []))
    scored = [each | {"score": len(asked & words(each["text"])) / max(1, len(asked))} for each in own]
    scored.sort(key=lambda each: -each["score"])
    return {"memories": scored[: body["k"]], "count": len(own)}


def words(text):
    return set(re.findall(r"\w+", text.lower()))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        does = {"/ingest": ingest, "/search": search}.get(self.path)
        if KEY and self.headers.get("Authorization") != f"Bearer {KEY}":
            self.answer(401, {"error": "wrong key"})
        elif does is None:
            self.answer(404, {"error": "no such address"})
        else:
            self.answer(200, does(body))

    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
