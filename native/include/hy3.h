/* hy3: the C interface of the native library.
 *
 * Opaque handles, status codes, plain structs; no exception crosses it. A function that can fail returns a
 * hy3_status and leaves its outputs untouched on failure; hy3_last_error() then has the message, "WHAT.
 * HINT.", of the calling thread's last failure. Strings are UTF-8 and, where they are hy3_str, not
 * terminated. Views (hy3_str, pointers into handles) live as long as the handle they came from. Handles are
 * freed by their _free function, which takes NULL.
 *
 * Threads: models, files and tokenizers may be shared; a session or generation belongs to one thread at a
 * time, and so does a scheduler but for the calls that say otherwise.
 */
#ifndef HY3_H
#define HY3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hy3_status {
    HY3_OK = 0,
    HY3_INVALID_ARGUMENT = 1,
    HY3_FORMAT = 2,      /* a file is broken or hostile */
    HY3_UNSUPPORTED = 3, /* valid, but not something this engine does */
    HY3_OUT_OF_MEMORY = 4,
    HY3_CONTEXT_FULL = 5,
    HY3_IO = 6,
    HY3_ABORTED = 7, /* the abort callback returned non-zero */
    HY3_INTERNAL = 8 /* a bug */
} hy3_status;

typedef struct hy3_str {
    const char* data;
    size_t size;
} hy3_str;

typedef struct hy3_gguf hy3_gguf;
typedef struct hy3_header hy3_header;
typedef struct hy3_tokenizer hy3_tokenizer;
typedef struct hy3_decoder hy3_decoder;
typedef struct hy3_model hy3_model;
typedef struct hy3_session hy3_session;
typedef struct hy3_generation hy3_generation;
typedef struct hy3_scheduler hy3_scheduler;
typedef struct hy3_collector hy3_collector;
typedef struct hy3_imatrix hy3_imatrix;

/* Asked every few milliseconds by the calls that take it, on the calling thread; non-zero stops the call with
 * HY3_ABORTED and its session as before. May be NULL. */
typedef int (*hy3_abort_fn)(void* user);

const char* hy3_last_error(void);
const char* hy3_version(void);

/* --- What this build and machine offer
 * ------------------------------------------------------------------------- */

typedef struct hy3_backend_info {
    const char* name;   /* "cpu", "reference" */
    const char* device; /* for people */
    uint64_t memory;    /* bytes */
} hy3_backend_info;

size_t hy3_backend_count(void);
hy3_status hy3_backend(size_t index, hy3_backend_info* out);
/* Instruction sets of the CPU backend that this machine can run, the preferred one first. On x86-64 "avx512",
 * "avxvnni", "avxvnni_evex" (the kernels of "avxvnni" in the encoding of AVX-512, for tests), "avx2"; on
 * arm64 "neon_i8mm", "neon_dotprod", "neon"; "scalar" anywhere. All compute the same bits. */
size_t hy3_isa_count(void);
const char* hy3_isa(size_t index);
/* The one in use: the preferred one, or what the environment variable HY3_ISA names. Fails if that cannot run
 * here. */
hy3_status hy3_current_isa(const char** out);

typedef struct hy3_machine_speed {
    double read_bytes; /* a second, from memory */
    double int8_ops;   /* multiplications and additions a second */
} hy3_machine_speed;

/* What this machine can do at most with these threads (0: one per physical core) and the instruction set in
 * use: the best of five reads of `span` bytes, which must be far more than the caches hold (16 MiB to 64
 * GiB), and of five runs of int8 products. */
hy3_status hy3_measure_machine(int threads, uint64_t span, hy3_abort_fn abort, void* user,
                               hy3_machine_speed* out);

/* --- Tensor types
 * ------------------------------------------------------------------------------------------------ */

typedef struct hy3_type_info {
    uint32_t id; /* as in GGUF */
    const char* name;
    uint32_t block;  /* elements */
    uint32_t nbytes; /* per block */
    bool quantizable;
    bool dequantizable;
} hy3_type_info;

size_t hy3_type_count(void);
hy3_status hy3_type(size_t index, hy3_type_info* out);
/* By name, in any case. */
hy3_status hy3_find_type(const char* name, hy3_type_info* out);

