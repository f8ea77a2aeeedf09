"""Commit coordinators that are Java classes, as subjects of the kit.

Delta's interface for a commit owner is `io.delta.storage.commit.CommitCoordinatorClient`: one object that stages the
actions, has them ratified, and publishes. Here one runs in a JVM of its own, and the adapter does what Delta's client
does around it: it writes version 0 and takes tables over through the file system, registers them, and keeps what
registering answered.

`naming` lists the coordinators, `machine` starts the JVM, `owner` answers the kit, `log` reads and changes the log and
translates names, and `dynamodb` is the database below the DynamoDB coordinator, with its faults.
"""
