"""Small repositories to mutate."""

from pathlib import Path


def repository(folder: Path, module: str, test: str, checks: str) -> Path:
    """A repository with the module `refimpl/log_store.py` and its test."""
    files = {"refimpl/__init__.py": "", "refimpl/log_store.py": module, test: checks}
    for name, text in (files | {"pyproject.toml": "[tool.pytest.ini_options]\n"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder
