"""What every edge needs and none owns: bodies within their caps, refusals as responses, readers of a stream.

REST, sockets, event streams and chat dialects import from here and never from one another.
"""
