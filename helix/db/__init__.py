"""Database backends that make a rule of Helix hold below the ORM."""
