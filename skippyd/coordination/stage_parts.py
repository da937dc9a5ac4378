"""The part of a model that one stage of this node is made of, opened and identified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.admission import stage_descriptor
from skippyd.coordination.stage_documents import check_load
from skippyd.errors import RefusedError
from skippyd.model.gguf_model import open_model
from skippyd.model.slicing import slice_model
from skippyd.runtime.build import BuildFacts, build_facts


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from skippyd.coordination.inventory import Inventory
    from skippyd.coordination.ports import StageRunSettings
    from skippyd.core.coordinator.messages import LoadStage
    from skippyd.core.wire.admission import AdmissionDescriptor
    from skippyd.model.header_window import PartFile


@attrs.frozen(kw_only=True)
class StagePart:
    """An opened part.

    Args:
        path: The model's file.
        part_files: Its files, as they were when their digest was known.
        source_bytes: Their size.
        tensor_bytes: What the stage will hold of them.
        descriptor: What the stage is, worked out here.
    """

    path: Path
    part_files: tuple[PartFile, ...]
    source_bytes: int
    tensor_bytes: int
    descriptor: AdmissionDescriptor


@attrs.define(eq=False)
class StageParts:
    """Finds and opens parts by the content of their model.

    Args:
        inventory: The models of this node.
        build: What computes here; asked once.
    """

    inventory: Inventory
    build: Callable[[], BuildFacts] = attrs.field(default=build_facts)
    _facts: BuildFacts | None = attrs.field(default=None, init=False)

    async def open(self, load: LoadStage, settings: StageRunSettings) -> StagePart:
        """Find a stage's part, waiting for digests if need be, and describe it.

        Raises:
            RefusedError: It is not here, or not offered; the message says what exactly.
            ModelError: The file is broken.
        """
        check_load(load, settings)
        size = load.source_model_bytes
        wanted = (
            f"layers {load.layer_start} to {load.layer_end} of {settings.model_id}"
            + (f" (a model of {size} bytes)" if size else "")
        )
        path = await self.inventory.obtain(settings.model_sha256, wanted=wanted)
        return await trio.to_thread.run_sync(self._open, path, load, settings)

    def _open(
        self, path: Path, load: LoadStage, settings: StageRunSettings
    ) -> StagePart:
        if self._facts is None:
            self._facts = self.build()
        model = open_model(path)
        if self.inventory.digests.get(model.part_files) != settings.model_sha256:
            raise RefusedError(f"{path}: was replaced meanwhile; deploy again")
        start, end = load.layer_start, load.layer_end
        return StagePart(
            path=path,
            part_files=model.part_files,
            source_bytes=sum(part.file_bytes for part in model.part_files),
            tensor_bytes=slice_model(model, start, end).resident_tensor_bytes,
            descriptor=stage_descriptor(model, start, end, settings, self._facts),
        )
