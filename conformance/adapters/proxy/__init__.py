"""An HTTP proxy that loses, repeats and delays requests and answers on demand.

    with FaultProxy("http://127.0.0.1:8080") as proxy:
        proxy.next(Fault.DROP_RESPONSE, match=Match(method="POST", body="add-commit"))
        client_of(proxy.url).commit(...)            # it lands, and the answer is lost
        assert proxy.counts()[Fault.DROP_RESPONSE] == 1

It has every network fault of FIELD_BUGS.md#faults, and works in front of any HTTP server: a subject of the kit, a
catalog, the reference. As a command: `delta-commit-conformance proxy URL`.
"""

from conformance.adapters.proxy.server import ANYTHING, Exchange, Fault, FaultProxy, Match, Plan

__all__ = ["ANYTHING", "Exchange", "Fault", "FaultProxy", "Match", "Plan"]
