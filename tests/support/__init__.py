"""Fakes and builders that tests share; never mocks."""

from __future__ import annotations
