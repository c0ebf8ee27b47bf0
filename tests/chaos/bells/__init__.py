"""An installed app for the storm's processes: agents that do what the client's message says, and a ledger."""
