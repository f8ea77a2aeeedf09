"""Watch the protocol step by step: the reference's own code under the simulator."""