/* n elements from nbytes bytes, which must be exactly what they take. */
hy3_status hy3_dequantize(uint32_t type, const void* src, size_t nbytes, float* dst, int64_t n);
/* (rows, cols) from one type to another, rows split over threads (0: all cores). importance: (cols) or NULL.
 * The sizes of src and dst are checked against the shape. */
hy3_status hy3_convert_rows(uint32_t src_type, const void* src, size_t src_nbytes, uint32_t dst_type,
                            void* dst, size_t dst_nbytes, int64_t rows, int64_t cols, const float* importance,
                            int threads);

/* --- GGUF files
 * ------------------------------------------------------------------------------------------------------ */

typedef enum hy3_kind { /* the numbers of the format */
                        HY3_KIND_U8 = 0,
                        HY3_KIND_I8 = 1,
                        HY3_KIND_U16 = 2,
                        HY3_KIND_I16 = 3,
                        HY3_KIND_U32 = 4,
                        HY3_KIND_I32 = 5,
                        HY3_KIND_F32 = 6,
                        HY3_KIND_BOOL = 7,
                        HY3_KIND_STR = 8,
                        HY3_KIND_ARRAY = 9,
                        HY3_KIND_U64 = 10,
                        HY3_KIND_I64 = 11,
                        HY3_KIND_F64 = 12
} hy3_kind;

/* A metadata value. Scalars and arrays of numbers: `count` (1 for a scalar) little-endian elements of
 * `element` at `data`, unaligned. Strings and arrays of strings: hy3_gguf_strings(). Arrays of arrays have
 * element ARRAY and no data. */
typedef struct hy3_value {
    bool is_array;
    hy3_kind element;
    uint64_t count;
    const void* data;
} hy3_value;

typedef struct hy3_tensor_info {
    hy3_str name;
    uint32_t type;
    uint32_t n_dims;
    uint64_t shape[4]; /* [0] is the row length */
    uint64_t nbytes;
    uint64_t offset; /* from the start of its file */
    uint32_t file;   /* which of the split files */
    const void* data;
} hy3_tensor_info;

hy3_status hy3_gguf_open(const char* path, bool use_mmap, hy3_gguf** out);
void hy3_gguf_free(hy3_gguf* file);
size_t hy3_gguf_file_count(const hy3_gguf* file);
hy3_status hy3_gguf_path(const hy3_gguf* file, size_t index, hy3_str* out);
/* Whether it is in the layout of the original hy3 engine. */
bool hy3_gguf_is_original(const hy3_gguf* file);
uint32_t hy3_gguf_alignment(const hy3_gguf* file);
size_t hy3_gguf_key_count(const hy3_gguf* file);
hy3_status hy3_gguf_key(const hy3_gguf* file, size_t index, hy3_str* key, hy3_value* value);
/* Calls `visit` with each string of a key's value in order. */
hy3_status hy3_gguf_strings(const hy3_gguf* file, size_t index, void (*visit)(void* user, hy3_str text),
                            void* user);
size_t hy3_gguf_tensor_count(const hy3_gguf* file);
hy3_status hy3_gguf_tensor(const hy3_gguf* file, size_t index, hy3_tensor_info* out);

/* The header of a file to be written: keys and tensors in the order of the calls. */
hy3_status hy3_header_new(uint32_t alignment, hy3_header** out);
void hy3_header_free(hy3_header* header);
/* `value.data`: as in hy3_value for numbers; for strings, `count` hy3_str. */
hy3_status hy3_header_add_key(hy3_header* header, hy3_str key, hy3_value value);
hy3_status hy3_header_add_tensor(hy3_header* header, hy3_str name, uint32_t type, const uint64_t* shape,
                                 uint32_t n_dims);
/* The bytes before the data section, the offset of each tensor in it and its size. The view lives until the
 * next call with this header. */
hy3_status hy3_header_bytes(hy3_header* header, hy3_str* out);
hy3_status hy3_header_offset(const hy3_header* header, size_t tensor, uint64_t* out);
uint64_t hy3_header_data_bytes(const hy3_header* header);

