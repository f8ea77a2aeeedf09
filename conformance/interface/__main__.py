"""Print the JSON Schema of the interface: `python -m conformance.interface`."""

from __future__ import annotations

import sys

from conformance.interface.schema import text

if __name__ == "__main__":
    sys.stdout.write(text())
