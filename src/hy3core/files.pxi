# Tensor types, (de)quantization, GGUF files and headers.

TypeInfo = namedtuple("TypeInfo", "name id block nbytes quantizable dequantizable")
TensorInfo = namedtuple("TensorInfo", "name type shape nbytes offset")

_KINDS = {
    HY3_KIND_U8: ("u8", "u1"), HY3_KIND_I8: ("i8", "i1"), HY3_KIND_U16: ("u16", "<u2"), HY3_KIND_I16: ("i16", "<i2"),
    HY3_KIND_U32: ("u32", "<u4"), HY3_KIND_I32: ("i32", "<i4"), HY3_KIND_F32: ("f32", "<f4"),
    HY3_KIND_BOOL: ("bool", "?"), HY3_KIND_STR: ("str", None), HY3_KIND_ARRAY: ("array", None),
    HY3_KIND_U64: ("u64", "<u8"), HY3_KIND_I64: ("i64", "<i8"), HY3_KIND_F64: ("f64", "<f8"),
}
_KIND_BY_NAME = {name: (kind, dtype) for kind, (name, dtype) in _KINDS.items()}


cdef object describe_type(hy3_type_info info):
    return TypeInfo(info.name.decode(), info.id, info.block, info.nbytes, info.quantizable, info.dequantizable)


def types():
    cdef hy3_type_info info
    cdef size_t i
    result = {}
    for i in range(hy3_type_count()):
        check(hy3_type(i, &info))
        result[info.name.decode()] = describe_type(info)
    return result


_TYPES = {info.id: info for info in types().values()}


cdef uint32_t type_id(name) except? 0xffffffff:
    cdef hy3_type_info info
    check(hy3_find_type(str(name).encode(), &info))
    return info.id


