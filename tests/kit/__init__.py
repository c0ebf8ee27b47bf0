"""What tests share: a clock that only they move, a queue that only they drain, scripted agents, and short verbs.

Nobody sleeps: `World` records every hint, and `drain` works until nothing is deliverable (D-1 to D-4).
"""
