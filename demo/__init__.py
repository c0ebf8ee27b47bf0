"""Agents and logins to try Helix with. Nothing imports it; leave it out of INSTALLED_APPS in production."""
