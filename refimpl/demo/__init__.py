"""The demonstration: real data, committed by competing processes, with nothing lost and every number computed.

`tell.run` is the whole story; `refimpl.cli.demonstration` shows it.
"""
