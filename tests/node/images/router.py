"""What is scaled: a server that counts packets (`/packets?n=5`) and uses CPU (`/burn?cores=0.5`), with `/metrics`."""

from __future__ import annotations

import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit


class State:
    packets = 0
    cores = 0.0
    changed = threading.Condition()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        with State.changed:
            if url.path == "/packets":
                State.packets += int(query["n"])
            if url.path == "/burn":
                State.cores = float(query["cores"])
                State.changed.notify_all()
        body = f"# TYPE packets_total counter\npackets_total {State.packets}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def burn() -> None:
    while True:
        with State.changed:
            State.changed.wait_for(lambda: State.cores > 0)
        used, until = time.thread_time(), time.monotonic() + 0.1
        while time.thread_time() < used + 0.1 * State.cores:
            pass
        time.sleep(max(0.0, until - time.monotonic()))


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
threading.Thread(target=burn, daemon=True).start()
ThreadingHTTPServer(("", 8080), Handler).serve_forever()
