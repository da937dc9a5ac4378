"""The OpenAI shapes: requests in, responses, events and errors out.

Refuses to know HTTP, the chain and the clock: times and ids are arguments.
Read `requests.py` first.
"""

from __future__ import annotations
