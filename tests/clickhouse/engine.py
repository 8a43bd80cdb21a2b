"""`python -m tests.clickhouse.engine FOLDER PORT`: ClickHouse of today in one process (chdb), asked over HTTP like a server.

It has no ZooKeeper, so a replicated table becomes a plain one; that the statement itself is good it says before that. Each
setting of a request has to be one that it knows.
"""

import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from chdb import ChdbError
from chdb.session import Session

OF_HTTP: Final = ("query", "wait_end_of_query")
"""What a request says beside the statement and its settings."""
REPLICATED: Final = re.compile(r"ReplicatedMergeTree\('[^']*', '[^']*'\)")
NO_ZOOKEEPER: Final = "Code: 225."


class Engine:
    """One statement at a time."""

    def __init__(self, folder: Path) -> None:
        self.session, self.rows, self.one = Session(str(folder / "engine")), folder / "rows", Lock()

    def ask(self, statement: str, rows: bytes, settings: dict[str, str]) -> bytes:
        with self.one:
            for name, value in settings.items():
                self._run(f"SET {name} = {value}")
            try:
                return self._answer(statement, rows)
            finally:
                for name in settings:
                    self._run(f"SET {name} = DEFAULT")

    def _answer(self, statement: str, rows: bytes) -> bytes:
        if REPLICATED.search(statement):
            try:
                return self._run(statement)
            except ChdbError as error:
                if not str(error).startswith(NO_ZOOKEEPER):
                    raise
        if rows:
            self.rows.write_bytes(rows)
            statement = statement.replace(" FORMAT ", f" FROM INFILE '{self.rows}' FORMAT ")
        return self._run(REPLICATED.sub("MergeTree", statement))

    def _run(self, statement: str) -> bytes:
        answer: bytes = self.session.query(statement, "TSV").bytes()
        return answer


def main(folder: Path, port: int) -> None:
    engine = Engine(folder)

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = dict(parse_qsl(urlsplit(self.path).query))
            body = self.rfile.read(int(self.headers["Content-Length"]))
            statement, rows = (asked["query"], body) if "query" in asked else (body.decode(), b"")
            settings = {name: value for name, value in asked.items() if name not in OF_HTTP}
            try:
                status, answer = 200, engine.ask(statement, rows, settings)
            except ChdbError as error:
                status, answer = 500, str(error).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *given: Any) -> None:
            """Who asks sees the answer."""

    ThreadingHTTPServer(("127.0.0.1", port), Answers).serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