/* --- Tokenizer
 * ------------------------------------------------------------------------------------------------------------
 */

/* Reads the tokenizer's keys alone. */
hy3_status hy3_tokenizer_open(const hy3_gguf* file, hy3_tokenizer** out);
void hy3_tokenizer_free(hy3_tokenizer* tokenizer);
/* Calls `take` once with the ids. */
hy3_status hy3_tokenizer_encode(const hy3_tokenizer* tokenizer, hy3_str text, bool special, bool bos,
                                void (*take)(void* user, const int32_t* ids, size_t n), void* user);
/* Calls `take` once with the text. */
hy3_status hy3_tokenizer_decode(const hy3_tokenizer* tokenizer, const int32_t* ids, size_t n, bool special,
                                void (*take)(void* user, hy3_str text), void* user);
hy3_status hy3_tokenizer_piece(const hy3_tokenizer* tokenizer, int32_t id, hy3_str* out);
/* -1 when no token has this text. */
int32_t hy3_tokenizer_id(const hy3_tokenizer* tokenizer, hy3_str text);
hy3_status hy3_tokenizer_is_control(const hy3_tokenizer* tokenizer, int32_t id, bool* out);
int32_t hy3_tokenizer_bos(const hy3_tokenizer* tokenizer); /* -1: none */
size_t hy3_tokenizer_vocab(const hy3_tokenizer* tokenizer);
/* Ids that end generation, ascending. */
void hy3_tokenizer_eos(const hy3_tokenizer* tokenizer, const int32_t** ids, size_t* n);
/* The merges that a vocabulary without any implies: the pair whose concatenation has the lowest id goes
 * first. types: as in tokenizer.ggml.token_type, or NULL. Calls `visit` with each "LEFT RIGHT". */
hy3_status hy3_rebuild_merges(const hy3_str* tokens, const int32_t* types, size_t n,
                              void (*visit)(void* user, hy3_str merge), void* user);

/* Text of ids as they come; holds back the bytes of an unfinished character. */
hy3_status hy3_decoder_new(const hy3_tokenizer* tokenizer, bool special, hy3_decoder** out);
void hy3_decoder_free(hy3_decoder* decoder);
hy3_status hy3_decoder_push(hy3_decoder* decoder, int32_t id, void (*take)(void* user, hy3_str text),
                            void* user);
hy3_status hy3_decoder_finish(hy3_decoder* decoder, void (*take)(void* user, hy3_str text), void* user);

/* --- Models
 * ----------------------------------------------------------------------------------------------------------------
 */

typedef struct hy3_model_options {
    const char* backend; /* "auto", "reference", "cpu" */
    int threads;         /* 0: one per physical core this process may use */
    int experts;         /* per token; 0: the file's */
    float rope_factor;   /* 0: the file's; 1: the plain table; above 1: YaRN */
    int64_t rope_ctx;    /* context the model was trained at, which YaRN stretches; 0: the file's */
    /* 0: the file's, or the usual ones. */
    float rope_attention_factor, rope_beta_fast, rope_beta_slow;
    bool use_mmap;
    bool mlock;
    const char*
        mtp_model; /* path of a file with only the MTP layer, for a model whose own has none; NULL: none */
} hy3_model_options;

typedef struct hy3_config {
    int n_layers, n_mtp_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, n_experts, n_experts_used,
        n_shared_experts, expert_ffn, shared_ffn, vocab;
    int64_t ctx;
    float rms_eps, rope_theta, rope_factor, router_scale;
    bool route_norm, softmax_gating, tied_head;
} hy3_config;

hy3_model_options hy3_model_default_options(void);
hy3_status hy3_model_open(const char* path, const hy3_model_options* options, hy3_model** out);
void hy3_model_free(hy3_model* model);
void hy3_model_config(const hy3_model* model, hy3_config* out);
/* (head_dim / 2) inverse frequencies of RoPE, and the factor on cosines and sines (YaRN's attention factor).
 */
void hy3_model_rope(const hy3_model* model, const float** inv_freq, size_t* n, float* scale);
const char* hy3_model_backend(const hy3_model* model);
int hy3_model_threads(const hy3_model* model);
/* Handles of their own, to be freed. */
hy3_status hy3_model_gguf(const hy3_model* model, hy3_gguf** out);
hy3_status hy3_model_tokenizer(const hy3_model* model, hy3_tokenizer** out);

