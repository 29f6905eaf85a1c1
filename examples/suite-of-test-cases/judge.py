"""A stand-in for a model that judges: it passes every answer that names Friday. Only for this example."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Judge(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        verdict = {"reason": "It names the day." if "Friday" in asked else "It does not name the day."}
        answer = json.dumps({**verdict, "passed": "Friday" in asked})
        chunks = [
            {"choices": [{"index": 0, "delta": {"content": answer}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": len(asked) // 4, "completion_tokens": len(answer) // 4}},
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Write no log."""


print("listening on http://127.0.0.1:3002", flush=True)
ThreadingHTTPServer(("127.0.0.1", 3002), Judge).serve_forever()
