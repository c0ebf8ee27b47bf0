"""Other people's wire formats over the same services: an unmodified frontend of theirs drives Helix."""