/* --- Sessions
 * ----------------------------------------------------------------------------------------------------------------
 */

/* Q8: int8, a float32 scale per head and row. Q4: 4 bits, a float16 scale per 32 columns of a head, which the
 * head size must be a multiple of. */
typedef enum hy3_kv_type { HY3_KV_F32 = 0, HY3_KV_F16 = 1, HY3_KV_Q8 = 2, HY3_KV_Q4 = 3 } hy3_kv_type;

typedef struct hy3_session_options {
    int64_t ctx; /* positions; 0: the model's */
    hy3_kv_type kv;
    int chunk; /* rows of a prompt computed at once */
    bool mtp;  /* keep the MTP layer's cache in step */
} hy3_session_options;

hy3_session_options hy3_session_default_options(void);
hy3_status hy3_session_open(hy3_model* model, const hy3_session_options* options, hy3_session** out);
hy3_status hy3_session_fork(const hy3_session* session, hy3_session** out);
void hy3_session_free(hy3_session* session);
void hy3_session_tokens(const hy3_session* session, const int32_t** tokens, size_t* n);
/* Bytes of the key/value cache as long as it is now, pages shared with forks included. */
uint64_t hy3_session_kv_bytes(const hy3_session* session);
hy3_status hy3_session_truncate(hy3_session* session, int64_t n);
/* Puts the tokens to come n positions further away from those so far, for RoPE alone: the cache has no gap.
 */
hy3_status hy3_session_jump(hy3_session* session, int64_t n);
/* The whole state in a file, from which a session of the same model, backend, KV type and mtp goes on bit for
 * bit. `extra`, any bytes, goes along: load calls `take` once with it. */
hy3_status hy3_session_save(const hy3_session* session, const char* path, hy3_str extra, hy3_abort_fn abort,
                            void* user);
hy3_status hy3_session_load(hy3_session* session, const char* path, void (*take)(void* user, hy3_str extra),
                            void* take_user, hy3_abort_fn abort, void* user);
/* (hidden) floats: post-norm state of the last position. */
hy3_status hy3_session_hidden(const hy3_session* session, const float** out);
hy3_status hy3_session_mtp_logits(hy3_session* session, int32_t token, float* logits, hy3_abort_fn abort,
                                  void* user);
hy3_status hy3_session_score(hy3_session* session, const int32_t* tokens, size_t n, float* out,
                             hy3_abort_fn abort, void* user);

typedef enum hy3_logits { HY3_LOGITS_NONE = 0, HY3_LOGITS_LAST = 1, HY3_LOGITS_ALL = 2 } hy3_logits;

typedef struct hy3_step_item {
    hy3_session* session;
    const int32_t* tokens;
    size_t n;
    hy3_logits wanted;
    float* logits; /* (vocab) for LAST, (n, vocab) for ALL */
} hy3_step_item;

/* One step over several sessions of one model. */
hy3_status hy3_step(const hy3_step_item* items, size_t n, hy3_abort_fn abort, void* user);

/* --- Sampling and generation
 * ---------------------------------------------------------------------------------------------- */

typedef struct hy3_sampling {
    float temperature;    /* 0: greedy */
    int top_k;            /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off */
    uint64_t seed;
    uint32_t choice;
} hy3_sampling;

hy3_sampling hy3_sampling_defaults(void);
hy3_status hy3_check_sampling(const hy3_sampling* sampling);
/* The token that a generation with these logits, tokens so far and position would draw. */
hy3_status hy3_sample(const float* logits, size_t vocab, const hy3_sampling* sampling, const int32_t* recent,
                      size_t n_recent, uint64_t position, int32_t* out);

typedef enum hy3_finish { HY3_RUNNING = 0, HY3_STOP = 1, HY3_LENGTH = 2 } hy3_finish;

enum { HY3_MAX_DRAFTS = 8 };

typedef struct hy3_drafts_at_depth {
    int64_t judged; /* drafts that came to the test: all before them in their step were right */
    int64_t right;
} hy3_drafts_at_depth;

