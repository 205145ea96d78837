# The tokenizer.


cdef class Ids:
    """Token ids as a C array."""
    cdef object array
    cdef const int32_t* data
    cdef size_t n

    def __cinit__(self, ids):
        cdef const int32_t[::1] view
        array = np.asarray(ids)
        if array.size == 0:
            array = np.zeros(0, dtype=np.int32)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise TypeError("Token ids must be a flat sequence of integers.")
        if array.size and (array.min() < -2**31 or array.max() >= 2**31):
            raise InvalidArgumentError("A token id does not fit 32 bits.")
        self.array = np.ascontiguousarray(array, dtype=np.int32)
        self.n = self.array.shape[0]
        view = self.array
        self.data = &view[0] if self.n else NULL


cdef class Tokenizer:
    """Text to token ids and back. `Tokenizer(path)` reads a GGUF's tokenizer alone."""
    cdef hy3_tokenizer* handle

    def __cinit__(self):
        self.handle = NULL

    def __init__(self, path):
        cdef GGUF file = path if isinstance(path, GGUF) else GGUF(path)
        cdef hy3_tokenizer* handle = NULL
        check(hy3_tokenizer_open(file.handle, &handle))
        hy3_tokenizer_free(self.handle)
        self.handle = handle

    def __dealloc__(self):
        hy3_tokenizer_free(self.handle)

    def encode(self, text, bint special=True, bint bos=False):
        # A lone surrogate becomes the three bytes that are no UTF-8, and so U+FFFD.
        cdef bytes data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        cdef hy3_str view = hy3_str(data, len(data))
        cdef hy3_status status
        ids = []
        cdef void* user = <void*>ids
        with nogil:
            status = hy3_tokenizer_encode(self.handle, view, special, bos, append_ids, user)
        check(status)
        return ids

    def decode(self, ids, bint special=False):
        cdef Ids array = Ids(ids)
        result = []
        check(hy3_tokenizer_decode(self.handle, array.data, array.n, special, append_text, <void*>result))
        return result[0]

    def piece(self, int32_t id):
        cdef hy3_str text
        check(hy3_tokenizer_piece(self.handle, id, &text))
        return PyBytes_FromStringAndSize(text.data, text.size)

    def token_id(self, text):
        cdef bytes data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        cdef int32_t id = hy3_tokenizer_id(self.handle, hy3_str(data, len(data)))
        return None if id < 0 else id

    def is_control(self, int32_t id):
        cdef c_bool result = False
        check(hy3_tokenizer_is_control(self.handle, id, &result))
        return result

    def stream_decoder(self, bint special=False):
        return StreamDecoder(self, special)

    @property
    def bos_id(self):
        cdef int32_t id = hy3_tokenizer_bos(self.handle)
        return None if id < 0 else id

    @property
    def eos_ids(self):
        cdef const int32_t* ids
        cdef size_t n, i
        hy3_tokenizer_eos(self.handle, &ids, &n)
        return [ids[i] for i in range(n)]

    @property
    def vocab_size(self):
        return hy3_tokenizer_vocab(self.handle)


cdef class StreamDecoder:
    """Text of ids as they come, holding back the bytes of an unfinished character."""
    cdef hy3_decoder* handle

    def __cinit__(self, Tokenizer tokenizer not None, bint special=False):
        self.handle = NULL
        check(hy3_decoder_new(tokenizer.handle, special, &self.handle))

    def __dealloc__(self):
        hy3_decoder_free(self.handle)

    def push(self, int32_t id):
        result = []
        check(hy3_decoder_push(self.handle, id, append_text, <void*>result))
        return result[0]

    def finish(self):
        result = []
        check(hy3_decoder_finish(self.handle, append_text, <void*>result))
        return result[0]


def rebuild_merges(tokens, types=None):
    cdef Strings texts = Strings(tokens)
    cdef Ids kinds = Ids([] if types is None else types)
    if types is not None and kinds.n != texts.n:
        raise InvalidArgumentError(f"There are {texts.n} tokens and {kinds.n} types. Give one type per token.")
    result = []
    check(hy3_rebuild_merges(texts.data, kinds.data if types is not None else NULL, texts.n, append_text,
                             <void*>result))
    return result
