"""The demonstration: competing processes commit real data, nothing is lost, and every number shown is computed.

`story.run` runs it; `refimpl.cli.demonstration` shows it.
"""
