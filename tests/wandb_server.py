"""As much of a Weights & Biases server as a run needs, kept in memory, with faults to choose from."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WandBServer(ThreadingHTTPServer):
    """``with WandBServer() as server:`` it answers at ``server.url``.

    Attributes:
        fault: ``"hang"``, ``"500"`` or ``"reset"``, from the next request on; ``""`` for none.
        lines: the history of each run, by its id, as it was sent.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.fault = ""
        self.lines: dict[str, list[str]] = {}
        self._released = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self.shutdown()
        self.server_close()

    def rows(self, run_id: str) -> list[tuple[int, dict[str, float]]]:
        """Step and metrics of each row of a run, in the order they were sent."""
        rows = [json.loads(line) for line in self.lines.get(run_id, [])]
        return [(row["_step"], {k: v for k, v in row.items() if not k.startswith("_")}) for row in rows]

    def has(self, rows: int) -> bool:
        """Whether that many rows of a run have come."""
        return any(len(lines) == rows for lines in self.lines.values())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing is said of a client that went away."""


class Handler(BaseHTTPRequestHandler):
    server: WandBServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.fault == "hang":
            self.server._released.wait()
        if self.server.fault in ("hang", "reset"):
            self.close_connection = True
        elif self.server.fault == "500":
            self.answer({"error": "broken"}, 500)
        elif self.path == "/graphql":
            self.answer({"data": self.graphql(**json.loads(body))})
        elif found := re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", self.path):
            self.file_stream(found[1], json.loads(body).get("files", {}))
            self.answer({})
        else:
            self.answer({}, 404)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({})

    def graphql(self, query: str, variables: dict[str, Any] | None = None, **_: object) -> dict[str, Any]:
        (operation,) = re.findall(r"^\s*(?:query|mutation)\s+(\w+)", query, re.MULTILINE)
        given = variables or {}
        if operation == "RunResumeStatus":
            bucket = self.bucket(given["name"]) if given["name"] in self.server.lines else None
            return {"model": {"id": "p", "name": "p", "entity": {"id": "e", "name": "e"}, "bucket": bucket}}
        if operation == "UpsertBucket":
            inserted = given["name"] not in self.server.lines
            self.server.lines.setdefault(given["name"], [])
            return {"upsertBucket": {"bucket": self.bucket(given["name"]), "inserted": inserted}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.server.url}/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}
        return {}

    def bucket(self, run_id: str) -> dict[str, Any]:
        lines = self.server.lines[run_id]
        return {
            "id": run_id,
            "name": run_id,
            "displayName": run_id,
            "project": {"id": "p", "name": "p", "entity": {"id": "e", "name": "e"}},
            "config": "{}",
            "wandbConfig": '{"t": 1}',  # without which a run has not begun
            "summaryMetrics": "{}",
            "historyTail": json.dumps(lines[-1:]),
            "eventsTail": "[]",
            "historyLineCount": len(lines),
            "eventsLineCount": 0,
            "logLineCount": 0,
        }

    def file_stream(self, run_id: str, files: dict[str, Any]) -> None:
        if chunk := files.get("wandb-history.jsonl"):
            begin, lines = chunk["offset"], self.server.lines[run_id]
            lines[begin : begin + len(chunk["content"])] = chunk["content"]  # sent again if an answer was lost

    def answer(self, data: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is said."""
