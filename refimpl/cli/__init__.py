"""The command line `commit-owner`: calls the owner and the client, and shows their answers.

Importing it is cheap: each command imports what it needs when it runs.
"""


def main() -> None:
    """The console script. A logged warning, for example of an unreadable checkpoint, is a line on stderr."""
    import logging

    from refimpl.cli.application import application

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(logging.Formatter("warning: %(message)s"))
    application()
