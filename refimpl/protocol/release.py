"""The release of this package: in `commitInfo.engineInfo`, and in what the server and the command line say. How to
install its optional parts.
"""

__version__ = "0.1.0"


def how_to_install(extra: str) -> str:
    """The command that installs the extra. It names a checkout or a wheel: no package index has this project."""
    return f"pip install '.[{extra}]' in a checkout of this project, or 'WHEEL[{extra}]' with the path of its wheel"
