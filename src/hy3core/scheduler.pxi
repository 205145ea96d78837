# Continuous batching.

Event = namedtuple("Event", "request token logprob top finish error usage")

_FINISH = {
    HY3_REQUEST_STOP: "stop",
    HY3_REQUEST_LENGTH: "length",
    HY3_REQUEST_CANCELLED: "cancelled",
    HY3_REQUEST_ERROR: "error",
}


cdef class MaskCall:
    """A Python mask as the native side calls it."""
    cdef object function
    cdef bytes error

    def __cinit__(self, function):
        if not callable(function):
            raise TypeError("mask must be callable.")
        self.function = function


cdef int call_mask(void* user, const int32_t* generated, size_t n, uint32_t* allowed, size_t words,
                   const char** error) noexcept with gil:
    cdef MaskCall call = <MaskCall>user
    cdef Bytes bits
    cdef size_t i
    try:
        bits = Bytes(call.function(tuple([generated[i] for i in range(n)])))
        if <size_t>bits.view.len != 4 * words:
            raise InvalidArgumentError(f"The mask has {bits.view.len} bytes. It must have {4 * words}.")
        memcpy(allowed, bits.view.buf, 4 * words)
        return 0
    except BaseException as problem:
        call.error = (str(problem) or repr(problem)).encode("utf-8", "replace")
        error[0] = call.error
        return 1


cdef tuple logprobs_of(const hy3_token_logprobs* logprobs):
    cdef size_t i
    return logprobs.chosen, [(logprobs.top[i].id, logprobs.top[i].logprob) for i in range(logprobs.n_top)]


cdef int logprobs_wanted(object top) except? -2:
    if top is None:
        return HY3_NO_LOGPROBS
    if operator.index(top) < 0:
        raise InvalidArgumentError(f"Log-probabilities of the {top} most likely tokens: give 0 or more.")
    return top


cdef class Scheduler:
    """Many requests that share each step. submit, cancel and stats may be used by any thread."""
    cdef hy3_scheduler* handle
    cdef readonly Model model
    cdef readonly int64_t ctx
    cdef dict masks  # of the requests that have one: what the native side has pointers to

    def __cinit__(self):
        self.handle = NULL
        self.masks = {}

    def __init__(self, Model model not None, int64_t ctx=0, kv="f16", int chunk=512, int64_t kv_budget=0,
                 int max_running=16, double max_gap=0.25, bint mtp=False):
        cdef hy3_scheduler_options options
        cdef hy3_scheduler* handle = NULL
        options.session = session_options(ctx, kv, chunk, mtp)
        options.kv_budget = kv_budget
        options.max_running = max_running
        options.max_gap = max_gap
        check(hy3_scheduler_new(model.handle, &options, &handle))
        hy3_scheduler_free(self.handle)
        self.handle = handle
        self.model = model
        self.ctx = ctx or model.config.ctx

    def __dealloc__(self):
        hy3_scheduler_free(self.handle)

    def submit(self, tokens, *, int64_t max_tokens, sampling=None, stop_ids=None, logit_bias=None,
               float presence_penalty=0.0, float frequency_penalty=0.0, top_logprobs=None, prompt_logprobs=None,
               mask=None, int mtp=0):
        cdef Ids prompt = Ids(tokens)
        cdef Ids stops = Ids(list(self.model.tokenizer.eos_ids if stop_ids is None else stop_ids))
        cdef hy3_request request
        cdef uint64_t number
        cdef MaskCall call = None
        cdef float[::1] biases = np.array([0.0, *(logit_bias or {}).values()], dtype=np.float32)
        cdef Ids biased = Ids(list(logit_bias or {}))
        cdef size_t i
        table = np.zeros((biased.n + 1, sizeof(hy3_token_bias)), dtype=np.uint8)
        cdef unsigned char[:, ::1] raw = table
        cdef hy3_token_bias* entries = <hy3_token_bias*>&raw[0, 0]
        for i in range(biased.n):
            entries[i] = hy3_token_bias(biased.data[i], biases[i + 1])
        request.prompt, request.n_prompt = prompt.data, prompt.n
        request.sampling = sampling_of(Sampling() if sampling is None else sampling)
        request.stop_ids, request.n_stop = stops.data, stops.n
        request.max_tokens = max_tokens
        request.drafting.depth = mtp
        request.drafting.always = False
        request.bias, request.n_bias = entries, biased.n
        request.presence_penalty, request.frequency_penalty = presence_penalty, frequency_penalty
        request.mask = NULL
        request.mask_user = NULL
        if mask is not None:
            call = MaskCall(mask)
            request.mask = call_mask
            request.mask_user = <void*>call
        request.top_logprobs = logprobs_wanted(top_logprobs)
        request.prompt_logprobs = logprobs_wanted(prompt_logprobs)
        # With the lock held: no event of the request can be seen before its mask is kept below.
        check(hy3_scheduler_submit(self.handle, &request, &number))
        if call is not None:
            self.masks[number] = call
        return number

    def cancel(self, uint64_t request):
        check(hy3_scheduler_cancel(self.handle, request))

    def step(self):
        cdef size_t n = 0, i
        cdef hy3_status status
        cdef Interrupt interrupt = Interrupt()
        with nogil:
            status = hy3_scheduler_step(self.handle, interrupt.poll, <void*>interrupt, &n)
        finish(status, interrupt)
        return [self.event(i) for i in range(n)]

    cdef event(self, size_t index):
        cdef hy3_event e
        hy3_scheduler_event(self.handle, index, &e)
        logprob, top = logprobs_of(&e.logprobs) if e.has_logprobs else (None, None)
        usage = None
        if e.finish != HY3_REQUEST_RUNNING:
            self.masks.pop(e.request, None)
            usage = {
                "prompt_tokens": e.stats.prompt_tokens,
                "cached_tokens": e.stats.reused_tokens,
                "generated_tokens": e.stats.generated_tokens,
                "prompt_s": e.stats.prompt_seconds,
                "decode_s": e.stats.decode_seconds,
                "drafted": e.stats.drafted,
                "accepted": e.stats.accepted,
                "prompt_logprobs": self.prompt_logprobs(index, e.n_prompt_logprobs),
            }
        error = text_of(e.error) if e.finish == HY3_REQUEST_ERROR else None
        return Event(e.request, None if e.token < 0 else e.token, logprob, top, _FINISH.get(e.finish), error, usage)

    cdef prompt_logprobs(self, size_t event, size_t n):
        cdef hy3_token_logprobs logprobs
        cdef size_t i
        out = [None]
        for i in range(n):
            hy3_scheduler_prompt_logprobs(self.handle, event, i, &logprobs)
            out.append(logprobs_of(&logprobs))
        return out if n else None

    @property
    def stats(self):
        cdef hy3_scheduler_stats s
        hy3_scheduler_get_stats(self.handle, &s)
        return {
            "running": s.running,
            "waiting": s.waiting,
            "kv_tokens": s.kv_tokens,
            "kv_budget": s.kv_budget,
            "prompt_tokens": s.prompt_tokens,
            "reused_tokens": s.reused_tokens,
            "generated_tokens": s.generated_tokens,
            "drafted": s.drafted,
            "accepted": s.accepted,
            "steps": s.steps,
            "preempted": s.preempted,
        }
