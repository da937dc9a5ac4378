"""All short stories: they go straight to the corners that chance seldom finds.

Each sends what it must and expects only what a user would see; the ghost of the node
checks the rest. A rule that is switched off must break one of them, or a seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation import campaign_stories, claim_stories, stage_stories


if TYPE_CHECKING:
    from collections.abc import Callable


STORIES: tuple[Callable[[], None], ...] = (
    *claim_stories.STORIES,
    *stage_stories.STORIES,
    *campaign_stories.STORIES,
)
