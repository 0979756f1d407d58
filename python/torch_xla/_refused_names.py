"""What torch_xla 2.9 has and this implementation does not: per module rows of names, why they are
not here, and what to use. Tables only; torch_xla/_other_names.py makes errors of them."""

from __future__ import annotations

__all__ = ["REFUSED"]

_Row = tuple[str, str, str]

_BRIDGE = "it is a part of another bridge to Dynamo; this one compiles a graph whole"
_BRIDGE_INSTEAD = "call core.dynamo_bridge.extract_compiled_graph, or torch.compile"
_NEURON = "what Neuron devices need is set up by the package of their plugin"
_NEURON_INSTEAD = "install that, or name its library in NEURON_LIBRARY_PATH with PJRT_DEVICE=NEURON"
_TOPOLOGY = "libtpu finds out the topology, and torchrun's variables say which process this is"
_TOPOLOGY_INSTEAD = "ask torch_xla.runtime, such as runtime_device_attributes() and world_size()"
_BUILDER = "it is a step on the way of another implementation from a function to XLA"
_PALLAS = "it is written in Pallas for the TPU, which JAX compiles"
_ATTENTION = "use custom_kernel.flash_attention or torch.nn.functional.scaled_dot_product_attention"
_KERNEL_OF = "it is the kernel behind an operator, which has one for all devices here"
_DYNAMIC = "sizes are constants of a program, and exports have none that vary"
_DYNAMIC_INSTEAD = "export once per size with stablehlo.exported_program_to_stablehlo"
_FLAT = "parameters are spread one by one, never in one flat tensor"
_FLAT_INSTEAD = "use XlaFullyShardedDataParallel, whose state_dict has them by name"
_HELPER = "it is a helper of another implementation"

_DUMMY_INSTEAD = "use xm.reduce_scatter_bucketized, xm.all_gather and xm.all_reduce"

