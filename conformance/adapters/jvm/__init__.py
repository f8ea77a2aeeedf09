"""Commit coordinators that are Java classes, as subjects of the kit.

Delta's interface for a commit owner is `io.delta.storage.commit.CommitCoordinatorClient`: one object that stages the
actions, has them ratified, and publishes. Here the coordinator runs in a JVM of its own, and the adapter plays Delta's
client around it: it writes version 0 and takes tables over through the file system, registers them, and keeps the
answers to these registrations.

`naming` lists the coordinators, and `machine` starts the JVM. `owner` answers the kit, reads and changes the log, and
translates names. `dynamodb` is the database below the DynamoDB coordinator, with its faults.
"""
