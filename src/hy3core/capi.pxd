# The C interface (native/include/hy3.h) as Cython sees it. Comments are there.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libcpp cimport bool as c_bool

cdef extern from "hy3.h" nogil:
    ctypedef enum hy3_status:
        HY3_OK, HY3_INVALID_ARGUMENT, HY3_FORMAT, HY3_UNSUPPORTED, HY3_OUT_OF_MEMORY, HY3_CONTEXT_FULL, HY3_IO
        HY3_ABORTED, HY3_INTERNAL

    ctypedef struct hy3_str:
        const char* data
        size_t size

    ctypedef struct hy3_gguf
    ctypedef struct hy3_header
    ctypedef struct hy3_tokenizer
    ctypedef struct hy3_decoder
    ctypedef struct hy3_model
    ctypedef struct hy3_session
    ctypedef struct hy3_generation
    ctypedef struct hy3_collector
    ctypedef struct hy3_imatrix

    ctypedef int (*hy3_abort_fn)(void* user) noexcept
    ctypedef void (*text_fn)(void* user, hy3_str text) noexcept
    ctypedef void (*ids_fn)(void* user, const int32_t* ids, size_t n) noexcept

    const char* hy3_last_error()
    const char* hy3_version()

    ctypedef struct hy3_backend_info:
        const char* name
        const char* device
        uint64_t memory
    size_t hy3_backend_count()
    hy3_status hy3_backend(size_t index, hy3_backend_info* out)
    size_t hy3_isa_count()
    const char* hy3_isa(size_t index)
    hy3_status hy3_current_isa(const char** out)
    ctypedef struct hy3_machine_speed:
        double read_bytes
        double int8_ops
    hy3_status hy3_measure_machine(int threads, uint64_t span, hy3_abort_fn abort, void* user, hy3_machine_speed* out)

    ctypedef struct hy3_type_info:
        uint32_t id
        const char* name
        uint32_t block
        uint32_t nbytes
        bint quantizable
        bint dequantizable
    size_t hy3_type_count()
    hy3_status hy3_type(size_t index, hy3_type_info* out)
    hy3_status hy3_find_type(const char* name, hy3_type_info* out)
    hy3_status hy3_dequantize(uint32_t type, const void* src, size_t nbytes, float* dst, int64_t n)
    hy3_status hy3_convert_rows(uint32_t src_type, const void* src, size_t src_nbytes, uint32_t dst_type, void* dst,
                                size_t dst_nbytes, int64_t rows, int64_t cols, const float* importance, int threads)

    ctypedef enum hy3_kind:
        HY3_KIND_U8, HY3_KIND_I8, HY3_KIND_U16, HY3_KIND_I16, HY3_KIND_U32, HY3_KIND_I32, HY3_KIND_F32, HY3_KIND_BOOL
        HY3_KIND_STR, HY3_KIND_ARRAY, HY3_KIND_U64, HY3_KIND_I64, HY3_KIND_F64
    ctypedef struct hy3_value:
        bint is_array
        hy3_kind element
        uint64_t count
        const void* data
    ctypedef struct hy3_tensor_info:
        hy3_str name
        uint32_t type
        uint32_t n_dims
        uint64_t shape[4]
        uint64_t nbytes
        uint64_t offset
        uint32_t file
        const void* data
    hy3_status hy3_gguf_open(const char* path, bint use_mmap, hy3_gguf** out)
    void hy3_gguf_free(hy3_gguf* file)
    size_t hy3_gguf_file_count(const hy3_gguf* file)
    hy3_status hy3_gguf_path(const hy3_gguf* file, size_t index, hy3_str* out)
    bint hy3_gguf_is_original(const hy3_gguf* file)
    uint32_t hy3_gguf_alignment(const hy3_gguf* file)
    size_t hy3_gguf_key_count(const hy3_gguf* file)
    hy3_status hy3_gguf_key(const hy3_gguf* file, size_t index, hy3_str* key, hy3_value* value)
    hy3_status hy3_gguf_strings(const hy3_gguf* file, size_t index, text_fn visit, void* user)
    size_t hy3_gguf_tensor_count(const hy3_gguf* file)
    hy3_status hy3_gguf_tensor(const hy3_gguf* file, size_t index, hy3_tensor_info* out)
    hy3_status hy3_header_new(uint32_t alignment, hy3_header** out)
    void hy3_header_free(hy3_header* header)
    hy3_status hy3_header_add_key(hy3_header* header, hy3_str key, hy3_value value)
    hy3_status hy3_header_add_tensor(hy3_header* header, hy3_str name, uint32_t type, const uint64_t* shape,
                                     uint32_t n_dims)
    hy3_status hy3_header_bytes(hy3_header* header, hy3_str* out)
    hy3_status hy3_header_offset(const hy3_header* header, size_t tensor, uint64_t* out)
    uint64_t hy3_header_data_bytes(const hy3_header* header)

    hy3_status hy3_tokenizer_open(const hy3_gguf* file, hy3_tokenizer** out)
    void hy3_tokenizer_free(hy3_tokenizer* tokenizer)
    hy3_status hy3_tokenizer_encode(const hy3_tokenizer* tokenizer, hy3_str text, bint special, bint bos, ids_fn take,
                                    void* user)
    hy3_status hy3_tokenizer_decode(const hy3_tokenizer* tokenizer, const int32_t* ids, size_t n, bint special,
                                    text_fn take, void* user)
    hy3_status hy3_tokenizer_piece(const hy3_tokenizer* tokenizer, int32_t id, hy3_str* out)
    int32_t hy3_tokenizer_id(const hy3_tokenizer* tokenizer, hy3_str text)
    hy3_status hy3_tokenizer_is_control(const hy3_tokenizer* tokenizer, int32_t id, c_bool* out)
    int32_t hy3_tokenizer_bos(const hy3_tokenizer* tokenizer)
    size_t hy3_tokenizer_vocab(const hy3_tokenizer* tokenizer)
    void hy3_tokenizer_eos(const hy3_tokenizer* tokenizer, const int32_t** ids, size_t* n)
    hy3_status hy3_rebuild_merges(const hy3_str* tokens, const int32_t* types, size_t n, text_fn visit, void* user)
    hy3_status hy3_decoder_new(const hy3_tokenizer* tokenizer, bint special, hy3_decoder** out)
    void hy3_decoder_free(hy3_decoder* decoder)
    hy3_status hy3_decoder_push(hy3_decoder* decoder, int32_t id, text_fn take, void* user)
    hy3_status hy3_decoder_finish(hy3_decoder* decoder, text_fn take, void* user)

    ctypedef struct hy3_model_options:
        const char* backend
        int threads
        int experts
        float rope_factor
        int64_t rope_ctx
        float rope_attention_factor, rope_beta_fast, rope_beta_slow
        bint use_mmap
        bint mlock
        const char* mtp_model
    ctypedef struct hy3_config:
        int n_layers, n_mtp_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, n_experts, n_experts_used
        int n_shared_experts, expert_ffn, shared_ffn, vocab
        int64_t ctx
        float rms_eps, rope_theta, rope_factor, router_scale
        bint route_norm, softmax_gating, tied_head
    hy3_model_options hy3_model_default_options()
    hy3_status hy3_model_open(const char* path, const hy3_model_options* options, hy3_model** out)
    void hy3_model_free(hy3_model* model)
    void hy3_model_config(const hy3_model* model, hy3_config* out)
    void hy3_model_rope(const hy3_model* model, const float** inv_freq, size_t* n, float* scale)
    const char* hy3_model_backend(const hy3_model* model)
    int hy3_model_threads(const hy3_model* model)
    hy3_status hy3_model_gguf(const hy3_model* model, hy3_gguf** out)
    hy3_status hy3_model_tokenizer(const hy3_model* model, hy3_tokenizer** out)

    ctypedef enum hy3_kv_type:
        HY3_KV_F32, HY3_KV_F16, HY3_KV_Q8, HY3_KV_Q4
    ctypedef struct hy3_session_options:
        int64_t ctx
        hy3_kv_type kv
        int chunk
        bint mtp
    hy3_session_options hy3_session_default_options()
    hy3_status hy3_session_open(hy3_model* model, const hy3_session_options* options, hy3_session** out)
    hy3_status hy3_session_fork(const hy3_session* session, hy3_session** out)
    void hy3_session_free(hy3_session* session)
    uint64_t hy3_session_kv_bytes(const hy3_session* session)
    void hy3_session_tokens(const hy3_session* session, const int32_t** tokens, size_t* n)
    hy3_status hy3_session_truncate(hy3_session* session, int64_t n)
    hy3_status hy3_session_jump(hy3_session* session, int64_t n)
    hy3_status hy3_session_save(const hy3_session* session, const char* path, hy3_str extra, hy3_abort_fn abort,
                                void* user)
    hy3_status hy3_session_load(hy3_session* session, const char* path, text_fn take, void* take_user,
                                hy3_abort_fn abort, void* user)
    hy3_status hy3_session_hidden(const hy3_session* session, const float** out)
    hy3_status hy3_session_mtp_logits(hy3_session* session, int32_t token, float* logits, hy3_abort_fn abort,
                                      void* user)
    hy3_status hy3_session_score(hy3_session* session, const int32_t* tokens, size_t n, float* out, hy3_abort_fn abort,
                                 void* user)
    ctypedef enum hy3_logits:
        HY3_LOGITS_NONE, HY3_LOGITS_LAST, HY3_LOGITS_ALL
    ctypedef struct hy3_step_item:
        hy3_session* session
        const int32_t* tokens
        size_t n
        hy3_logits wanted
        float* logits
    hy3_status hy3_step(const hy3_step_item* items, size_t n, hy3_abort_fn abort, void* user)

    ctypedef struct hy3_sampling:
        float temperature
        int top_k
        float top_p
        float min_p
        float repeat_penalty
        uint64_t seed
        uint32_t choice
    hy3_sampling hy3_sampling_defaults()
    hy3_status hy3_check_sampling(const hy3_sampling* sampling)
    hy3_status hy3_sample(const float* logits, size_t vocab, const hy3_sampling* sampling, const int32_t* recent,
                          size_t n_recent, uint64_t position, int32_t* out)
    ctypedef enum hy3_finish:
        HY3_RUNNING, HY3_STOP, HY3_LENGTH
    ctypedef struct hy3_drafting:
        int depth
        bint always
    ctypedef struct hy3_drafts_at_depth:
        int64_t judged
        int64_t right
    ctypedef struct hy3_generation_stats:
        int64_t prompt_tokens, reused_tokens, generated_tokens
        double prompt_seconds, decode_seconds
        int64_t drafted, accepted
        int draft_depth
        hy3_drafts_at_depth drafts[8]
        hy3_finish finish
        int32_t stop_id
    hy3_status hy3_generation_new(hy3_session* session, const int32_t* prompt, size_t n, const hy3_sampling* sampling,
                                  const int32_t* stop_ids, size_t n_stop, int64_t max_tokens, hy3_drafting drafting,
                                  int64_t jump,
                                  hy3_generation** out)
    void hy3_generation_free(hy3_generation* generation)
    hy3_status hy3_generation_prefill(hy3_generation* generation, hy3_abort_fn abort, void* user, c_bool* more)
    hy3_status hy3_generation_next(hy3_generation* generation, hy3_abort_fn abort, void* user, int32_t* token)
    void hy3_generation_get_stats(const hy3_generation* generation, hy3_generation_stats* out)

    ctypedef struct hy3_scheduler:
        pass
    ctypedef struct hy3_scheduler_options:
        hy3_session_options session
        int64_t kv_budget
        int max_running
        double max_gap
    ctypedef int (*hy3_mask_fn)(void* user, const int32_t* generated, size_t n, uint32_t* allowed, size_t words,
                                const char** error) noexcept
    ctypedef struct hy3_token_bias:
        int32_t id
        float bias
    enum:
        HY3_NO_LOGPROBS
    ctypedef struct hy3_request:
        const int32_t* prompt
        size_t n_prompt
        hy3_sampling sampling
        const int32_t* stop_ids
        size_t n_stop
        int64_t max_tokens
        hy3_drafting drafting
        const hy3_token_bias* bias
        size_t n_bias
        float presence_penalty, frequency_penalty
        hy3_mask_fn mask
        void* mask_user
        int top_logprobs, prompt_logprobs
    ctypedef struct hy3_token_logprob:
        int32_t id
        float logprob
    ctypedef struct hy3_token_logprobs:
        float chosen
        const hy3_token_logprob* top
        size_t n_top
    ctypedef enum hy3_request_finish:
        HY3_REQUEST_RUNNING, HY3_REQUEST_STOP, HY3_REQUEST_LENGTH, HY3_REQUEST_CANCELLED, HY3_REQUEST_ERROR
    ctypedef struct hy3_event:
        uint64_t request
        int32_t token
        c_bool has_logprobs
        hy3_token_logprobs logprobs
        hy3_request_finish finish
        hy3_str error
        hy3_generation_stats stats
        size_t n_prompt_logprobs
    ctypedef struct hy3_scheduler_stats:
        int64_t running, waiting, kv_tokens, kv_budget, prompt_tokens, reused_tokens, generated_tokens
        int64_t drafted, accepted, steps, preempted
    hy3_scheduler_options hy3_scheduler_default_options()
    hy3_status hy3_scheduler_new(hy3_model* model, const hy3_scheduler_options* options, hy3_scheduler** out)
    void hy3_scheduler_free(hy3_scheduler* scheduler)
    hy3_status hy3_scheduler_submit(hy3_scheduler* scheduler, const hy3_request* request, uint64_t* out)
    hy3_status hy3_scheduler_cancel(hy3_scheduler* scheduler, uint64_t request)
    hy3_status hy3_scheduler_step(hy3_scheduler* scheduler, hy3_abort_fn abort, void* user, size_t* n)
    void hy3_scheduler_event(const hy3_scheduler* scheduler, size_t index, hy3_event* out)
    void hy3_scheduler_prompt_logprobs(const hy3_scheduler* scheduler, size_t event, size_t index,
                                       hy3_token_logprobs* out)
    void hy3_scheduler_get_stats(const hy3_scheduler* scheduler, hy3_scheduler_stats* out)

    hy3_status hy3_collector_new(hy3_model* model, hy3_collector** out)
    void hy3_collector_free(hy3_collector* collector)
    ctypedef struct hy3_collected:
        hy3_str name
        int64_t cols, n_matrices
        const double* sums
        const int64_t* counts
    size_t hy3_collector_count(const hy3_collector* collector)
    hy3_status hy3_collector_entry(const hy3_collector* collector, size_t index, hy3_collected* out)

    hy3_status hy3_imatrix_open(const char* path, hy3_imatrix** out)
    void hy3_imatrix_free(hy3_imatrix* file)
    size_t hy3_imatrix_count(const hy3_imatrix* file)
    hy3_status hy3_imatrix_name(const hy3_imatrix* file, size_t index, hy3_str* out)
    hy3_status hy3_imatrix_datasets(const hy3_imatrix* file, text_fn visit, void* user)
    uint32_t hy3_imatrix_chunks(const hy3_imatrix* file)
    hy3_status hy3_imatrix_mean_squares(const hy3_imatrix* file, size_t index, int64_t cols, int64_t n_matrices,
                                        int64_t matrix, float* out, c_bool* known)
