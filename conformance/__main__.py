"""`python -m conformance`, which is `delta-commit-conformance`."""

from conformance.command import main

if __name__ == "__main__":
    main()
