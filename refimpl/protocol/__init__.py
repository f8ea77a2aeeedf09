"""The words of the protocol: actions, file names, table features, outcomes, errors, and an owner's interface."""
