"""The shared interface: what the kit asks a subject, and the closed set of answers.

The same messages travel in process, over stdio and over HTTP. `messages` is the interface;
`schema` makes the JSON Schema of every message from it.
"""
