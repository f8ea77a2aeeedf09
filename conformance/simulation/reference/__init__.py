"""The reference as a subject of the simulator."""
