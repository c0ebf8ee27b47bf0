"""An installed app for two real servers of a test: the parent's agents in one, the helper's in the other."""

# The variable that makes a server the parent: where its peer is.
PEER = "CREW_PEER"
