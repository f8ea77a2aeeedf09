"""How to install an optional part of this project, for error messages."""


def how_to_install(extra: str) -> str:
    """The command that installs the extra. It names a checkout or a wheel: no package index has this project."""
    return f"pip install '.[{extra}]' in a checkout of this project, or 'WHEEL[{extra}]' with the path of its wheel"
