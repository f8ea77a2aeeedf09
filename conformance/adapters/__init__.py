"""Connections to subjects: in this process, to another process over stdio, or over HTTP."""
