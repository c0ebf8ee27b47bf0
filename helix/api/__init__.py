"""The REST edge: a view parses, calls `helix.operations` and renders (contract 5.L). No rule lives here."""
