"""Commit coordinators that are Java classes, as subjects of the kit.

Delta's interface for a commit owner is `io.delta.storage.commit.CommitCoordinatorClient`: one object that stages the
actions, has them ratified, and publishes. Here one runs in a JVM of its own, and the adapter does what Delta's client
does around it: it writes version 0 and takes tables over through the file system, registers them, and keeps what
registering answered.

`naming` knows which coordinators there are, `machine` starts the JVM, `owner` answers the kit, `files` is its eyes and
hands, `delta` translates names, `dynamodb` is the database under the DynamoDB coordinator, `faults` what
may go wrong in it and around it.
"""
