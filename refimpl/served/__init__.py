"""An owner for many writers and for a catalog: group commit, a fair queue, requests with preconditions."""
