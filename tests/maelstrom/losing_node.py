"""A node of somebody else: it speaks Maelstrom's protocol, and forgets every tenth value that it has acknowledged."""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Answer until standard input ends."""
    values: list[int] = []
    me = ""
    for line in sys.stdin:
        message = json.loads(line)
        body = message["body"]
        answer = {"type": f"{body['type']}_ok", "in_reply_to": body["msg_id"]}
        if body["type"] == "init":
            me = body["node_id"]
        elif body["type"] == "broadcast" and body["message"] % 10:
            values.append(body["message"])
        elif body["type"] == "read":
            answer["messages"] = values
        print(json.dumps({"src": me, "dest": message["src"], "body": answer}), flush=True)


main()
