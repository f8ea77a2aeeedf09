"""Put a network that misbehaves in front of a server.

    python -m conformance.proxy http://127.0.0.1:8080 --seed 7 --share drop-response=0.05 --share delay=0.1

It prints one line of JSON with its URL when it listens, and one with what happened when it is told to end.
The exit code is 0 when it was told to end, 2 when it cannot do what it was asked.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence

from conformance.proxy.faults import Fault, Match, Plan
from conformance.proxy.server import PATIENCE, FaultProxy


def main(arguments: Sequence[str] | None = None) -> int:
    """Until a signal says to end."""
    parser = argparse.ArgumentParser(prog="python -m conformance.proxy", description=__doc__.splitlines()[0])
    parser.add_argument("server", metavar="URL", help="URL of the server, for example http://127.0.0.1:8080")
    parser.add_argument("--port", type=int, default=0, help="listen port on this machine (default: 0, any free port)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults (default: 0)")
    parser.add_argument("--share", action="append", default=[], metavar="FAULT=SHARE", type=_share,
                        help=f"share of the requests with a fault, 0 to 1; faults: {', '.join(Fault)}")  # fmt: skip
    parser.add_argument("--method", help="only requests with this method")
    parser.add_argument("--path", help="only requests whose path and query match this regular expression")
    parser.add_argument("--body", help="only requests whose body contains this text")
    parser.add_argument("--once", action="store_true", help="do not fault an identical request twice")
    parser.add_argument("--patience", type=float, default=PATIENCE, metavar="SECONDS",
                        help="maximum delay of a request (default: %(default)s)")  # fmt: skip
    given = parser.parse_args(arguments)
    match = Match(method=given.method, path=given.path, body=given.body)
    try:
        plan = Plan(seed=given.seed, shares=dict(given.share), match=match, once=given.once)
        proxy = FaultProxy(given.server, plan=plan, port=given.port, patience=given.patience)
    except (ValueError, OSError, OverflowError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    told_to_end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told_to_end.set())
    with proxy:
        _tell({"url": proxy.url, "server": given.server, "seed": given.seed})
        told_to_end.wait()
    _tell({"faults": {fault.value: count for fault, count in sorted(proxy.counts().items())}})
    return 0


def _share(text: str) -> tuple[Fault, float]:
    name, _, share = text.partition("=")
    try:
        return Fault(name), float(share)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no share of a fault; it is, for example, 503=0.1") from None


def _tell(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main())
