"""The executable form of Delta's managed commits: owner, client and Spark pipeline.

    import refimpl
    warehouse = refimpl.open("/path/to/warehouse")  # create=True creates it

Importing this package is cheap: Arrow and Spark are imported where they are used.
"""

import sys
from typing import TYPE_CHECKING, Any, Final

SYSTEMS: Final = ("linux", "darwin")
if sys.platform not in SYSTEMS:
    from pathlib import PureWindowsPath

    refusal = f"refimpl runs on Linux and macOS, not on {sys.platform}; on Windows, use it inside WSL 2"
    if PureWindowsPath(*sys.argv[:1]).stem in ("commit-owner", "-m"):  # a command line: no traceback
        print(f"error: {refusal}", file=sys.stderr)
        sys.exit(2)
    raise ImportError(refusal)

from refimpl.protocol.release import __version__  # noqa: E402 - after the check of the system

if TYPE_CHECKING:
    from refimpl.warehouse import Warehouse, open  # noqa: A004
    from refimpl.warehouse.owner_names import open_table, register_owner, warehouse_owner

__all__ = ["Warehouse", "__version__", "open", "open_table", "register_owner", "warehouse_owner"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in ("open", "Warehouse"):
        from refimpl import warehouse

        return getattr(warehouse, name)
    if name in __all__:
        from refimpl.warehouse import owner_names

        return getattr(owner_names, name)
    raise AttributeError(f"module 'refimpl' has no attribute {name!r}")
