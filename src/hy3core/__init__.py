"""The engine: models, sessions, tokenizer and GGUF files, computed natively.

    import hy3core
    model = hy3core.Model("hy3.gguf")
    session = model.session(ctx=4096)
    for token in session.generate(model.tokenizer.encode("Hello"), max_tokens=64): ...

Every call releases the global interpreter lock while it computes. A Model may be shared by threads; a Session
belongs to one thread at a time.
"""

from hy3core._hy3core import (
    GGUF,
    Config,
    ContextFullError,
    Error,
    Event,
    FileError,
    FormatError,
    Generation,
    ImportanceCollector,
    ImportanceMatrix,
    InvalidArgumentError,
    MachineSpeed,
    Model,
    OutOfMemoryError,
    Sampling,
    Scheduler,
    Session,
    StreamDecoder,
    TensorInfo,
    Tokenizer,
    TypeInfo,
    UnsupportedError,
    backends,
    build_info,
    convert_rows,
    dequantize,
    gguf_header,
    measure_machine,
    quantize,
    rebuild_merges,
    sample,
    step,
    types,
    version,
)

__all__ = [
    "GGUF",
    "Config",
    "ContextFullError",
    "Error",
    "Event",
    "FileError",
    "FormatError",
    "Generation",
    "ImportanceCollector",
    "ImportanceMatrix",
    "InvalidArgumentError",
    "MachineSpeed",
    "Model",
    "OutOfMemoryError",
    "Sampling",
    "Scheduler",
    "Session",
    "StreamDecoder",
    "TensorInfo",
    "Tokenizer",
    "TypeInfo",
    "UnsupportedError",
    "backends",
    "build_info",
    "convert_rows",
    "dequantize",
    "gguf_header",
    "measure_machine",
    "quantize",
    "rebuild_merges",
    "sample",
    "step",
    "types",
    "version",
]
