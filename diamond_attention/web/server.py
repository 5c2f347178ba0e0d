"""Files and answers over HTTP, to this machine alone: read-only, without a way out of what is served.

A page of any other site may ask a server on this machine too, and with a name of its own that leads here it could
read the answers (DNS rebinding). So only requests that name this machine as their host are answered.
"""

import errno
import mimetypes
import re
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from diamond_attention.errors import UserError
from diamond_attention.plain_file import NotPlainError, TooLargeError

HOST = "127.0.0.1"
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".safetensors": "application/octet-stream"}
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"
LONGEST_ADDRESS = 2000


class Answer(NamedTuple):
    data: bytes
    type: str


class RefusedError(Exception):
    """There is nothing at this address, or nothing that may be seen."""


Answers = Callable[[str], Answer]
"""Of an address without its host and query, decoded: "live/main.js". May raise RefusedError or UserError."""


def serve(answers: Answers, port: int, say: Callable[[str], None]) -> None:
    """Answers until Ctrl-C. Says its address once it can be opened."""
    with _listening(answers, port) as server:
        say(f"http://{HOST}:{server.server_address[1]}/")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return  # how one leaves; nothing is lost


def _listening(answers: Answers, port: int) -> "Server":
    try:
        return Server(answers, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"--port is {port}, which is in use; name another, or 0 for any that is free.") from None
        if error.errno == errno.EACCES:
            raise UserError(f"--port is {port}, which is not open to everybody; name one from 1024 on.") from None
        raise


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True  # a port that was left a moment ago is free
    address_family = socket.AF_INET

    def __init__(self, answers: Answers, port: int):
        self.answers = answers
        super().__init__((HOST, port), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "diamond", ""
    timeout = 30  # seconds; whoever sends nothing is not waited for longer

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        try:
            if not self._names_this_machine():
                return self._send(HTTPStatus.FORBIDDEN, _words("this server answers this machine alone."), body)
            address = urlsplit(self.path[:LONGEST_ADDRESS]).path
            # A file's name may hold bytes that are no text.
            named = unquote(address, errors="surrogateescape").removeprefix("/")
            return self._send(HTTPStatus.OK, self.server.answers(named), body)
        except UserError as error:
            self._send(HTTPStatus.CONFLICT, _words(str(error)), body)
        except (RefusedError, NotPlainError, TooLargeError, OSError, ValueError) as error:
            if isinstance(error, ConnectionError):
                return None  # whoever asked has left
            self._send(HTTPStatus.NOT_FOUND, _words("there is nothing at this address."), body)
        return None

    def _names_this_machine(self) -> bool:
        named = self.headers.get_all("Host") or []
        if len(named) != 1:
            return False
        host, _, port = named[0].rpartition(":") if ":" in named[0] else (named[0], "", "")
        return host.lower() in (HOST, "localhost") and port in ("", str(self.server.server_address[1]))

    def _part_wanted(self, size: int) -> range | None:
        """Of so many bytes; None for all of them, empty where there are none. Who goes through a film asks for parts.

        Of several parts at once, or a part of what may have changed since, HTTP lets us answer the whole.
        """
        asked = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", self.headers.get("Range", "").strip())
        if self.command != "GET" or not asked or not any(asked.groups()) or "If-Range" in self.headers:
            return None
        first, last = asked.groups()
        if not first:  # so many at the end
            return range(max(size - int(last), 0), size)
        if last and int(last) < int(first):
            return None
        return range(int(first), min(int(last) + 1, size) if last else size)

    def _send(self, status: HTTPStatus, answer: Answer, body: bool) -> None:
        size, part = len(answer.data), None
        if status == HTTPStatus.OK:
            part = self._part_wanted(size)
        if part is not None:
            status = HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
            answer = answer._replace(data=answer.data[part.start : part.stop])
        self.send_response(status)
        self.send_header("Content-Type", answer.type)
        self.send_header("Content-Length", str(len(answer.data)))
        self.send_header("Accept-Ranges", "bytes")
        if part is not None:
            self.send_header(
                "Content-Range", f"bytes {part.start}-{part.stop - 1}/{size}" if part else f"bytes */{size}"
            )
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(answer.data)

    def log_message(self, *_: object) -> None:
        """Nothing: a terminal full of requests helps nobody."""


def _words(sentence: str) -> Answer:
    return Answer(sentence.encode(errors="replace"), "text/plain; charset=utf-8")


def type_of(name: str) -> str:
    ending = name[name.rfind(".") :]
    found = TYPES.get(ending) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{found}; charset=utf-8" if found.startswith("text/") else found
