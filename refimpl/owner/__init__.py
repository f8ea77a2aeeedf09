"""The commit owner: SQLite under a file lock.

Read `decide` first (who may commit what), then `tables` (the transactions and promises of a table) and `local` (how a
decision becomes durable): the whole path of one commit. Other packages add group commit and a catalog's requests
(`served`), tables that engines announce (`announced`), and an operator's work (`care`).
"""
