"""The rules that make a range of layers a model of its own, each with a switch.

Every rule is on in the product. The switches exist so that a test can turn one off and
show that the chain is then inexact or does not load: no rule is folklore.
"""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class SliceRules:
    """Which rules of slicing are followed.

    Args:
        set_block_count: The slice's `block_count` is its own number of layers.
        renumber_blocks: `blk.N.*` count from zero within the slice.
        cut_per_layer_arrays: Arrays known to be per layer keep the slice's elements.
        write_window_pattern: Which layers slide is written per layer, so that it does
            not depend on their new index.
        drop_idle_window: No window keys where no layer of the slice slides.
        hollow_vocabulary: Middle stages carry no vocabulary and `vocab_size` 1.
        hollow_embedding: Middle stages carry a one-row zero `token_embd`.
        drop_output: The vocabulary projection is on the final stage only.
        keep_tied_embedding: The final stage of a tied model has `token_embd`, which
            is its projection.
        declare_untied_embedding: The final stage of an untied model declares
            `token_embd`, which the loader demands, in the smallest type there is.
        keep_rope_factors: Rope factors outside the blocks go to every stage.
        drop_split_keys: A slice does not claim to be a part of a split model.
        refuse_other_scale: No slice whose number of layers alone would change the
            attention scale.
    """

    set_block_count: bool = True
    renumber_blocks: bool = True
    cut_per_layer_arrays: bool = True
    write_window_pattern: bool = True
    drop_idle_window: bool = True
    hollow_vocabulary: bool = True
    hollow_embedding: bool = True
    drop_output: bool = True
    keep_tied_embedding: bool = True
    declare_untied_embedding: bool = True
    keep_rope_factors: bool = True
    drop_split_keys: bool = True
    refuse_other_scale: bool = True


ALL_RULES = SliceRules()