typedef struct hy3_generation_stats {
    int64_t prompt_tokens, reused_tokens, generated_tokens;
    double prompt_seconds, decode_seconds;
    int64_t drafted, accepted; /* tokens */
    int draft_depth;           /* the most at once */
    hy3_drafts_at_depth drafts[HY3_MAX_DRAFTS];
    hy3_finish finish;
    int32_t stop_id; /* -1: none */
} hy3_generation_stats;

/* Drafts by the MTP layer. What is generated does not depend on them. */
typedef struct hy3_drafting {
    int depth;   /* the most at once, up to HY3_MAX_DRAFTS; 0: none; -1: as many as pay, none if the session
                    is without mtp */
    bool always; /* to the full depth every time, whether it pays or not: for measuring */
} hy3_drafting;

/* The session must outlive the generation. jump: what follows the prompt is that many positions further on,
 * as after hy3_session_jump; 0: none. */
hy3_status hy3_generation_new(hy3_session* session, const int32_t* prompt, size_t n,
                              const hy3_sampling* sampling, const int32_t* stop_ids, size_t n_stop,
                              int64_t max_tokens, hy3_drafting drafting, int64_t jump, hy3_generation** out);
void hy3_generation_free(hy3_generation* generation);
/* To show progress: evaluates a chunk of the prompt, unless it is the last one, which is
 * hy3_generation_next's. *more: whether it did. */
hy3_status hy3_generation_prefill(hy3_generation* generation, hy3_abort_fn abort, void* user, bool* more);
/* *token is -1 when the generation has ended. */
hy3_status hy3_generation_next(hy3_generation* generation, hy3_abort_fn abort, void* user, int32_t* token);
void hy3_generation_get_stats(const hy3_generation* generation, hy3_generation_stats* out);

/* --- Continuous batching
 * ----------------------------------------------------------------------------------------------------- */

typedef struct hy3_scheduler_options {
    hy3_session_options session; /* of each request; ctx: its prompt and answer */
    int64_t kv_budget; /* positions over all, kept conversations included; 0: max_running times ctx in whole
                          pages */
    int max_running;   /* requests that share a step; the others wait */
    double max_gap;    /* seconds between two tokens of a request while the prompts of others are read */
} hy3_scheduler_options;

/* Sets the bit of each token that may follow the `generated` ones: token i is bit i % 32 of allowed[i / 32],
 * all zero before. Called on the thread that steps, also with drafts that may turn out wrong. Anything but 0
 * ends the request with the message that `error` then points to, which must live until the next call. */
typedef int (*hy3_mask_fn)(void* user, const int32_t* generated, size_t n, uint32_t* allowed, size_t words,
                           const char** error);

typedef struct hy3_token_bias {
    int32_t id;
    float bias;
} hy3_token_bias;

enum { HY3_NO_LOGPROBS = -1 };

typedef struct hy3_request {
    const int32_t* prompt;
    size_t n_prompt;
    hy3_sampling sampling;
    const int32_t* stop_ids;
    size_t n_stop;
    int64_t max_tokens;
    hy3_drafting drafting;
    const hy3_token_bias* bias; /* added to logits before sampling */
    size_t n_bias;
    float presence_penalty, frequency_penalty; /* 0: off; of tokens generated so far */
    hy3_mask_fn mask;                          /* NULL: every token is allowed */
    void* mask_user;
    int top_logprobs;    /* of each generated token, with so many of the most likely; or HY3_NO_LOGPROBS */
    int prompt_logprobs; /* the same for the prompt's tokens but the first */
} hy3_request;

typedef struct hy3_token_logprob {
    int32_t id;
    float logprob;
} hy3_token_logprob;

typedef struct hy3_token_logprobs {
    float chosen;
    const hy3_token_logprob* top;
    size_t n_top;
} hy3_token_logprobs;

typedef enum hy3_request_finish {
    HY3_REQUEST_RUNNING = 0,
    HY3_REQUEST_STOP = 1, /* an end token was drawn */
    HY3_REQUEST_LENGTH = 2,
    HY3_REQUEST_CANCELLED = 3,
    HY3_REQUEST_ERROR = 4
} hy3_request_finish;

