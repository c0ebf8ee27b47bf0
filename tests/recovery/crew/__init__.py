"""An installed app for real processes of a test: its agents, and the points at which the test may kill them."""
