"""Drag two boxes and see IoU, every loss of the family and its gradient change, in a local page.

    python examples/explorer.py                        # opens the page in the browser
    python examples/explorer.py --port 0 --no-browser  # any free port, only printed

Every number comes from the package; the page (examples/explorer_page) only draws. Nothing is downloaded, and only this
computer can reach the page: the server listens on 127.0.0.1. Stop it with Ctrl+C.
"""

from __future__ import annotations

import argparse
import json
import webbrowser
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from explorer_numbers import ANSWERS

PAGE = Path(__file__).parent / "explorer_page"
FILES = {
    "/": ("index.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    "/explorer.js": ("explorer.js", "text/javascript"),
}
ADDRESS = "127.0.0.1"
# Another site could let its own name point to this address and read the answers: only these names are served.
HOSTS = (ADDRESS, "localhost")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; img-src data:",  # the icon is in the page
    "X-Content-Type-Options": "nosniff",
}


class Handler(BaseHTTPRequestHandler):
    """Serves the three files of the page and the answers."""

    protocol_version = "HTTP/1.1"  # one connection for a whole drag
    wbufsize = -1  # headers and body in one packet: the second would wait for the first's receipt

    def do_GET(self) -> None:
        """Serve a file or an answer; what is wrong with a question is told as JSON."""
        address = urlsplit(self.path)
        if self.headers.get("Host", "").partition(":")[0] not in HOSTS:
            self.refuse(HTTPStatus.FORBIDDEN, f"this page is served to {' and '.join(HOSTS)} only")
        elif address.path in FILES:
            name, media_type = FILES[address.path]
            self.reply(HTTPStatus.OK, (PAGE / name).read_bytes(), media_type)
        elif address.path in ANSWERS:
            self.answer(address.path, address.query)
        else:
            self.refuse(HTTPStatus.NOT_FOUND, f"no such page: {address.path}")

    def answer(self, path: str, query: str) -> None:
        """Serve an answer, or say what is wrong with the question."""
        try:
            answer = ANSWERS[path](parse_qs(query, keep_blank_values=True))
        except ValueError as error:
            self.refuse(HTTPStatus.BAD_REQUEST, str(error))
        else:
            self.reply(HTTPStatus.OK, json.dumps(answer, allow_nan=False).encode(), "application/json")

    def refuse(self, status: HTTPStatus, message: str) -> None:
        """Reply with an error."""
        self.reply(status, json.dumps({"error": message}).encode(), "application/json")

    def reply(self, status: HTTPStatus, body: bytes, media_type: str) -> None:
        """Send one complete response."""
        self.send_response(status)
        self.send_header("Content-Type", f"{media_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Stay quiet: a drag asks sixty times a second."""


def make_server(port: int) -> ThreadingHTTPServer:
    """A server for this computer alone; port 0 takes any free one."""
    return ThreadingHTTPServer((ADDRESS, port), Handler)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8765, help="0 takes any free one (default: %(default)s)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    options = parser.parse_args()
    if not 0 <= options.port <= 65535:
        parser.error("--port must be from 0 to 65535")
    return options


def main() -> None:
    """Serve until Ctrl+C."""
    options = parse_options()
    try:
        server = make_server(options.port)
    except OSError as error:
        raise SystemExit(
            f"cannot listen on port {options.port} ({error.strerror}): choose another with --port"
        ) from None
    url = f"http://{ADDRESS}:{server.server_port}/"
    print(f"The explorer is at {url} (Ctrl+C stops it)", flush=True)
    if not options.no_browser:
        webbrowser.open(url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()


if __name__ == "__main__":
    main()
