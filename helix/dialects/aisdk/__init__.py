"""The AI SDK's UI message stream: ``POST chat``, ``GET chat/{id}/stream``, ``POST chat/{id}/stop`` (docs/ai-sdk.md).

A request says what the page shows; it is a claim, and only new words, answers and verdicts are taken from it. A
response is a translation of stored events, so a page sees a call only after the commit that lets it be answered.
"""
