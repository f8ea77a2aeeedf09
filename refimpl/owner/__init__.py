"""The commit owner: SQLite under a file lock.

Read `decide` first (who may commit what), then `local` (how a decision becomes durable). Other packages add group
commit and a catalog's requests (`served`), tables that engines announce (`announced`), and an operator's work (`care`).
"""
