"""An HTTP server in threads, for clients that block, as those of a replay do."""

import contextlib
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping

from tests.adapter.upstream.aws_services import ReceivedRequest

Response = tuple[int, Mapping[str, str], bytes]
"""Status, headers, body."""


@contextlib.contextmanager
def threaded_server(
    respond: Callable[[ReceivedRequest], Response], *, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Send what `respond` returns for each GET and POST; yield the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, content = respond(
                ReceivedRequest(self.command, self.path, list(self.headers.items()), body)
            )
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http{'s' if tls is not None else ''}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
