"""What a native kernel may import, by group: allowed, refused with a reason, or noticed.

Sources of the names: the manual pages of glibc (sections 2 and 3), libgomp's ABI (GOMP_*, omp_*), the Itanium C++ ABI
for mangled names, and TVM-FFI's `c_api.h`.
"""

from __future__ import annotations

import re

ALLOWED = re.compile(
    "|".join(
        (
            # what every link of ours adds
            r"_ITM_(de)?registerTMCloneTable|__cxa_finalize|__gmon_start__",
            # memory and strings
            r"aligned_alloc|malloc|calloc|realloc|free|posix_memalign|memalign",
            r"mem(cpy|move|set|cmp|chr)|str(n?len|n?cmp|n?cpy|chr)|__mem(cpy|move|set)_chk|bcmp|v?snprintf|__v?snprintf_chk",
            # the compiler's own support: exceptions, guards, stack protector, thread-local storage, CPU model
            r"__stack_chk_fail|__tls_get_addr|__cxa_\w+|__gxx_personality_v0|_Unwind_\w+|__dso_handle|__cpu_(model|features2)",
            r"__cpu_indicator_init|abort|__assert_fail|qsort|bsearch|__aarch64_\w+|__tlsdesc\w*",
            # OpenMP, without the functions that change its settings
            r"GOMP_\w+|omp_get_\w+|omp_in_\w+|omp_(init|destroy|set|unset|test)(_nest)?_lock|omp_is_\w+",
            # libm and its vectorised forms
            r"_ZGV\w+|f?(abs|max|min|ma|dim|mod)[fl]?|(a?(sin|cos|tan)h?|atan2)[fl]?|sincos[fl]?|(exp|exp2|expm1|exp10)[fl]?",
            r"(log|log2|log10|log1p|logb|ilogb)[fl]?|(pow|sqrt|cbrt|hypot|erfc?|[lt]gamma|ldexp|frexp|modf|scalbl?n)[fl]?",
            r"(l?l?r(ound|int)|ceil|floor|trunc|nearbyint|round|roundeven|remainder|remquo|copysign|nextafter|nan)[fl]?",
            r"__\w+_finite|__(sig|fp)\w+|fe(get|test|clear|raise)\w+",
            # TVM-FFI: arguments, results and errors
            r"TVMFFI(Error|Object|Tensor|String|Bytes|Any|DType|Data|Small)\w*|TVMFFIBacktrace|TVMFFIEnvGetStream",
            # libstdc++ basics: allocation, length errors, hashing, trees, lists
            r"_Zn[aw]\w+|_Zd[al]\w+|_ZSt\d+__throw_\w+|_ZNSt9exceptionD\w+|_ZSt9terminatev|_ZNSt15_List\w+|_ZSt1[89]_Rb_tree_\w+",
            r"_ZSt\d+_Rb_tree_\w+|_ZSt11_Hash_bytesPKvmm|_ZNKSt8__detail20_Prime_rehash\w+|_ZT[IVS]\w+|_ZNSt\w+C[12]\w*|_ZNSt\w+D[012]Ev",
            r"_ZNKSt9exception\w+|_ZNSt7__cxx1112basic_string\w+|_ZNKSt7__cxx1112basic_string\w+|_ZSt7nothrow|_ZSt\w*throw\w*",
        )
    )
)
REFUSED: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (reason, re.compile(pattern))
    for reason, pattern in (
        (
            "it starts threads or processes",
            r"v?fork|_Fork|__libc_fork|(__)?clone[23]?|exec(l|lp|le|v|vp|vpe|ve|veat)|fexecve|posix_spawnp?|system|popen|daemon"
            r"|pthread_create|thrd_create|_ZNSt6thread15_M_start_thread\w*|_ZNSt6thread6detachEv|_ZNSt6thread4joinEv"
            r"|pthread_atfork|__register_atfork|unshare|setns",
        ),
        (
            "it uses the network",
            r"socket(pair)?|connect|bind|listen|accept4?|send(to|msg|mmsg)?|recv(from|msg|mmsg)?|getaddrinfo|gethostby\w+",
        ),
        (
            "it reaches into other processes or into the kernel directly",
            r"ptrace|process_vm_(read|write)v|process_madvise|pidfd_\w+|perf_event_open|syscall|ioctl|bpf|io_uring_\w+"
            r"|io_(setup|submit)|kill|killpg|tgkill|pthread_kill|sigqueue|kcmp|userfaultfd",
        ),
        (
            "it looks up or loads code of others",
            r"dl(open|sym|vsym|mopen|info|addr1?|_iterate_phdr)|__libc_dl(open_mode|sym)|_r_debug|_rtld_global(_ro)?|_dl_\w+"
            r"|_?Py_?[A-Z]\w+|_PyRuntime|TVMFFIFunction(Get|Set)Global\w*|TVMFFIEnvRegister\w+|TVMFFIEnvMod\w+|TVMFFITypeKey\w+",
        ),
        (
            "it handles signals or sets timers",
            r"(bsd_|__sysv_)?signal|sigaction|__sigaction|sigaltstack|sigprocmask|pthread_sigmask|sigset|signalfd|raise|alarm"
            r"|timer_\w+|timerfd_\w+|setitimer|ualarm",
        ),
        (
            "it changes the protection of memory",
            r"mprotect|pkey_\w+|memfd_create|shm_open|mremap|remap_file_pages|mlockall|personality",
        ),
        (
            "it opens files",
            r"open(at)?(64)?|open_by_handle_at|creat(64)?|f(re)?open(64)?|fdopen|opendir|mq_open|_ZNSt13basic_filebuf\w+4open\w+"
            r"|_ZNSt14basic_[io]fstream\w+|_ZNSt13basic_fstream\w+|_ZNSt10filesystem\w+|tmpfile(64)?|mkstemp(64)?|unlink(at)?",
        ),
        (
            "it changes settings of the whole process",
            r"(set|put|unset|clear)env|sched_set\w+|pthread_set(affinity|sched)\w+|set(priority|rlimit|rlimit64|uid|gid|sid|pgid)"
            r"|nice|prctl|arch_prctl|chdir|chroot|prlimit(64)?|omp_set_(num_threads|dynamic|schedule|nested|max_active_levels)"
            r"|omp_set_(num_teams|teams_thread_limit|default_device|affinity_format)|mallopt|__malloc_hook|openblas_set_\w+"
            r"|mkl_set_\w+|kmp_set_\w+|goto_set_\w+",
        ),
    )
)
ROUNDING = re.compile(r"fesetround|fesetexcept\w*|fe(en|dis)ableexcept|feholdexcept|fesetmode")
"""They change how the whole process rounds or traps."""
FLUSHING = re.compile(r"fesetenv|feupdateenv")
"""They may flush subnormals, which a problem's policy can allow."""
NOTICED: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "reads a clock",
        re.compile(
            r"(__)?gettimeofday|(__)?clock(_gettime|_getres|_nanosleep)?(64)?|time|times|getrusage|timespec_get|omp_get_wt\w+"
            r"|_ZNSt6chrono\w*3nowEv|u?sleep|nanosleep|sched_yield|_ZNSt11this_thread\w+"
        ),
    ),
    (
        "reads its environment",
        re.compile(r"(secure_)?getenv|_?_?environ|__progname|program_invocation_\w+|getauxval|__libc_argv"),
    ),
    ("maps memory", re.compile(r"mmap(64)?|munmap|madvise")),
    (
        "writes to a stream",
        re.compile(
            r"v?f?printf|__v?f?printf_chk|f?put[cs]|putchar|fwrite|write|_ZNSo\w+|_ZSt4c(out|err)|_ZStls\w+|_ZSt16__ostream\w+"
        ),
    ),
)
VENDOR = re.compile(
    r"cblas_\w+|[sdcz](gemm|gemv|symm|trsm|ger|dot|axpy|nrm2|scal)\w*_|mkl_\w+|MKL_\w+|v[ms][sd]\w+_mkl|openblas_\w+|goto_\w+"
    r"|dnnl_\w+|_ZN4dnnl\w+|_ZN6ideep\w+|_ZN2at\w+|_ZNK2at\w+|_ZN3c10\w+|_ZNK3c10\w+|_ZN5torch\w+|aoti_torch_\w+|cu(blas|dnn)\w+"
    r"|LAPACKE_\w+|armpl_\w+|_ZN7fbgemm\w+|_ZN8arm_compute\w+"
)
"""BLAS, oneDNN, ATen and their like."""
