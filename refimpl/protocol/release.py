"""The release of this package: in `commitInfo.engineInfo`, and in what the server and the command line say."""

__version__ = "0.1.0"
