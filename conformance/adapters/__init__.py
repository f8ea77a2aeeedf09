"""How the kit talks to what it tests: in this process, to another one over stdio, or over HTTP."""
