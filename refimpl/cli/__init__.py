"""The command line `commit-owner`: calls the owner and the client, and shows their answers.

Importing it is cheap: each command imports what it needs when it runs.
"""


def main() -> None:
    """The console script."""
    from refimpl.cli.application import application

    application()
