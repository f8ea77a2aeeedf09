"""The release: in the package, in `commitInfo.engineInfo`, and in what the server and the command line say."""

VERSION = "0.1.0"
