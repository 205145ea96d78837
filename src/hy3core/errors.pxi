# Exceptions, status codes, and the callbacks that carry text and signals across the C boundary.


class Error(Exception):
    """What the engine refuses or cannot do. The message reads "WHAT. HINT."."""


class FormatError(Error, ValueError):
    """A file is broken; the message names the file and the key or tensor."""


class UnsupportedError(Error):
    """Valid, but not something this engine does."""


class OutOfMemoryError(Error, MemoryError):
    """The memory for what was asked is not there."""


class ContextFullError(Error):
    """More tokens than the session's context holds."""


cdef class Strings:
    """Texts as an array of hy3_str."""
    cdef list texts
    cdef object table
    cdef const hy3_str* data
    cdef size_t n

    def __cinit__(self, texts):
        cdef size_t[:, ::1] views
        cdef bytes encoded
        cdef size_t i
        self.texts = [text.encode("utf-8", "surrogateescape") for text in texts]
        self.n = len(self.texts)
        self.table = np.zeros((max(<size_t>1, self.n), 2), dtype=np.uintp)
        views = self.table
        for i in range(self.n):
            encoded = self.texts[i]
            views[i, 0] = <size_t><const char*>encoded
            views[i, 1] = len(encoded)
        self.data = <const hy3_str*>&views[0, 0]


cdef object text_of(hy3_str text):
    return PyUnicode_DecodeUTF8(text.data, text.size, "surrogateescape")


cdef int check(hy3_status status) except -1:
    """Raises what a status other than HY3_OK stands for."""
    if status == HY3_OK:
        return 0
    message = hy3_last_error().decode("utf-8", "replace")
    if status == HY3_ABORTED:
        PyErr_CheckSignals()  # raises what the signal's handler left behind
        raise KeyboardInterrupt
    if status == HY3_INVALID_ARGUMENT:
        raise InvalidArgumentError(message)
    if status == HY3_FORMAT:
        raise FormatError(message)
    if status == HY3_UNSUPPORTED:
        raise UnsupportedError(message)
    if status == HY3_OUT_OF_MEMORY:
        raise OutOfMemoryError(message)
    if status == HY3_CONTEXT_FULL:
        raise ContextFullError(message)
    if status == HY3_IO:
        raise FileError(message)
    raise Error(f"{message} This is a bug in hy3; please report it.")


class InvalidArgumentError(Error, ValueError):
    """An argument makes no sense; the message names it."""


class FileError(Error, OSError):
    """The operating system refuses a file."""


cdef class Interrupt:
    """Runs signal handlers while a call computes; remembers what they raised. Python runs them on its main thread
    alone: calls of others need not stop for its lock.
    """
    cdef object error
    cdef hy3_abort_fn poll

    def __cinit__(self):
        if get_ident() == main_thread().ident:
            self.poll = poll_signals

    cdef int raised(self) except -1:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return 0


cdef int poll_signals(void* user) noexcept with gil:
    try:
        PyErr_CheckSignals()
        return 0
    except BaseException as error:
        (<Interrupt>user).error = error
        return 1


cdef int finish(hy3_status status, Interrupt interrupt) except -1:
    """As check(), but an abort raises what the signal handler raised."""
    if status == HY3_ABORTED:
        interrupt.raised()
    return check(status)


cdef void append_text(void* user, hy3_str text) noexcept with gil:
    (<list>user).append(text_of(text))


cdef void append_bytes(void* user, hy3_str content) noexcept with gil:
    (<list>user).append(PyBytes_FromStringAndSize(content.data, content.size))


cdef bytes path_bytes(object path):
    name = os.fsencode(path)
    if b"\0" in name:
        raise InvalidArgumentError("The path has a zero byte in it.")
    return name


cdef void append_ids(void* user, const int32_t* ids, size_t n) noexcept with gil:
    cdef size_t i
    result = <list>user
    for i in range(n):
        result.append(ids[i])
