"""Streams to clients: one reader per conversation and process, websockets, server-sent events."""
