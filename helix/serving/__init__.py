"""Running Helix: everything in one process, or a small tree of processes, with one command."""
