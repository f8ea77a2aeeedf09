"""A network that misbehaves on demand: an HTTP proxy that loses, repeats and delays what passes through it.

    with FaultProxy("http://127.0.0.1:8080") as proxy:
        proxy.next(Fault.DROP_RESPONSE, match=Match(method="POST", body="add-commit"))
        client_of(proxy.url).commit(...)            # it lands, and nobody answers
        assert proxy.counts()[Fault.DROP_RESPONSE] == 1

Every fault of FIELD_BUGS.md#faults that a network can have. It stands in front of any HTTP server:
a subject of the kit, a catalog, the reference. As a command: `delta-commit-conformance proxy URL`.
"""

from conformance.proxy.faults import ANYTHING, Exchange, Fault, Match, Plan
from conformance.proxy.server import FaultProxy

__all__ = ["ANYTHING", "Exchange", "Fault", "FaultProxy", "Match", "Plan"]