/* A token of a request, its end, or both. */
typedef struct hy3_event {
    uint64_t request;
    int32_t token; /* -1: none */
    bool has_logprobs;
    hy3_token_logprobs logprobs;
    hy3_request_finish finish;
    hy3_str error;              /* with HY3_REQUEST_ERROR */
    hy3_generation_stats stats; /* with the end */
    size_t n_prompt_logprobs;   /* likewise */
} hy3_event;

typedef struct hy3_scheduler_stats {
    int64_t running, waiting;
    int64_t kv_tokens, kv_budget; /* positions, in whole pages */
    int64_t prompt_tokens, reused_tokens, generated_tokens;
    int64_t drafted, accepted;
    int64_t steps;
    int64_t preempted; /* requests put back into the queue for lack of room */
} hy3_scheduler_stats;

hy3_scheduler_options hy3_scheduler_default_options(void);
hy3_status hy3_scheduler_new(hy3_model* model, const hy3_scheduler_options* options, hy3_scheduler** out);
void hy3_scheduler_free(hy3_scheduler* scheduler);
/* Queues a request; its number, never 0. From any thread. */
hy3_status hy3_scheduler_submit(hy3_scheduler* scheduler, const hy3_request* request, uint64_t* out);
/* Ends a request before the next step, unless it has ended. From any thread. */
hy3_status hy3_scheduler_cancel(hy3_scheduler* scheduler, uint64_t request);
/* One step for all requests; nothing if there are none. *n events, which live until the next step. */
hy3_status hy3_scheduler_step(hy3_scheduler* scheduler, hy3_abort_fn abort, void* user, size_t* n);
void hy3_scheduler_event(const hy3_scheduler* scheduler, size_t index, hy3_event* out);
void hy3_scheduler_prompt_logprobs(const hy3_scheduler* scheduler, size_t event, size_t index,
                                   hy3_token_logprobs* out);
/* From any thread. */
void hy3_scheduler_get_stats(const hy3_scheduler* scheduler, hy3_scheduler_stats* out);

/* --- Importance matrices
 * ------------------------------------------------------------------------------------------------ */

/* Observes every step of the model from _new to _free. One at a time for a model. */
hy3_status hy3_collector_new(hy3_model* model, hy3_collector** out);
void hy3_collector_free(hy3_collector* collector);

typedef struct hy3_collected {
    hy3_str name; /* of the weight, as in GGUF */
    int64_t cols;
    int64_t n_matrices;    /* experts, or 1 */
    const double* sums;    /* (n_matrices, cols): squares of what the columns were multiplied by */
    const int64_t* counts; /* (n_matrices): rows that went in */
} hy3_collected;

/* Not while a step of the model runs. Fails when a sum is not a finite float32. */
size_t hy3_collector_count(const hy3_collector* collector);
hy3_status hy3_collector_entry(const hy3_collector* collector, size_t index, hy3_collected* out);

/* A file of `hy3 imatrix` or of llama.cpp, GGUF or the older format. Its entries come sorted by name. */
hy3_status hy3_imatrix_open(const char* path, hy3_imatrix** out);
void hy3_imatrix_free(hy3_imatrix* file);
size_t hy3_imatrix_count(const hy3_imatrix* file);
hy3_status hy3_imatrix_name(const hy3_imatrix* file, size_t index, hy3_str* out);
/* Calls `visit` with the name of each text that it was made of. */
hy3_status hy3_imatrix_datasets(const hy3_imatrix* file, void (*visit)(void* user, hy3_str name), void* user);
uint32_t hy3_imatrix_chunks(const hy3_imatrix* file); /* of those texts; 0: not known */
/* out (cols): the mean square of each column of one of the entry's n_matrices matrices, or with matrix -1
 * over the rows of all. *known is false, and out as it was, when there were no rows. Fails when the entry has
 * another size. */
hy3_status hy3_imatrix_mean_squares(const hy3_imatrix* file, size_t index, int64_t cols, int64_t n_matrices,
                                    int64_t matrix, float* out, bool* known);

#ifdef __cplusplus
}
#endif

#endif
