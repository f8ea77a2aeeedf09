"""The shared interface: the kit's requests to a subject, and the closed set of answers.

The same messages travel in process, over stdio and over HTTP. `messages` is the interface, with the JSON Schema of
every message; `subject` is the type that answers them; `log_names` are the names of files in a log.
"""