REFUSED: dict[str, tuple[_Row, ...]] = {
    "torch_xla": (
        (
            "decomp_registration",
            "decompositions are registered with the device's operators",
            "call torch._decomp.get_decompositions for PyTorch's",
        ),
    ),
    "torch_xla.xpu": (
        (
            "XpuPlugin",
            "the plugin of Intel's devices comes in a package of its own",
            "install that, or name its library in XPU_LIBRARY_PATH with PJRT_DEVICE=XPU",
        ),
    ),
    "torch_xla.stablehlo": (
        (
            "XLAExportInterpreter",
            _BUILDER,
            "call stablehlo.exported_program_to_stablehlo",
        ),
    ),
    "torch_xla.core.dynamo_bridge": (
        (
            "Deduper NoneRemover SpecialReturnHandler UnsupportedNodesCollector InputCollector "
            "XLAConstructorMoverPass extract_graph_helper extract_internal "
            "partition_fx_graph_for_cpu_fallback dynamo_debug ptxla_debug",
            _BRIDGE,
            _BRIDGE_INSTEAD,
        ),
        ("get_fallback_ops", _BRIDGE, "call torch_xla.debug.metrics.executed_fallback_ops"),
    ),
    "torch_xla._internal.neuron": (
        (
            "set_rt_root_comm_id get_master_worker_ip set_envvar_defaults "
            "configure_pjrt_environment num_local_processes initialize_env NeuronPlugin",
            _NEURON,
            _NEURON_INSTEAD,
        ),
    ),
    "torch_xla._internal.pjrt": (
        (
            "initialize_singleprocess initialize_multiprocess",
            "a plugin is made ready when its device is first used",
            "leave it out",
        ),
        (
            "spawn_threads",
            "a process is one replica, but in DataParallel",
            "call torch_xla.launch, or use distributed.data_parallel.DataParallel",
        ),
    ),
    "torch_xla._internal.tpu": (
        (
            "TpuEnv process_bounds_size num_expected_global_devices num_local_processes task_id "
            "worker_id build_tpu_env_from_vars get_tpu_env get_tpu_type get_worker_ips "
            "num_tpu_workers discover_master_worker_ip",
            _TOPOLOGY,
            _TOPOLOGY_INSTEAD,
        ),
        (
            "TpuPlugin",
            "libtpu is found by its package, without a class",
            "install libtpu, or name it in TPU_LIBRARY_PATH; derive plugins of your own from "
            "experimental.plugins.DevicePlugin",
        ),
    ),
    "torch_xla.core.xla_builder": (
        (
            "FlattenedInputFunc CompiledCallableWithCache JaxFlattenedInputFunc",
            _BUILDER,
            "call xla_builder.call_jax, or make an XlaCallable or a JaxCallable of the function",
        ),
        (
            "mkop mkleaf",
            "operations have no names to make them by",
            "call the method of xla_builder.Op, such as Op.iota or op.transpose",
        ),
    ),
    "torch_xla.core.xla_model": (
        ("DeviceContext", _HELPER, "use torch_xla.device() and torch.xla.device"),
    ),
    "torch_xla.debug.profiler": (
        (
            "set_tracer_marked_step get_tracer_marked_step",
            "a barrier with nothing to run costs nothing, so that nobody must know of another",
            "leave it out",
        ),
    ),
    "torch_xla.distributed.data_parallel": (
        (
            "ThreadResult",
            "what a thread raises is raised by the call of DataParallel",
            "catch it there",
        ),
    ),
    "torch_xla.distributed.parallel_loader": (
        (
            "PerDeviceQueue",
            "the queues between a loader's threads are its own",
            "take batches by PerDeviceLoader.next or ParallelLoader.next_item",
        ),
    ),
    "torch_xla.distributed.fsdp.utils": (
        (
            "dummy_all_gather dummy_all_reduce DummyReduceScatter BucketizedReduceScatter",
            "the wrapper's exchanges can't be replaced one by one",
            _DUMMY_INSTEAD,
        ),
    ),
    "torch_xla.distributed.fsdp.xla_flatten_params_wrapper": (
        (
            "State FlatParameter FlatTypes ParamGroups XlaFlattenParamsWrapper replace_by_prefix_",
            _FLAT,
            _FLAT_INSTEAD,
        ),
    ),
    "torch_xla.distributed.fsdp.xla_fully_sharded_data_parallel": (
        (
            "TrainingState XLA_DISABLE_FUNCTIONALIZATION",
            "the wrapper has no states: autograd knows what was gathered",
            "leave it out",
        ),
    ),
    "torch_xla.distributed.spmd.dtensor": (
        (
            "with_xla",
            _HELPER,
            "call xla_distribute_tensor and xla_distribute_module on xla tensors",
        ),
    ),
    "torch_xla.distributed.spmd": (
        (
            "aot_mark_sharding_fake",
            _KERNEL_OF,
            "call torch.ops.xla.dynamo_mark_sharding under torch.compile",
        ),
        ("PyTreeA PyTreeB", "they are variables of types", "use typing.TypeVar"),
    ),
    "torch_xla.distributed.spmd.debugging": (
        (
            "construct_v1_sharding_str",
            "shardings are texts of one kind",
            "call spmd.sharding_text(tensor)",
        ),
    ),
    "torch_xla.experimental.assume_pure": (
        (
            "make_fake_inputs prepare_computation_inputs",
            _BUILDER,
            "call assume_pure",
        ),
    ),
    "torch_xla.experimental.custom_kernel": (
        (
            "fa_custom_forward fa_custom_backward fa_custom_forward_fake fa_custom_backward_fake "
            "flash_attention_xla flash_attention_non_xla non_xla_attetion",
            _KERNEL_OF,
            "call flash_attention",
        ),
        (
            "paged_attention multi_queries_paged_attention ragged_paged_attention "
            "paged_attention_xla paged_attention_non_xla multi_queries_paged_attention_xla "
            "multi_queries_paged_attention_non_xla non_xla_ragged_paged_attention "
            "ragged_paged_attention_xla ragged_paged_attention_non_xla",
            _PALLAS,
            "gather the pages by indexing and " + _ATTENTION,
        ),
        (
            "quantized_matmul_int8 quantized_matmul_int8_xla quantized_matmul_int8_non_xla",
            _PALLAS,
            "call experimental.xla_quantized_matmul.quantized_matmul",
        ),
        ("gmm_xla gmm_non_xla", _KERNEL_OF, "call gmm"),
    ),
    "torch_xla.experimental.deprecation": (
        (
            "deprecated mark_deprecated register_deprecated",
            "it marks that package's own names",
            "use warnings.warn(..., DeprecationWarning)",
        ),
    ),
    "torch_xla.experimental.gradient_accumulation": (
        (
            "GradientAccumulationContext XlaBuildHelper",
            _BUILDER,
            "call gradient_accumulation",
        ),
    ),
    "torch_xla.experimental.pytreeify": (
        (
            "pytreeify",
            _HELPER,
            "flatten the arguments with torch.utils._pytree before Function.apply",
        ),
    ),
    "torch_xla.experimental.scan": (
        (
            "value_and_grad_partitioned Scan tree_flatten_none dynamic_update_slice dynamic_slice "
            "Builder split",
            _BUILDER,
            "call scan, whose partition_fn divides a turn",
        ),
    ),
    "torch_xla.experimental.splash_attention": (
        (
            "SplashAttentionConfig SplashAttention splash_attention splash_attention_jax_wrapper "
            "tpu_splash_attention_jax_call_wrapper sa_custom_forward sa_custom_forward_fake "
            "sa_custom_backward sa_custom_backward_fake",
            _PALLAS,
            _ATTENTION,
        ),
    ),
    "torch_xla.experimental.stablehlo_custom_call": (
        (
            "extract_custom_call_outputs_shape_dtype to_host_backward to_device_backward",
            _KERNEL_OF,
            "call stablehlo_custom_call, place_to_host and place_to_device, which have gradients",
        ),
    ),
    "torch_xla.experimental.unbounded_dynamism_export": (
        (
            "aten wrap_func_as_nn_module call_function native_layer_norm_impl "
            "native_group_norm_impl native_layer_norm_pattern native_group_norm_pattern "
            "decompose_dynamic_native_layer_norm decompose_dynamic_native_group_norm "
            "decompose_dynamic_shape_select decompose_split_with_sizes "
            "flatten_embedding_indices_tensor remove_no_op_slice "
            "replace_dynamic_expand_with_xla_op replace_dynamic_view_with_xla_op "
            "dynamic_unsqueeze_to_view exported_program_has_symbolic_input_shape "
            "process_exported_program_with_symbolic_input",
            _DYNAMIC,
            _DYNAMIC_INSTEAD,
        ),
    ),
    "torch_xla.experimental.xla_dynamic_reshape_ops": (
        (
            "dynamic_expand_xla dynamic_expand dynamic_expand_meta dynamic_view_xla dynamic_view "
            "dynamic_view_meta",
            _DYNAMIC,
            "use expand and view with the sizes of the tensors",
        ),
    ),
    "torch_xla.experimental.xla_marker": (
        (
            "BoundaryMetadata BoundaryMetadataSerializer deserialize_composite_attr "
            "mark_tensor_xla mark_tensor_meta",
            "composites are recorded whole, not between markers in a text",
            "call mark_tensor, or use mark_pattern_utils.StableHLOCompositeBuilder",
        ),
    ),
    "torch_xla.experimental.xla_mlir_debuginfo": (
        (
            "write_mlir_debuginfo_tensor write_mlir_debuginfo_meta",
            _KERNEL_OF,
            "call write_mlir_debuginfo",
        ),
    ),
    "torch_xla.experimental.xla_quantized_matmul": (
        ("quantized_matmul_xla", _KERNEL_OF, "call quantized_matmul"),
    ),
    "torch_xla.experimental.distributed_checkpoint._helpers": (
        (
            "PATH_ITEM OBJ_PATH FLATTEN_MAPPING STATE_DICT_ITEM CONTAINER_TYPE set_element "
            "flatten_state_dict dedup_tensors narrow_tensor_by_index",
            "PyTorch's planners do it",
            "use torch.distributed.checkpoint",
        ),
    ),
    "torch_xla.utils.checkpoint": (
        (
            "CheckpointStatus chkpt_status",
            "nothing is switched while a part is computed again",
            "leave it out",
        ),
    ),
    "torch_xla.utils.checkpoint_tagger": (
        (
            "CheckpointTagger",
            "checkpoints are numbered by step",
            "use experimental.distributed_checkpoint.CheckpointManager, or a JSON file of yours",
        ),
    ),
    "torch_xla.utils.stablehlo_test_utils": (
        (
            "has_tf_package wrap_func_as_nn_module load_save_model_and_inference "
            "compare_exported_program_and_saved_model_result",
            "it tests another implementation, with TensorFlow",
            "compare StableHLOGraphModule.evaluate with the module",
        ),
    ),
}
