"""A subject behind standard input and output that misbehaves in one way: `python misbehaving.py THING`.

Without THING it is a correct subject without tables. If not stated otherwise, it misbehaves when `get_commits` is
called.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

THING = sys.argv[1] if len(sys.argv) > 1 else ""
HERE = Path(os.environ["CONFORMANCE_DIRECTORY"])
STARTS = HERE / "starts"
IDENTITY = {
    "outcome": "identity", "name": "misbehaving", "version": "1", "interface_version": 1, "side": "owner",
    "profiles": ["core", "version-0-by-owner", "staged"], "commit_modes": {"managedCommit": ["staged"]},
    "features": ["managedCommit"],
}  # fmt: skip
LINES = {
    "no JSON": b"version 1 is ratified",
    "a list": b"[]",
    "no envelope": b'{"outcome": "not_found"}',
    "unknown outcome": b'{"id": NUMBER, "answer": {"outcome": "not-found"}}',
    "other outcome": b'{"id": NUMBER, "answer": {"outcome": "done"}}',
    "a line of a log": b'{"level": "info", "msg": "asked"}',
    "missing field": b'{"id": NUMBER, "answer": {"outcome": "commits", "latest": 1}}',
    "misspelt field": b'{"id": NUMBER, "answer": {"outcome": "commits", "latest": 1, "commits": [], "lastest": 2}}',
    "nested too deeply": b'{"id": 1, "answer": ' + b"[" * 100_000,
    "no UTF-8": b'{"id": \xff}',
    "Latin-1": b'{"id": NUMBER, "answer": {"outcome": "caf\xe9"}}',
    "byte order mark": b'\xef\xbb\xbf{"id": NUMBER, "answer": {"outcome": "not_found"}}',
}
"""Lines instead of a reply; NUMBER is that of the call."""


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def reply(number: object, answer: object) -> None:
    write(json.dumps({"id": number, "answer": answer}) + "\n")


def hang() -> None:
    while True:
        signal.pause()


def begin() -> None:
    """Misbehave before the first call."""
    starts = int(STARTS.read_text()) + 1 if STARTS.exists() else 1
    STARTS.write_text(str(starts))
    (HERE / f"pid-{os.getpid()}").touch()
    if THING == "a greeting":
        print("Listening for calls", flush=True)
    elif THING == "a reply before any call":
        reply(99, IDENTITY)
    elif THING == "other after a restart" and starts > 1:
        IDENTITY["profiles"] = ["core"]
    elif THING == "shared":
        IDENTITY["shared_state"] = True
    elif THING == "death at the start":
        print("no configuration", file=sys.stderr)
        sys.exit(3)
    elif THING == "deaf and mute":
        hang()
    elif THING in ("offspring", "daemon"):
        waits = [sys.executable, "-c", "import signal; signal.pause()"]
        child = subprocess.Popen(waits, start_new_session=THING == "daemon")
        (HERE / f"pid-{child.pid}").touch()


def misbehave(number: int) -> None:
    """Misbehave instead of answering."""
    match THING:
        case "hang" | "no line feed":
            hang()
        case "death":
            print("Traceback (most recent call last):", "    ~~~~^^^^", "KeyError: 'orders'", sep="\n", file=sys.stderr)
            sys.exit(7)
        case "node":
            source = [
                "file:///owner/owner.mjs:39",
                "const x = ;",
                "          ^",
                "",
                "SyntaxError: Unexpected token ';'",
            ]
            print(*source, *(f"    at step{n}" for n in range(5)), "", "Node.js v20", sep="\n", file=sys.stderr)
            sys.exit(1)
        case "panic":
            stack = [f"main.step{depth}(...)\n\t/owner/main.go:{depth}" for depth in range(40)]
            print("panic: no such folder", "", "goroutine 1 [running]:", *stack, sep="\n", file=sys.stderr)
            print("exit status 2", file=sys.stderr)
            sys.exit(2)
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case _ if THING in LINES:
            sys.stdout.buffer.write(LINES[THING].replace(b"NUMBER", str(number).encode()) + b"\n")
            sys.stdout.flush()
        case "half a line":
            write(f'{{"id": {number}, ')
            sys.exit(0)
        case "wrong id":
            reply(number + 1000, {"outcome": "not_found"})
        case "twice":
            reply(number, {"outcome": "not_found"})
            reply(number, {"outcome": "not_found"})
        case "endless line":
            while True:
                write("x" * 2**20)
        case "closed output":
            os.close(1)
            hang()
        case _:
            reply(number, {"outcome": "not_found"})


def main() -> None:
    begin()
    held: int | None = None
    for line in sys.stdin:
        call = json.loads(line)
        request = call["request"]
        if request["op"] == "hello":
            begun = '{"id": 2, "answer": {' if THING == "no line feed" else ""
            write(json.dumps({"id": call["id"], "answer": IDENTITY}) + "\n" + begun)
            if THING == "deaf after hello":
                hang()
        elif THING == "late" and held is None and request["op"] == "get_commits":
            held = call["id"]
        elif request["op"] == "get_commits" and THING != "late":
            misbehave(call["id"])
        elif request["op"] == "drop_table" and THING == "places":
            places = [str(Path.cwd()), os.environ["HOME"], os.environ["TMPDIR"]]
            reply(call["id"], {"outcome": "rejected", "reason": json.dumps(places)})
        elif request["op"] == "drop_table":
            reply(call["id"], {"outcome": "rejected", "reason": call["client"]})
        else:
            if held is not None:
                reply(held, {"outcome": "not_found"})
                held = None
            reply(call["id"], {"outcome": "unsupported", "reason": str(os.getpid())})
    if THING == "deaf to the end":
        hang()


if __name__ == "__main__":
    main()
