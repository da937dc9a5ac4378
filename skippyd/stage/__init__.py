"""The stage process: lanes, the way downstream, predictions on their way back.

Owns connections that carry messages of the wire protocol and what each message makes
the runtime do. Refuses to know about HTTP, OpenAI and coordination. Read `lane.py`
first: it is what a message does; `foreseen.py` is the short way of a request's next
token, `service.py` is where connections come from, and `waiting.py` the place where a
lane's thread waits and can be told to stop.
"""

from __future__ import annotations
