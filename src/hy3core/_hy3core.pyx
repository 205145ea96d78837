# cython: language_level=3, embedsignature=True
"""Python objects over the C interface in native/include/hy3.h. No logic of its own: objects, errors, NumPy views
and the global lock. The signatures with their docstrings are in __init__.pyi.
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp cimport bool as c_bool

from .capi cimport *

import operator
import os
from collections import namedtuple
from threading import get_ident, main_thread
from types import MappingProxyType

import numpy as np

include "errors.pxi"
include "files.pxi"
include "tokenizer.pxi"
include "model.pxi"
include "session.pxi"
include "scheduler.pxi"
include "importance.pxi"
