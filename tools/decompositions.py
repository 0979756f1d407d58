"""The operators that this package leaves to decompositions of torch's own, and why.

No decomposition written in Python is used: each of these has a kernel in C++ that calls other
operators (`CompositeExplicitAutograd` in torch's tables), and these are what is recorded. Which
means: no Python runs when such an operator is called again, and nothing leaves the device.
`CompositeImplicitAutograd` operators (`reshape`, `matmul`, `conv2d`, ...) are left out here: torch
takes them apart on every device, above autograd. What is lowered as a whole although torch could
take it apart stands in `src/ops`; what is kept whole although torch would, in
`src/aten/composites.cpp`.

`tests/ops/test_op_coverage.py` compares this list with what the dispatcher says, so that an
operator that loses its lowering cannot slip in here unseen.
"""

from __future__ import annotations

__all__ = ["DECOMPOSITIONS"]

DECOMPOSITIONS: dict[str, tuple[str, ...]] = {
    "Fills of fresh memory (`empty`, then `normal_`, `uniform_`, `random_`)": (
        *("normal.float_float", "rand", "rand.generator", "rand_like", "rand_like.generator"),
        *("randn", "randn.generator", "randn_like", "randn_like.generator"),
        *("randint", "randint.generator", "randint.low", "randint.low_generator"),
        *("randint_like", "randint_like.Tensor", "randint_like.Tensor_generator"),
        *("randint_like.generator", "randint_like.low_dtype"),
        "randint_like.low_generator_dtype",
    ),
    "Formulas over `arange` that programs call once, when they are built": (
        *("bartlett_window", "bartlett_window.periodic", "blackman_window"),
        *("blackman_window.periodic", "hamming_window", "hamming_window.periodic"),
        *("hamming_window.periodic_alpha", "hamming_window.periodic_alpha_beta"),
        *("hann_window", "hann_window.periodic", "fft_fftfreq", "fft_rfftfreq"),
    ),
    "Two or three lowered operators that are as good as one": (
        *("_pack_padded_sequence", "_unsafe_masked_index"),
        *("_unsafe_masked_index_put_accumulate", "affine_grid_generator", "allclose"),
        *("cholesky_solve", "conv_tbc", "rot90", "slice_inverse"),
    ),
    "What a tensor is, not what it holds: answered on the host, nothing is recorded": (
        *("_assert_scalar", "_assert_tensor_metadata", "_functional_assert_scalar"),
        *("_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size"),
        *("_has_same_storage_numel", "is_pinned", "is_same_size", "_print", "dense_dim"),
    ),
    "Changes of a tensor object and of its memory": (
        *("_fw_primal", "_lazy_clone", "_make_dual", "_new_zeros_with_same_feature_meta"),
        *("_pin_memory", "_resize_output", "detach_", "lift_fresh", "resize", "resize_as"),
        *("resize_as_", "set", "set.source_Storage", "set.source_Storage_storage_offset"),
        "set.source_Tensor",
    ),
    "Parts of sparse tensors, which are refused with a clear error": (
        *("_coalesced", "ccol_indices", "col_indices", "crow_indices", "indices"),
        *("is_coalesced", "row_indices", "values"),
    ),
    "`tensor.data = other` as an operator, in newer versions": ("shallow_copy_data_",),
    "Other devices' names for what has a lowering under its own; nothing here calls them": (
        *("_grid_sampler_2d_cpu_fallback", "_grid_sampler_2d_cpu_fallback_backward"),
        *("_nnpack_spatial_convolution", "_philox_normal", "_philox_randint", "_philox_uniform"),
        "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_fused_attention_overrideable_backward",
    ),
}
