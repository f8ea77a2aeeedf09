"""Requests whose answers are lost on the wire, for those who must know all the same what the answer was."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from conformance.adapters.connections import BrokenError, Connections
from conformance.proxy.faults import Fault
from conformance.proxy.server import FaultProxy


class LossyConnections:
    """As `Connections`, through a proxy that hangs up on the client when the server has answered. The server sees a
    client that is gone; the kit, which stands behind both, still learns what would have been heard. One request at a
    time; the proxy is started with the first."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._lock = Lock()
        self._proxy: FaultProxy | None = None
        self._connections: Connections | None = None

    def send(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of the response that was lost. Raises what `Connections.send` raises where there was
        none."""
        with self._lock:
            if self._proxy is None or self._connections is None:
                self._proxy = FaultProxy(self._url)
                self._connections = Connections(self._proxy.url, timeout=self._timeout)
            self._proxy.next(Fault.DROP_RESPONSE)
            try:
                self._connections.send(method, target, body, headers)
            except BrokenError:
                lost = self._proxy.exchanges[-1]
                if lost.status is None or lost.lost is None:
                    raise
                return lost.status, lost.lost
            except TimeoutError:
                self._hang_up()  # the answer to this one may come yet, and be taken for the next one's
                raise
            raise AssertionError("the proxy passed an answer on that it was to lose")

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._connections is not None:
            self._connections.close()
        if self._proxy is not None:
            self._proxy.close()
        self._connections = self._proxy = None
