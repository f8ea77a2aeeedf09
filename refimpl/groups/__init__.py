"""Transactions over several tables, ratified in one transaction of the ledger: see `refimpl.protocol.groups`."""
