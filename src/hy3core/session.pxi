# Sessions, steps, sampling and generation.

_KV = {"f32": HY3_KV_F32, "f16": HY3_KV_F16, "q8": HY3_KV_Q8, "q4": HY3_KV_Q4}
_LOGITS = {"none": HY3_LOGITS_NONE, "last": HY3_LOGITS_LAST, "all": HY3_LOGITS_ALL}


class Sampling:
    """How the next token is chosen; see native/core/sampler.h. Immutable by convention."""

    __slots__ = ("choice", "min_p", "repeat_penalty", "seed", "temperature", "top_k", "top_p")

    def __init__(self, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0, seed=0, choice=0):
        cdef hy3_sampling sampling
        self.temperature = float(temperature)
        self.top_k = operator.index(top_k)
        self.top_p = float(top_p)
        self.min_p = float(min_p)
        self.repeat_penalty = float(repeat_penalty)
        self.seed = operator.index(seed) & 0xFFFFFFFFFFFFFFFF
        self.choice = operator.index(choice)
        sampling = sampling_of(self)
        check(hy3_check_sampling(&sampling))

    def __repr__(self):
        return f"Sampling({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


cdef hy3_sampling sampling_of(object s) except *:
    cdef hy3_sampling out
    if not isinstance(s, Sampling):
        raise TypeError("sampling must be a hy3core.Sampling.")
    try:
        out.temperature = s.temperature
        out.top_k = s.top_k
        out.top_p = s.top_p
        out.min_p = s.min_p
        out.repeat_penalty = s.repeat_penalty
        out.seed = s.seed
        out.choice = s.choice
    except OverflowError as error:
        raise InvalidArgumentError(f"A sampling parameter is too large: {error}.") from None
    return out


def sample(logits, sampling, recent=(), uint64_t position=0, choice=None):
    cdef hy3_sampling s = sampling_of(sampling)
    cdef Ids tokens = Ids(recent)
    cdef int32_t id
    array = np.ascontiguousarray(logits, dtype=np.float32)
    if array.ndim != 1 or not array.size:
        raise InvalidArgumentError("logits must be a flat array of at least one number.")
    cdef const float[::1] view = array
    if choice is not None:
        s.choice = choice
    check(hy3_sample(&view[0], view.shape[0], &s, tokens.data, tokens.n, position, &id))
    return id


cdef hy3_session_options session_options(int64_t ctx, kv, int chunk, bint mtp) except *:
    cdef hy3_session_options options = hy3_session_default_options()
    if kv not in _KV:
        raise InvalidArgumentError(f"kv is {kv!r}. Give one of {', '.join(_KV)}.")
    options.ctx = ctx
    options.kv = _KV[kv]
    options.chunk = chunk
    options.mtp = mtp
    return options


cdef class Session:
    """One sequence of tokens and its key/value cache. Belongs to one thread at a time."""
    cdef hy3_session* handle
    cdef readonly Model model
    cdef readonly int64_t ctx
    cdef readonly str kv
    cdef readonly int chunk
    cdef readonly bint mtp
    cdef dict last_stats

    def __cinit__(self):
        self.handle = NULL

    def __init__(self, Model model not None, int64_t ctx=0, kv="f16", int chunk=512, bint mtp=False):
        cdef hy3_session_options options = session_options(ctx, kv, chunk, mtp)
        cdef hy3_session* handle = NULL
        check(hy3_session_open(model.handle, &options, &handle))
        hy3_session_free(self.handle)
        self.handle = handle
        self.take(model, ctx or model.config.ctx, kv, chunk, mtp)

    cdef take(self, Model model, int64_t ctx, str kv, int chunk, bint mtp):
        self.model, self.ctx, self.kv, self.chunk, self.mtp = model, ctx, kv, chunk, mtp
        self.last_stats = {}

    def __dealloc__(self):
        hy3_session_free(self.handle)

    def eval(self, tokens, logits="last"):
        return step([(self, tokens, logits)])[0]

    def score(self, tokens):
        cdef Ids ids = Ids(tokens)
        cdef hy3_status status
        cdef Interrupt interrupt = Interrupt()
        out = np.empty(ids.n, dtype=np.float32)
        cdef float[::1] view = out
        cdef float* address = &view[0] if ids.n else NULL
        with nogil:
            status = hy3_session_score(self.handle, ids.data, ids.n, address, interrupt.poll, <void*>interrupt)
        finish(status, interrupt)
        return out

    @property
    def hidden(self):
        cdef const float* state
        check(hy3_session_hidden(self.handle, &state))
        out = np.empty(self.model.config.hidden_size, dtype=np.float32)
        cdef float[::1] view = out
        memcpy(&view[0], state, view.shape[0] * sizeof(float))
        return out

    def mtp_logits(self, int32_t token):
        cdef hy3_status status
        cdef Interrupt interrupt = Interrupt()
        out = np.empty(self.model.config.vocab_size, dtype=np.float32)
        cdef float[::1] view = out
        cdef float* address = &view[0]
        with nogil:
            status = hy3_session_mtp_logits(self.handle, token, address, interrupt.poll, <void*>interrupt)
        finish(status, interrupt)
        return out

    def fork(self):
        cdef Session other = Session.__new__(Session)
        check(hy3_session_fork(self.handle, &other.handle))
        other.take(self.model, self.ctx, self.kv, self.chunk, self.mtp)
        return other

    @property
    def position(self):
        cdef const int32_t* tokens
        cdef size_t n
        hy3_session_tokens(self.handle, &tokens, &n)
        return n

    @property
    def kv_nbytes(self):
        return hy3_session_kv_bytes(self.handle)

    @property
    def tokens(self):
        cdef const int32_t* tokens
        cdef size_t n, i
        hy3_session_tokens(self.handle, &tokens, &n)
        return [tokens[i] for i in range(n)]

    def save(self, path, extra=b""):
        cdef bytes name = path_bytes(path)
        cdef const char* address = name
        cdef Bytes content = Bytes(extra)
        cdef hy3_str view = hy3_str(<const char*>content.view.buf, content.view.len)
        cdef hy3_status status
        cdef Interrupt interrupt = Interrupt()
        with nogil:
            status = hy3_session_save(self.handle, address, view, interrupt.poll, <void*>interrupt)
        finish(status, interrupt)

    def load(self, path):
        cdef bytes name = path_bytes(path)
        cdef const char* address = name
        cdef list extra = []
        cdef void* taken = <void*>extra
        cdef hy3_status status
        cdef Interrupt interrupt = Interrupt()
        with nogil:
            status = hy3_session_load(self.handle, address, append_bytes, taken, interrupt.poll, <void*>interrupt)
        finish(status, interrupt)
        return extra[0]

    def jump(self, int64_t n):
        check(hy3_session_jump(self.handle, n))

    def truncate(self, int64_t n):
        check(hy3_session_truncate(self.handle, n))

    def reset(self):
        check(hy3_session_truncate(self.handle, 0))

    @property
    def stats(self):
        return dict(self.last_stats)

    def generate(self, tokens, int64_t max_tokens=64, sampling=None, stop_ids=None, int mtp=0, bint mtp_always=False,
                 int64_t pos_jump=0):
        if stop_ids is None:
            stop_ids = self.model.tokenizer.eos_ids
        return Generation(self, tokens, max_tokens, Sampling() if sampling is None else sampling, stop_ids, mtp,
                          mtp_always, pos_jump)