cdef class Bytes:
    """A buffer held while native code reads or writes it."""
    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, obj, bint writable=False):
        PyObject_GetBuffer(obj, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef const float* importance_of(object importance, int64_t cols, list keep) except? NULL:
    cdef const float[::1] view
    if importance is None:
        return NULL
    array = np.ascontiguousarray(importance, dtype=np.float32)
    if array.ndim != 1 or array.shape[0] != cols:
        raise InvalidArgumentError(f"importance has the shape {array.shape}, not ({cols},). Give one value per column.")
    keep.append(array)
    view = array
    return &view[0] if cols else NULL


def convert_rows(src, src_type, dst_type, int64_t rows, int64_t cols, out, importance=None, int threads=0):
    cdef uint32_t from_id = type_id(src_type), to_id = type_id(dst_type)
    cdef Bytes source = Bytes(src), target = Bytes(out, True)
    cdef hy3_status status
    keep = []
    cdef const float* weights = importance_of(importance, cols, keep)
    with nogil:
        status = hy3_convert_rows(from_id, source.view.buf, source.view.len, to_id, target.view.buf, target.view.len,
                                  rows, cols, weights, threads)
    check(status)


def dequantize(data, type, int64_t n):
    cdef uint32_t id = type_id(type)
    cdef Bytes source = Bytes(data)
    cdef hy3_status status
    if n < 0:
        raise InvalidArgumentError(f"n is {n}. Give the number of values, 0 or more.")
    out = np.empty(n, dtype=np.float32)
    cdef float[::1] values = out
    cdef float* address = &values[0] if n else NULL
    with nogil:
        status = hy3_dequantize(id, source.view.buf, source.view.len, address, n)
    check(status)
    return out


def quantize(values, type, importance=None):
    info = _TYPES[type_id(type)]
    array = np.ascontiguousarray(values, dtype=np.float32)
    if array.ndim != 2:
        raise InvalidArgumentError(f"values has {array.ndim} dimensions. Give rows and columns.")
    rows, cols = array.shape
    if cols % info.block:
        raise InvalidArgumentError(f"Rows have {cols} values, not a multiple of the {info.block} in a block of "
                                   f"{info.name}. Choose another type.")
    out = bytearray(rows * (cols // info.block) * info.nbytes)
    convert_rows(array, "f32", type, rows, cols, out, importance)
    return bytes(out)


cdef class GGUF:
    """A GGUF file, read only; of a split model, give the first file."""
    cdef hy3_gguf* handle
    cdef readonly str path
    cdef object _metadata, _kinds  # None: not read yet
    cdef readonly list tensors
    cdef readonly tuple paths
    cdef dict index

    def __cinit__(self):
        self.handle = NULL

    def __init__(self, path, *, bint use_mmap=True):
        cdef bytes name = path_bytes(path)
        cdef const char* address = name
        cdef hy3_status status
        cdef hy3_gguf* handle = NULL
        with nogil:
            status = hy3_gguf_open(address, use_mmap, &handle)
        check(status)
        self.take(handle)

    cdef int take(self, hy3_gguf* handle) except -1:
        cdef hy3_str text
        cdef size_t i
        hy3_gguf_free(self.handle)
        self.handle = handle
        paths = []
        for i in range(hy3_gguf_file_count(handle)):
            check(hy3_gguf_path(handle, i, &text))
            paths.append(text_of(text))
        self.paths = tuple(paths)
        self.path = paths[0]
        self._metadata = self._kinds = None
        self.read_tensors()
        return 0

    def __dealloc__(self):
        hy3_gguf_free(self.handle)

    cdef int read_metadata(self) except -1:
        cdef hy3_str key
        cdef hy3_value value
        cdef size_t i
        metadata, kinds = {}, {}
        for i in range(hy3_gguf_key_count(self.handle)):
            check(hy3_gguf_key(self.handle, i, &key, &value))
            name = text_of(key)
            kind, dtype = _KINDS[value.element]
            kinds[name] = f"[{kind}]" if value.is_array else kind
            if dtype is not None:
                size = np.dtype(dtype).itemsize * value.count
                items = np.frombuffer(PyBytes_FromStringAndSize(<const char*>value.data, size), dtype).tolist()
            else:
                items = []
                if value.element == HY3_KIND_STR:
                    check(hy3_gguf_strings(self.handle, i, append_text, <void*>items))
            metadata[name] = items if value.is_array else items[0]
        self._metadata = MappingProxyType(metadata)
        self._kinds = MappingProxyType(kinds)
        return 0

    cdef int read_tensors(self) except -1:
        cdef hy3_tensor_info info
        cdef size_t i
        cdef uint32_t d
        self.tensors = []
        self.index = {}
        for i in range(hy3_gguf_tensor_count(self.handle)):
            check(hy3_gguf_tensor(self.handle, i, &info))
            name = text_of(info.name)
            shape = tuple([info.shape[d] for d in range(info.n_dims)])
            self.tensors.append(TensorInfo(name, _TYPES[info.type].name, shape, info.nbytes, info.offset))
            self.index[name] = i
        return 0

    # Read when first asked for: a vocabulary is hundreds of thousands of Python strings.
    @property
    def metadata(self):
        if self._metadata is None:
            self.read_metadata()
        return self._metadata

    @property
    def kinds(self):
        if self._kinds is None:
            self.read_metadata()
        return self._kinds

    @property
    def dialect(self):
        return "hy3_original" if hy3_gguf_is_original(self.handle) else "standard"

    @property
    def alignment(self):
        return hy3_gguf_alignment(self.handle)

    cdef hy3_tensor_info info_of(self, name) except *:
        cdef hy3_tensor_info info
        check(hy3_gguf_tensor(self.handle, self.index[name], &info))
        return info

    def tensor(self, name):
        cdef hy3_tensor_info info = self.info_of(name)
        return memoryview(TensorBytes.of(self, info.data, info.nbytes))

    def file_of(self, name):
        return self.info_of(name).file


cdef class TensorBytes:
    """The bytes of one tensor, in place; keeps the file open."""
    cdef GGUF file
    cdef const void* data
    cdef Py_ssize_t size

    @staticmethod
    cdef TensorBytes of(GGUF file, const void* data, Py_ssize_t size):
        cdef TensorBytes self = TensorBytes.__new__(TensorBytes)
        self.file = file
        self.data = data
        self.size = size
        return self

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("A model file's tensors are read-only.")
        view.buf = <void*>self.data
        view.obj = self
        view.len = self.size
        view.readonly = 1
        view.itemsize = 1
        view.format = <char*>"B" if flags & PyBUF_FORMAT else <char*>NULL
        view.ndim = 1
        view.shape = &self.size if flags & PyBUF_ND else <Py_ssize_t*>NULL
        view.strides = &view.itemsize
        view.suboffsets = NULL
        view.internal = NULL


cdef int add_key(hy3_header* header, str key, str kind, value) except -1:
    cdef hy3_value entry
    cdef bytes name = key.encode("utf-8", "surrogateescape")
    cdef const unsigned char[::1] raw
    cdef Strings strings
    is_array = kind.startswith("[") and kind.endswith("]")
    element = kind[1:-1] if is_array else kind
    if element not in _KIND_BY_NAME or element == "array":
        raise InvalidArgumentError(f"{key}: there is no metadata kind {kind!r}.")
    number, dtype = _KIND_BY_NAME[element]
    items = list(value) if is_array else [value]
    entry.is_array = is_array
    entry.element = number
    entry.count = len(items)
    if dtype is None:
        strings = Strings([str(item) for item in items])
        entry.data = strings.data
        return check(hy3_header_add_key(header, hy3_str(name, len(name)), entry))
    try:
        packed = np.array(items, dtype=dtype).tobytes() or b"\0"
    except (OverflowError, ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{key}: {error}. The value does not fit {kind}.") from None
    raw = packed
    entry.data = &raw[0]
    return check(hy3_header_add_key(header, hy3_str(name, len(name)), entry))


def gguf_header(metadata, tensors, uint32_t alignment=32):
    cdef hy3_header* header = NULL
    cdef hy3_str text
    cdef uint64_t shape[4]
    cdef uint64_t offset
    cdef bytes name
    cdef size_t i
    check(hy3_header_new(alignment, &header))
    try:
        for key, kind, value in metadata:
            add_key(header, key, kind, value)
        count = 0
        for tensor, type, dims in tensors:
            name = tensor.encode("utf-8", "surrogateescape")
            if not 1 <= len(dims) <= 4:
                raise InvalidArgumentError(f"{tensor} has {len(dims)} dimensions. A tensor has 1 to 4.")
            for i in range(len(dims)):
                shape[i] = operator.index(dims[i])
            check(hy3_header_add_tensor(header, hy3_str(name, len(name)), type_id(type), shape, len(dims)))
            count += 1
        check(hy3_header_bytes(header, &text))
        offsets = []
        for i in range(count):
            check(hy3_header_offset(header, i, &offset))
            offsets.append(offset)
        return PyBytes_FromStringAndSize(text.data, text.size), offsets, hy3_header_data_bytes(header)
    finally:
        hy3_header_free(header)
