"""A server of the Delta API as a subject of the kit."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from conformance.adapters.connections import Connections, LossyConnections, NoConnectionError
from conformance.adapters.in_process import InProcess
from conformance.adapters.uc.address import Address
from conformance.adapters.uc.api import DeltaApi, UnansweredError
from conformance.adapters.uc.owner import Known, UcOwner, identity_of
from conformance.interface.messages import Answer, Identity, Request
from conformance.interface.subject import TIMEOUT, AdapterError


class UcSubject:
    """Safe for threads. `timeout`: seconds that one call of the API may take. Raises `AdapterError` if there is no such
    server, catalog or schema, or the token is refused."""

    def __init__(self, address: Address, *, timeout: float = TIMEOUT) -> None:
        self._connections = Connections(address.server, timeout=timeout)
        self._lossy = LossyConnections(address.server, timeout=timeout)
        known = Known()
        heard = DeltaApi(address, self._connections, self._connections)
        unheard = DeltaApi(address, self._connections, self._lossy)
        try:
            self.identity: Identity = identity_of(address, heard)
        except (NoConnectionError, UnansweredError) as error:
            self.close()
            raise AdapterError(
                f"nobody answers at {address.server}: {error}. Start the server before the kit"
            ) from error
        except BaseException:
            self.close()
            raise
        self._asked = InProcess(UcOwner(address, heard, known, self.identity))
        self._lost = InProcess(UcOwner(address, unheard, known, self.identity))

    def ask(self, client: str, request: Request) -> Answer:
        return self._asked.ask(client, request)

    def lose(self, client: str, request: Request) -> Answer:
        """Ask, and lose the server's answers to all that changes something on the wire. What they were is for the kit
        alone to know."""
        return self._lost.ask(client, request)

    def close(self) -> None:
        """Hang up. Idempotent; the server itself goes on."""
        self._connections.close()
        self._lossy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
