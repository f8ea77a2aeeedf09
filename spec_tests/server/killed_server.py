"""A server that kills itself (SIGKILL) after it has ratified one given version, before it answers.

python -m spec_tests.server.killed_server WAREHOUSE VERSION
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from refimpl.commits import Ratified
from refimpl.owner.local import LocalOwner
from refimpl.server.serving import Serving, serve


def main() -> None:
    warehouse, fatal = Path(sys.argv[1]), int(sys.argv[2])
    original = LocalOwner.commit_if

    def commit_if(self: LocalOwner, table_id: str, version: int, *more: Any) -> Any:
        outcome = original(self, table_id, version, *more)
        if version == fatal and isinstance(outcome, Ratified):
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome

    LocalOwner.commit_if = commit_if  # type: ignore[method-assign]
    serve(Serving(warehouse=warehouse, log_level="error"))


if __name__ == "__main__":
    main()