cdef class Generation:
    """Iterator over the ids of one generation."""
    cdef hy3_generation* handle
    cdef Session session

    def __cinit__(self, Session session not None, tokens, int64_t max_tokens, sampling, stop_ids, int mtp,
                  bint mtp_always, int64_t pos_jump):
        cdef Ids prompt = Ids(tokens), stops = Ids(list(stop_ids))
        cdef hy3_sampling s = sampling_of(sampling)
        cdef hy3_drafting drafting
        drafting.depth = mtp
        drafting.always = mtp_always
        self.handle = NULL
        self.session = session
        check(hy3_generation_new(session.handle, prompt.data, prompt.n, &s, stops.data, stops.n, max_tokens,
                                 drafting, pos_jump, &self.handle))
        self.update_stats()

    def __dealloc__(self):
        hy3_generation_free(self.handle)

    def __iter__(self):
        return self

    def prefill(self):
        cdef c_bool more = False
        cdef hy3_status status
        cdef Interrupt interrupt = Interrupt()
        with nogil:
            status = hy3_generation_prefill(self.handle, interrupt.poll, <void*>interrupt, &more)
        self.update_stats()
        finish(status, interrupt)
        return bool(more)

    def __next__(self):
        cdef int32_t token = -1
        cdef hy3_status status
        cdef Interrupt interrupt = Interrupt()
        with nogil:
            status = hy3_generation_next(self.handle, interrupt.poll, <void*>interrupt, &token)
        self.update_stats()
        finish(status, interrupt)
        if token < 0:
            raise StopIteration
        return token

    cdef update_stats(self):
        cdef hy3_generation_stats s
        hy3_generation_get_stats(self.handle, &s)
        self.session.last_stats = {
            "prompt_tokens": s.prompt_tokens,
            "reused_tokens": s.reused_tokens,
            "generated_tokens": s.generated_tokens,
            "prompt_s": s.prompt_seconds,
            "decode_s": s.decode_seconds,
            "drafted": s.drafted,
            "accepted": s.accepted,
            "drafts": [(s.drafts[i].judged, s.drafts[i].right) for i in range(s.draft_depth)],
            "finish_reason": {HY3_STOP: "stop", HY3_LENGTH: "length"}.get(s.finish),
            "stop_id": None if s.stop_id < 0 else s.stop_id,
        }


def step(items):
    cdef size_t n, i
    cdef hy3_status status
    cdef Interrupt interrupt = Interrupt()
    cdef Session session
    cdef Ids ids
    cdef float[:, ::1] view
    items = list(items)
    n = len(items)
    table = np.zeros((max(<size_t>1, n), sizeof(hy3_step_item)), dtype=np.uint8)
    cdef unsigned char[:, ::1] raw = table
    cdef hy3_step_item* entries = <hy3_step_item*>&raw[0, 0]
    keep, results = [], []
    for i in range(n):
        session, tokens, wanted = items[i]
        if wanted not in _LOGITS:
            raise InvalidArgumentError(f"logits is {wanted!r}. Give one of {', '.join(_LOGITS)}.")
        ids = Ids(tokens)
        rows = {"none": 0, "last": 1, "all": ids.n}[wanted]
        out = np.empty((rows, session.model.config.vocab_size), dtype=np.float32)
        view = out
        entries[i].session = session.handle
        entries[i].tokens = ids.data
        entries[i].n = ids.n
        entries[i].wanted = _LOGITS[wanted]
        entries[i].logits = &view[0, 0] if rows else NULL
        keep.append((session, ids))
        results.append(None if wanted == "none" else out[0] if wanted == "last" else out)
    with nogil:
        status = hy3_step(entries, n, interrupt.poll, <void*>interrupt)
    finish(status, interrupt)
    return results
