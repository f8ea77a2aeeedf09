"""The database below Delta's DynamoDB coordinator: the part of `AmazonDynamoDB` that it calls, as a Python object.

It is strict where the service is strict: it checks conditions, and its updates are atomic. It has the service's
documented weaknesses as named faults, and plans them, so that runs with the same seed meet the same faults. Each item
is a file, so that items outlive the coordinator, and the time of a call does not grow with the number of tables.
"""

import copy
import json
from collections import Counter
from enum import StrEnum
from pathlib import Path
from threading import RLock
from typing import Any, Final, cast
from urllib.parse import quote

from conformance.adapters.jvm.machine import JavaObject, Machine

_MODEL: Final = "com.amazonaws.services.dynamodbv2.model"
_JACKSON: Final = "com.amazonaws.util.json.Jackson"
_KEY: Final = "tableId"

Item = dict[str, Any]


THROTTLED: Final = 16
"""`Fault.THROTTLING` rejects each request to an item whose number is a multiple of this."""
FAILING: Final = 3
"""`Fault.FAILING_STORAGE` fails during the commit of each version that is a multiple of this."""
CRASH_POINTS: Final = ("before-update", "after-update")
"""Just before an update is applied, and just after it."""


class Fault(StrEnum):
    """Faults of the service, or of the network between it and the coordinator."""

    STALE_READS = "stale-reads"
    """An eventually consistent read may miss recent updates. Here the first such read after an update of the item
    returns the state before the update; the next read returns the update."""
    LOST_ANSWERS = "lost-answers"
    """The answer to every second update of an item is lost after the update was applied. By default, Amazon's client
    library then sends the request again without telling its caller. The caller gets the second answer."""
    THROTTLING = "throttling"
    """Every sixteenth request to an item is rejected as one too many, and has no effect. Amazon's client library sends
    a rejected request again several times before it reports the error to its caller."""
    FAILING_STORAGE = "failing-storage"
    """During the commit of every third version the storage fails: files staged before cannot be read. Then it
    recovers. At these versions the coordinators publish, if the kit leaves that to them."""


class Database(JavaObject):
    """Implements `com.amazonaws.services.dynamodbv2.AmazonDynamoDB`, called from any thread of the JVM."""

    def __init__(self, machine: Machine, folder: Path, faults: frozenset[Fault] = frozenset()) -> None:
        self._machine = machine
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._faults = faults
        self._lock = RLock()
        self._hidden: dict[str, Item] = {}
        """For each key, the item as the next eventually consistent read sees it."""
        self._updates: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self.crash_point: str | None = None
        """The crash point at which the coordinator's process dies."""
        self.dead: str | None = None
        """The crash point at which it died; None: it is alive."""

    # What the coordinator calls

    def describeTable(self, name: str) -> Any:  # noqa: N802 - Java's names
        """The table always exists."""
        description = self._machine.type(f"{_MODEL}.TableDescription")()
        description.setTableStatus("ACTIVE")
        result = self._machine.type(f"{_MODEL}.DescribeTableResult")()
        result.setTable(description)
        return result

    def putItem(self, request: Any) -> Any:  # noqa: N802
        """Supports only the condition that the coordinator uses: no item has the key."""
        fields = self._fields(request)
        item = _without_none(fields["item"])
        key = item[_KEY]["s"]
        with self._lock:
            self._count_request(key)
            if fields.get("conditionExpression") and self._item(key) is not None:
                self._raise("ConditionalCheckFailedException", "the conditional request failed")
            self._keep(key, item)
        return self._machine.type(f"{_MODEL}.PutItemResult")()

    def getItem(self, request: Any) -> Any:  # noqa: N802
        fields = self._fields(request)
        key = fields["key"][_KEY]["s"]
        with self._lock:
            self._count_request(key)
            item = self._item(key)
            if not fields.get("consistentRead"):
                item = self._hidden.pop(key, item)
        names = fields.get("attributesToGet")
        if item is not None and names:
            item = {name: value for name, value in item.items() if name in names}
        kind = self._machine.reflected(f"{_MODEL}.GetItemResult")
        return self._machine.type(_JACKSON).fromJsonString(json.dumps({"item": item}), kind)

    def updateItem(self, request: Any) -> Any:  # noqa: N802
        fields = self._fields(request)
        key = fields["key"][_KEY]["s"]
        with self._lock:
            self._count_request(key)
            self._reach("before-update")
            self._update(key, fields)
            self._reach("after-update")
            self._updates[key] += 1
            if Fault.LOST_ANSWERS in self._faults and self._updates[key] % 2 == 0:
                self._update(key, fields)  # sent again by Amazon's client library
        return self._machine.type(f"{_MODEL}.UpdateItemResult")()

    class Java:
        implements: Final = ["com.amazonaws.services.dynamodbv2.AmazonDynamoDB"]

    # Requests and items

    def _fields(self, request: Any) -> Item:
        item: Item = json.loads(self._machine.type(_JACKSON).toJsonString(request))
        return item

    def _update(self, key: str, fields: Item) -> None:
        """All or nothing, if every attribute is as expected."""
        before = self._item(key) or {_KEY: {"s": key}}
        for name, expected in (fields.get("expected") or {}).items():
            if before.get(name) != _without_none(expected["value"]):
                self._raise("ConditionalCheckFailedException", f"the conditional request failed: {name}")
        after = copy.deepcopy(before)
        for name, update in (fields.get("attributeUpdates") or {}).items():
            value = _without_none(update["value"])
            if update.get("action") == "ADD":
                value = {"l": [*after.get(name, {}).get("l", []), *value["l"]]}
            after[name] = value
        if Fault.STALE_READS in self._faults:
            self._hidden[key] = before
        self._keep(key, after)

    def _place(self, key: str) -> Path:
        return self._folder / f"{quote(key, safe='')}.json"

    def _item(self, key: str) -> Item | None:
        try:
            return cast(Item, json.loads(self._place(key).read_bytes()))
        except FileNotFoundError:
            return None

    def _keep(self, key: str, item: Item) -> None:
        temporary = self._place(key).with_suffix(".new")
        temporary.write_text(json.dumps(item), "utf-8")
        temporary.replace(self._place(key))

    # Faults

    def _count_request(self, key: str) -> None:
        """Count a request; reject it if `Fault.THROTTLING` is due."""
        if self.dead is not None:
            self._die(self.dead)
        self._requests[key] += 1
        if Fault.THROTTLING in self._faults and self._requests[key] % THROTTLED == 0:
            self._raise("ProvisionedThroughputExceededException", "too many requests")

    def _reach(self, point: str) -> None:
        if self.crash_point == point:
            self._die(point)

    def _die(self, point: str) -> None:
        """End the process here. It writes nothing more to the database or the log, because no handler catches an error
        of this kind."""
        self.dead = point
        self._throw(self._machine.type("java.lang.Error")(f"the process died {point}"))

    def _raise(self, kind: str, message: str) -> None:
        self._throw(self._machine.type(f"{_MODEL}.{kind}")(message))

    def _throw(self, error: Any) -> None:
        from py4j.protocol import Py4JJavaError

        raise Py4JJavaError("the kit's DynamoDB rejects the request", error)


def _without_none(value: Any) -> Any:
    """An attribute without its null fields: Java's class has a field for every type."""
    if isinstance(value, dict):
        return {name: _without_none(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_none(member) for member in value]
    return value
