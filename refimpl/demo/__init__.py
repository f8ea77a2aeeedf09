"""The demonstration: real data, committed by competing processes, with nothing lost and every number computed.

`story.run` runs it; `refimpl.cli.demonstration` shows it.
"""
