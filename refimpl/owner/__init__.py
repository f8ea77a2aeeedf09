"""The commit owner: SQLite under a file lock.

Read `decide` first (who may commit what), then `local` (how a decision becomes durable).
"""
