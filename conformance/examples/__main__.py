"""Print an example owner, or a page: `python -m conformance.examples owner.py > owner.py`.

Without a name: which there are, and where.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
FILES: Final = {
    "owner.py": _HERE / "owner.py",
    "owner.mjs": _HERE / "owner.mjs",
    "TEST_YOUR_OWNER.md": _HERE.parent / "TEST_YOUR_OWNER.md",
    **{page.name: page for page in sorted((_HERE.parent / "requirements").glob("*.md"))},
}


def main(arguments: list[str]) -> int:
    """The exit code."""
    if not arguments:
        sys.stdout.writelines(f"{name:<20} {path}\n" for name, path in FILES.items())
        return 0
    unknown = [name for name in arguments if name not in FILES]
    if unknown:
        sys.stderr.write(f"error: there is no {unknown[0]!r}; there are {', '.join(FILES)}\n")
        return 2
    sys.stdout.writelines(FILES[name].read_text(encoding="utf-8") for name in arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
