"""Django's SQLite backend with a fair write lock: no writer of this process starves and none is refused as busy."""
