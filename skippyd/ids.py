"""Identifier types, so that a swapped argument is a type error."""

from __future__ import annotations

from typing import NewType


NodeId = NewType("NodeId", str)
CoordinatorId = NewType("CoordinatorId", str)
StageId = NewType("StageId", str)
ModelId = NewType("ModelId", str)
TopologyId = NewType("TopologyId", str)
RunId = NewType("RunId", str)
RequestId = NewType("RequestId", int)
SessionId = NewType("SessionId", int)
LaneId = NewType("LaneId", int)
TokenId = NewType("TokenId", int)
Term = NewType("Term", int)
UnixMs = NewType("UnixMs", int)
