# Models, and what the build offers.

version = hy3_version().decode()


def backends():
    cdef hy3_backend_info info
    cdef size_t i
    result = []
    for i in range(hy3_backend_count()):
        check(hy3_backend(i, &info))
        result.append({"name": info.name.decode(), "device": info.device.decode(), "memory": info.memory})
    return result


def build_info():
    cdef const char* isa
    cdef size_t i
    check(hy3_current_isa(&isa))
    return {
        "version": version,
        "backends": [backend["name"] for backend in backends()],
        "isa": isa.decode(),
        "isas": [hy3_isa(i).decode() for i in range(hy3_isa_count())],
    }


MachineSpeed = namedtuple("MachineSpeed", "read_bytes int8_ops")


def measure_machine(int threads=0, uint64_t span=4 << 30):
    cdef hy3_machine_speed speed
    cdef hy3_status status
    cdef Interrupt interrupt = Interrupt()
    with nogil:
        status = hy3_measure_machine(threads, span, interrupt.poll, <void*>interrupt, &speed)
    finish(status, interrupt)
    return MachineSpeed(speed.read_bytes, speed.int8_ops)


Config = namedtuple(
    "Config",
    "n_layers n_mtp_layers hidden_size n_heads n_kv_heads head_dim ffn_size n_experts n_experts_used n_shared_experts "
    "expert_ffn_size shared_ffn_size vocab_size ctx rms_eps rope_theta rope_factor router_scale route_norm gating "
    "tied_head",
)


cdef class Model:
    """A model ready to run. May be shared by threads."""
    cdef hy3_model* handle
    cdef readonly GGUF gguf
    cdef readonly Tokenizer tokenizer
    cdef readonly object config

    def __cinit__(self):
        self.handle = NULL

    def __init__(self, path, backend="auto", int threads=0, int gpu_layers=-1, int experts=0, float rope_factor=0.0,
                 int64_t rope_ctx=0, *, float rope_attention_factor=0.0, float rope_beta_fast=0.0,
                 float rope_beta_slow=0.0, bint use_mmap=True, bint mlock=False, mtp_model=None):
        cdef bytes name = path_bytes(path), backend_name = str(backend).encode()
        cdef bytes mtp_name = b"" if mtp_model is None else path_bytes(mtp_model)
        cdef const char* address = name
        cdef hy3_model_options options = hy3_model_default_options()
        cdef hy3_model* handle = NULL
        cdef hy3_status status
        if gpu_layers > 0:
            raise UnsupportedError("This build has no GPU backend. Leave gpu_layers out.")
        options.backend = backend_name
        options.threads = threads
        options.experts = experts
        options.rope_factor = rope_factor
        options.rope_ctx = rope_ctx
        options.rope_attention_factor = rope_attention_factor
        options.rope_beta_fast = rope_beta_fast
        options.rope_beta_slow = rope_beta_slow
        options.use_mmap = use_mmap
        options.mlock = mlock
        if mtp_model is not None:
            options.mtp_model = mtp_name
        with nogil:
            status = hy3_model_open(address, &options, &handle)
        check(status)
        hy3_model_free(self.handle)
        self.handle = handle
        self.read()

    cdef int read(self) except -1:
        cdef hy3_config c
        cdef hy3_gguf* file
        hy3_model_config(self.handle, &c)
        self.config = Config(c.n_layers, c.n_mtp_layers, c.hidden, c.n_heads, c.n_kv_heads, c.head_dim, c.ffn,
                             c.n_experts, c.n_experts_used, c.n_shared_experts, c.expert_ffn, c.shared_ffn, c.vocab,
                             c.ctx, c.rms_eps, c.rope_theta, c.rope_factor, c.router_scale, bool(c.route_norm),
                             "softmax" if c.softmax_gating else "sigmoid", bool(c.tied_head))
        check(hy3_model_gguf(self.handle, &file))
        self.gguf = GGUF.__new__(GGUF)
        self.gguf.take(file)
        self.tokenizer = Tokenizer.__new__(Tokenizer)
        check(hy3_model_tokenizer(self.handle, &self.tokenizer.handle))
        return 0

    def __dealloc__(self):
        hy3_model_free(self.handle)

    @property
    def path(self):
        return self.gguf.path

    @property
    def metadata(self):
        return self.gguf.metadata

    @property
    def tensors(self):
        return self.gguf.tensors

    @property
    def rope(self):
        cdef const float* inv_freq
        cdef size_t n
        cdef float scale
        hy3_model_rope(self.handle, &inv_freq, &n, &scale)
        return np.array(<const float[:n]>inv_freq), scale

    @property
    def backend(self):
        return hy3_model_backend(self.handle).decode()

    @property
    def threads(self):
        return hy3_model_threads(self.handle)

    def session(self, int64_t ctx=0, kv="f16", int chunk=512, bint mtp=False):
        return Session(self, ctx, kv, chunk, mtp)

    def collect_importance(self):
        return ImportanceCollector(self)
