# Importance matrices: collecting them, and reading the files.


cdef class ImportanceCollector:
    """Sums the squares of what goes into a model's weights, from its making to the end of its `with` block."""
    cdef hy3_collector* handle
    cdef readonly Model model
    cdef dict index

    # Both ends wait for a step under way, whose thread may want the global lock meanwhile.

    def __cinit__(self, Model model not None):
        cdef hy3_status status
        cdef hy3_collected entry
        cdef size_t i
        self.handle = NULL
        self.model = model
        with nogil:
            status = hy3_collector_new(model.handle, &self.handle)
        check(status)
        self.index = {}
        for i in range(hy3_collector_count(self.handle)):
            check(hy3_collector_entry(self.handle, i, &entry))
            self.index[text_of(entry.name)] = i

    def __dealloc__(self):
        with nogil:
            hy3_collector_free(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        cdef hy3_collector* handle = self.handle
        self.handle = NULL
        with nogil:
            hy3_collector_free(handle)

    cdef hy3_collected entry(self, name) except *:
        cdef hy3_collected entry
        if self.handle == NULL:
            raise InvalidArgumentError("The collection has ended. Read the sums inside its `with` block.")
        check(hy3_collector_entry(self.handle, self.index[name], &entry))
        return entry

    @property
    def names(self):
        return tuple(self.index)

    def sums(self, name):
        cdef hy3_collected entry = self.entry(name)
        out = np.empty((entry.n_matrices, entry.cols))
        cdef double[:, ::1] view = out
        memcpy(&view[0, 0], entry.sums, out.nbytes)
        return out

    def counts(self, name):
        cdef hy3_collected entry = self.entry(name)
        out = np.empty(entry.n_matrices, dtype=np.int64)
        cdef int64_t[::1] view = out
        memcpy(&view[0], entry.counts, out.nbytes)
        return out


cdef class ImportanceMatrix:
    """A file of `hy3 imatrix` or of llama.cpp."""
    cdef hy3_imatrix* handle
    cdef readonly str path
    cdef readonly tuple names
    cdef readonly tuple datasets
    cdef dict index

    def __cinit__(self, path):
        cdef bytes encoded = os.fsencode(path)
        cdef const char* address = encoded
        cdef hy3_status status
        cdef hy3_str text
        cdef size_t i
        self.handle = NULL
        if b"\0" in encoded:
            raise InvalidArgumentError("The path has a zero byte in it.")
        with nogil:
            status = hy3_imatrix_open(address, &self.handle)
        check(status)
        self.path = os.fsdecode(encoded)
        names, datasets = [], []
        for i in range(hy3_imatrix_count(self.handle)):
            check(hy3_imatrix_name(self.handle, i, &text))
            names.append(text_of(text))
        check(hy3_imatrix_datasets(self.handle, append_text, <void*>datasets))
        self.names = tuple(names)
        self.datasets = tuple(datasets)
        self.index = {name: number for number, name in enumerate(names)}

    def __dealloc__(self):
        hy3_imatrix_free(self.handle)

    @property
    def chunks(self):
        return hy3_imatrix_chunks(self.handle)

    def mean_squares(self, name, int64_t cols, int64_t n_matrices=1, matrix=0):
        cdef size_t index = self.index[name]
        cdef int64_t which = -1 if matrix is None else matrix
        cdef c_bool known = False
        if cols < 1 or (matrix is not None and which < 0):
            raise InvalidArgumentError("A weight has at least one column, and matrices count from 0.")
        out = np.empty(cols, dtype=np.float32)
        cdef float[::1] view = out
        check(hy3_imatrix_mean_squares(self.handle, index, cols, n_matrices, which, &view[0], &known))
        return out if known else None
