"""Reads the log of a table: its files, their formats, and the state and times that they hold."""
