"""Delta Spark commits through our owner: a commit coordinator for `io.delta:delta-spark` 4.4, written in Python.

    from refimpl.spark import coordinator
    coordinator.register(spark, "/data/warehouse", new_tables=True)
    spark.sql("CREATE TABLE orders (id BIGINT) USING delta LOCATION '/data/warehouse/orders'")
    spark.sql("INSERT INTO orders VALUES (1)")

`spark` is any session with Delta on its class path and `SETTINGS`; the owner runs in the driver's Python, and other
processes share the warehouse as usual. Tables must be inside the warehouse, or below one of its roots. The feature is
`table_feature.COORDINATED_COMMITS`; DELTA_SPARK.md#interfaces describes the interfaces.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from refimpl.errors import InvalidRequestError
from refimpl.spark.coordinator_client import CoordinatorClient, Served, is_same
from refimpl.table_feature import COORDINATED_COMMITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from refimpl.warehouse import Warehouse

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
)
"""What any session needs to have Delta tables; Spark takes them only when it starts."""

_DEFAULTS: Final = "spark.databricks.delta.properties.defaults."
_REGISTERED: Final = "_refimpl_coordinators"
"""Where a gateway keeps what was registered with its JVM, which cannot be asked for it."""


def register(
    spark: SparkSession, warehouse: Warehouse | str | os.PathLike[str], *, new_tables: bool = False
) -> Mapping[str, str]:
    """Let this session's Delta commit through the owner of `warehouse`; the properties that give a table to it.

    They go into `TBLPROPERTIES` of a CREATE, or into `ALTER TABLE ... SET TBLPROPERTIES` of a table that exists.
    `new_tables`: every table that this session creates gets them by itself.
    Registration outlives the session, as the JVM does: a second one puts its warehouse in the place of the first.
    Raises `InvalidRequestError` where the session has no Delta of version 4.
    """
    if isinstance(warehouse, str | os.PathLike):
        import refimpl

        warehouse = refimpl.open(warehouse)
    from pyspark.java_gateway import ensure_callback_server_started

    gateway: Any = spark.sparkContext._gateway
    provider = _provider(gateway)
    gateway.callback_server_parameters.propagate_java_exceptions = True  # else a lost race fails the whole INSERT
    ensure_callback_server_started(gateway)
    name = warehouse.owner.name
    served = Served(warehouse, gateway)
    known = gateway.__dict__.setdefault(_REGISTERED, {})
    if name in known:
        known[name].client.serve(served)
    else:
        builder = CoordinatorBuilder(name, CoordinatorClient(name, served))
        provider.registerBuilder(builder)
        known[name] = builder
    properties = table_properties(name)
    for key, value in properties.items():
        setting = _DEFAULTS + key.removeprefix("delta.")
        if new_tables:
            spark.conf.set(setting, value)
        else:
            spark.conf.unset(setting)
    return properties


def table_properties(owner_name: str) -> Mapping[str, str]:
    """The properties with which a table says that `owner_name` is its coordinator."""
    owner, conf = COORDINATED_COMMITS.owner_property, COORDINATED_COMMITS.owner_conf_property
    assert owner is not None
    assert conf is not None
    return {owner: owner_name, conf: "{}"}


def _provider(gateway: Any) -> Any:
    from py4j.java_gateway import JavaClass

    found = gateway.jvm.org.apache.spark.sql.delta.coordinatedcommits.CommitCoordinatorProvider
    if not isinstance(found, JavaClass):
        raise InvalidRequestError(
            "this Spark session has no Delta 4 on its class path; start it with the jars of io.delta:delta-spark 4.4, "
            "io.delta:delta-storage and com.amazonaws:aws-java-sdk-dynamodb:1.12.262 in spark.jars"
        )
    return found


class CoordinatorBuilder:
    """The Scala trait `CommitCoordinatorBuilder`: one client for all tables, whatever their configuration says."""

    def __init__(self, name: str, client: CoordinatorClient) -> None:
        self.name = name
        self.client = client

    def getName(self) -> str:  # noqa: N802 - the trait's
        return self.name

    def build(self, spark: Any, conf: Any) -> CoordinatorClient:
        return self.client

    def equals(self, other: Any) -> bool:
        return is_same(self, other)

    def hashCode(self) -> int:  # noqa: N802
        return hash(self.name) % 2**31

    def toString(self) -> str:  # noqa: N802
        return f"CoordinatorBuilder({self.name})"

    class Java:
        implements = ("org.apache.spark.sql.delta.coordinatedcommits.CommitCoordinatorBuilder",)
