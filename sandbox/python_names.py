"""Names that host code of a python or Triton candidate may not use, may use under notice, or is labelled by.

A rule is hard only where no honest kernel needs the name; the cage makes most of them harmless anyway.
"""

from __future__ import annotations

ALLOWED_IMPORTS = frozenset(
    "torch math functools typing dataclasses numpy triton __future__ collections itertools enum operator cmath numbers"
    " typing_extensions types".split()
)
NOTICED_IMPORTS = frozenset(
    "time random warnings logging copy contextlib abc scipy numba string statistics struct array".split()
)
REFUSED_MODULES = frozenset(
    # below torch and numpy, as dotted paths
    "torch.utils.cpp_extension torch.multiprocessing torch.distributed torch.package torch.hub torch._C torch.overrides"
    " torch.utils._python_dispatch torch.utils._device torch.serialization torch.storage torch._library torch.export"
    " numpy.ctypeslib numpy.f2py numpy.distutils numpy.testing numpy.lib.npyio".split()
)
PLUMBING = frozenset(
    "os sys ctypes gc inspect importlib builtins subprocess threading multiprocessing socket imp runpy pickle marshal"
    " posix fcntl resource mmap faulthandler atexit weakref code codeop pkgutil site asyncio concurrent traceback"
    " shutil pathlib tempfile cffi codecs base64 zlib _ctypes _thread".split()
)
"""Modules of the standard library by which host code reaches beyond its inputs; also not as `torch.os`."""
CORE_PLUMBING = frozenset("os sys ctypes gc inspect importlib builtins subprocess threading multiprocessing".split())
"""Those that are refused as attributes of anything, whatever it came from."""
REFUSED_NAMES = frozenset("exec eval compile __import__ open globals locals vars breakpoint setattr delattr".split())
"""Builtins, however they are used."""
REFUSED_ATTRIBUTES = frozenset(
    # frames and code objects
    "f_back f_globals f_locals f_code f_builtins gi_frame gi_code cr_frame cr_code ag_frame ag_code tb_frame tb_next"
    " mro _getframe"
    # names from strings
    " attrgetter methodcaller get_type_hints ForwardRef get_device_module rename_privateuse1_backend"
    # files, libraries, other languages
    " load_library load_inline cpp_extension from_file fromfile tofile memmap loadtxt savetxt genfromtxt save savez"
    " savez_compressed ctypes ctypeslib"
    # overriding what others call
    " TorchFunctionMode TorchDispatchMode Library register_autocast set_default_dtype set_default_device"
    " set_default_tensor_type set_num_threads set_num_interop_threads set_flush_denormal use_deterministic_algorithms"
    " set_deterministic_debug_mode set_float32_matmul_precision set_warn_always set_rng_state"
    " set_autocast_enabled set_autocast_dtype set_fp32_precision allow_tf32 deterministic_fill_uninitialized_memory"
    " seterr setbufsize set_string_function".split()
)
REFUSED_BELOW = {
    "torch": frozenset("load compile_commands set_vital".split()),
    "torch.jit": frozenset("load save CompilationUnit set_fusion_strategy enable_onednn_fusion".split()),
    "numpy": frozenset("load DataSource".split()),
    "numpy.random": frozenset("seed set_state".split()),
}
"""Only as attributes of that module; elsewhere the same word is honest (a generator's `manual_seed`)."""
NOTICED_ATTRIBUTES = {
    "data_ptr": "uses addresses of tensors",
    "untyped_storage": "uses addresses of tensors",
    "storage": "uses addresses of tensors",
    "_version": "uses addresses of tensors",
    "set_": "exchanges a tensor's memory",
    "resize_": "exchanges a tensor's memory",
    "backends": "names torch.backends",
    "library": "registers operators",
    "custom_op": "registers operators",
    "fx": "rewrites graphs",
    "manual_seed": "seeds a generator",
    "Stream": "uses streams",
    "stream": "uses streams",
    "sleep": "waits",
    "inline_asm_elementwise": "has inline assembly",
    "lru_cache": "remembers results of a function",
    "cache": "remembers results of a function",
    "cached_property": "remembers results of a function",
    "frombuffer": "views foreign memory as a tensor",
    "from_dlpack": "views foreign memory as a tensor",
    "as_strided": "views memory by strides",
}
COMPILERS = frozenset(
    "torch.compile torch.jit.script torch.jit.trace torch.jit.freeze torch._dynamo torch._inductor numba".split()
)
GRAPHS = frozenset("CUDAGraph graph make_graphed_callables".split())
HEAVY = frozenset(
    "matmul mm bmm addmm baddbmm addmv mv einsum linear bilinear conv1d conv2d scaled_dot_product_attention tensordot"
    " dot inner layer_norm rms_norm softmax multi_head_attention_forward".split()
)
"""Ops of the framework that do a kernel's work; beside a custom kernel they are noticed."""
CONTAINERS = frozenset("dict list set defaultdict OrderedDict Counter deque ChainMap bytearray".split())
WRITERS = frozenset(
    "append extend insert update setdefault add pop popitem remove clear discard appendleft move_to_end".split()
)
OPEN_DUNDERS = frozenset(
    "__init__ __post_init__ __name__ __doc__ __version__ __len__ __getitem__ __setitem__ __call__ __enter__ __exit__"
    " __contains__ __iter__ __next__".split()
)
"""Special attributes that may be named; all others lead out of the candidate's own world."""
HOOKS = frozenset(
    "__torch_function__ __torch_dispatch__ __array_function__ __array_ufunc__ __getattr__ __getattribute__".split()
)
