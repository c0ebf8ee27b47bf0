"""Helix: agents whose tool calls may be answered from outside."""
