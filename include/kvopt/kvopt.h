/* kvopt's C interface: open, inspect, rewrite and verify ONNX decoders, and decode with them.
 *
 * Errors. A function that can fail returns `kvopt_error*`: null on success, otherwise an error that
 * the caller frees with kvopt_error_free. After an error, outputs are as they were before the call,
 * and objects are unchanged unless the function says otherwise. No function prints, installs signal
 * handlers, throws or ends the process.
 *
 * Memory. Where memory is exhausted, a call returns KVOPT_ERROR_OUT_OF_MEMORY. Calls that open,
 * analyze, rewrite, verify or save models hold 32 MiB of address space in reserve. If an allocation
 * fails, the call continues with the reserve up to a point where it can stop. A process that uses
 * up the reserve, too, before that point may crash. The static library has no reserve.
 *
 * Ownership. An object that a function creates is freed with the function `kvopt_<type>_free`,
 * which accepts null. Objects do not depend on each other's lifetimes: a model may be freed while
 * its sessions are in use. Arguments are borrowed for the duration of a call. Text that a `const
 * char*` function returns belongs to the object and lives as long as it does.
 *
 * Threads. Functions that take a `const` object may run concurrently on that object. Functions that
 * take a non-const object need it to themselves. Different objects are independent.
 *
 * Compatibility. Functions, enumerators and structs are only added. Structs that may grow start
 * with their size. KVOPT_ABI_VERSION changes when a program must be recompiled.
 */
#ifndef KVOPT_KVOPT_H
#define KVOPT_KVOPT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KVOPT_API __attribute__((visibility("default")))
#else
#define KVOPT_API
#endif

#define KVOPT_ABI_VERSION 0

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the library, as "0.1.0". */
KVOPT_API const char* kvopt_version(void);

/** KVOPT_ABI_VERSION of the library that is loaded. A program compares it with its own. */
KVOPT_API uint32_t kvopt_abi_version(void);

/* ---- Errors ---- */

/** Description of a failure. */
typedef struct kvopt_error kvopt_error;

/** What kind of failure an error describes. */
typedef enum kvopt_error_kind {
  KVOPT_ERROR_USAGE = 1,         /**< An argument or option is wrong. */
  KVOPT_ERROR_INVALID = 2,       /**< A model or file breaks the rules of its format. */
  KVOPT_ERROR_UNSUPPORTED = 3,   /**< Valid input that kvopt does not handle. */
  KVOPT_ERROR_IO = 4,            /**< The operating system refused to read or write. */
  KVOPT_ERROR_OUT_OF_MEMORY = 5, /**< Memory is exhausted. */
  KVOPT_ERROR_CANCELLED = 6,     /**< A progress callback asked to stop. */
  KVOPT_ERROR_CAPACITY = 7,      /**< The caches have no room for the tokens. */
  KVOPT_ERROR_REFUSED = 8,       /**< A rewrite that kvopt cannot prove; the code is the
                                    reason code. */
  KVOPT_ERROR_INTERNAL = 9       /**< A defect of kvopt. */
} kvopt_error_kind;

KVOPT_API kvopt_error_kind kvopt_error_get_kind(const kvopt_error* error);
/** Stable word for programs: the kind, as "usage" or "out_of_memory", or the reason code of a
 * refusal, as "no-window" (docs/reasons.md). */
KVOPT_API const char* kvopt_error_code(const kvopt_error* error);
/** One sentence, without the fields below. */
KVOPT_API const char* kvopt_error_message(const kvopt_error* error);
/** File, node, operator, value, and hint what to do; each is empty if it does not apply. */
KVOPT_API const char* kvopt_error_file(const kvopt_error* error);
KVOPT_API const char* kvopt_error_node(const kvopt_error* error);
KVOPT_API const char* kvopt_error_op(const kvopt_error* error);
KVOPT_API const char* kvopt_error_value(const kvopt_error* error);
KVOPT_API const char* kvopt_error_hint(const kvopt_error* error);
/** JSON of the refused rewrite or failed comparison, as `kvopt rewrite --format json` prints it;
 * empty for other errors. */
KVOPT_API const char* kvopt_error_report(const kvopt_error* error);
/** All of it on one line, escaped for a terminal. */
KVOPT_API const char* kvopt_error_text(const kvopt_error* error);
KVOPT_API void kvopt_error_free(kvopt_error* error);

/* ---- Options, text, progress ---- */

/** One option of a command, as `kvopt list options` prints it: {"--to", "ort"}. The leading dashes
 * may be omitted. Flags have the text "true" or "false". */
typedef struct kvopt_option {
  const char* name;
  const char* text;
} kvopt_option;

/** Bytes that kvopt allocated: JSON text, a serialized model. Null-terminated, without counting the
 * terminator. */
typedef struct kvopt_bytes kvopt_bytes;

KVOPT_API const char* kvopt_bytes_data(const kvopt_bytes* bytes);
KVOPT_API size_t kvopt_bytes_size(const kvopt_bytes* bytes);
KVOPT_API void kvopt_bytes_free(kvopt_bytes* bytes);

/** Receives progress of a call, and can cancel it. */
typedef struct kvopt_progress {
  /** sizeof(kvopt_progress). */
  size_t size;
  /** Called on the thread of the call, at most a few times a second. `what` names the work, and
   * `done` of `total` units are complete; `total` is 0 if it is not known. A result other than 0
   * cancels the call, which then fails with KVOPT_ERROR_CANCELLED and writes nothing. */
  int (*report)(void* user, const char* what, uint64_t done, uint64_t total);
  void* user;
} kvopt_progress;

/* ---- Models ---- */

/** An ONNX model, as a file or as bytes. It never changes. */
typedef struct kvopt_model kvopt_model;

/** Opens the file at `path` and checks it. External data is opened when it is needed, and must be
 * in the folder of the file. Options: --max-nodes. */
KVOPT_API kvopt_error* kvopt_model_open(const char* path, const kvopt_option* options,
                                        size_t option_count, kvopt_model** model);

/** The same for a serialized ModelProto of `size` bytes, which are copied. External data is in
 * `folder`; null: the model must not have any. */
KVOPT_API kvopt_error* kvopt_model_from_bytes(const void* data, size_t size, const char* folder,
                                              const kvopt_option* options, size_t option_count,
                                              kvopt_model** model);

/** Provides external data. Writes `size` bytes of the file `location` to `buffer`, from `offset`
 * on, and returns how many it wrote. A smaller number means that the file ends there, and a
 * negative one that it cannot be read. `location` is the model's own text: a relative path without
 * "..". */
typedef int64_t (*kvopt_read)(void* user, const char* location, uint64_t offset, void* buffer,
                              size_t size);

/** The same as kvopt_model_from_bytes with external data that `read` provides. The data is copied
 * into the model, which with it must have less than 2 GiB; larger models need a folder. Results
 * have the data inline, too.
 *
 * `read` is called on the thread of this call and not after it, once per tensor with external data,
 * with the size that the tensor's shape and type need. `user` is its first argument. Locations that
 * leave the model's folder, declared lengths that differ from that size, and models that are too
 * large are errors before the first call. A negative result is KVOPT_ERROR_IO; fewer bytes than
 * `size` are KVOPT_ERROR_INVALID. */
KVOPT_API kvopt_error* kvopt_model_from_reader(const void* data, size_t size, kvopt_read read,
                                               void* user, const kvopt_option* options,
                                               size_t option_count, kvopt_model** model);
KVOPT_API void kvopt_model_free(kvopt_model* model);

/* ---- Tensors ---- */

/** Borrowed tensor. */
typedef struct kvopt_tensor {
  void* data;
  /** TensorProto.DataType of ONNX: 1 float32, 7 int64, 10 float16, 16 bfloat16. */
  int32_t dtype;
  int32_t rank;
  /** `rank` extents. */
  const int64_t* shape;
  /** `rank` strides in elements, none negative; null: contiguous, the last axis densest. */
  const int64_t* strides;
} kvopt_tensor;

/** A tensor of the DLPack protocol, version 0 (dlpack/dlpack.h). */
struct DLManagedTensor;

/* ---- Inspect, rewrite, verify ---- */

/** Facts about every attention layer and cache as JSON, kvopt/inspect/1. */
KVOPT_API kvopt_error* kvopt_inspect(const kvopt_model* model, const kvopt_option* options,
                                     size_t option_count, const kvopt_progress* progress,
                                     kvopt_bytes** json);

/** How each attention layer was matched, or why it was missed, as JSON, kvopt/explain/1. Options,
 * as of `kvopt explain`: --to and the others that choose a form, --layer, --rule, --step-budget,
 * --disable. */
KVOPT_API kvopt_error* kvopt_explain(const kvopt_model* model, const kvopt_option* options,
                                     size_t option_count, const kvopt_progress* progress,
                                     kvopt_bytes** json);

/** A model in another form, with its manifest. */
typedef struct kvopt_result kvopt_result;

/** Rewrites a model. Options, as of `kvopt rewrite`: those that choose the form, --capacity,
 * --verify and others, without those that name files. A model that cannot be rewritten is an error
 * of kind KVOPT_ERROR_REFUSED, and so is one that does not compute the same after the rewrite. */
KVOPT_API kvopt_error* kvopt_rewrite(const kvopt_model* model, const kvopt_option* options,
                                     size_t option_count, const kvopt_progress* progress,
                                     kvopt_result** result);
/** Gives caches to a decoder that was exported without them. Options as of `kvopt add-cache`. */
KVOPT_API kvopt_error* kvopt_add_cache(const kvopt_model* model, const kvopt_option* options,
                                       size_t option_count, const kvopt_progress* progress,
                                       kvopt_result** result);
/** Gives symbols to the extents that an export fixed. Options as of `kvopt make-dynamic`. */
KVOPT_API kvopt_error* kvopt_make_dynamic(const kvopt_model* model, const kvopt_option* options,
                                          size_t option_count, const kvopt_progress* progress,
                                          kvopt_result** result);

/** 1 if the model had the form already and is returned as it was; 0 otherwise. */
KVOPT_API int kvopt_result_is_unchanged(const kvopt_result* result);
/** What changed and how it was verified, as JSON, kvopt/rewrite/1. */
KVOPT_API const char* kvopt_result_report(const kvopt_result* result);
/** How to drive the model's caches, as JSON (docs/manifest.md). */
KVOPT_API const char* kvopt_result_manifest(const kvopt_result* result);
/** The model as a serialized ModelProto. External data of the model that was rewritten is named,
 * not loaded; its names are relative to the same folder. Fails for a result of several files. */
KVOPT_API kvopt_error* kvopt_result_serialize(const kvopt_result* result, kvopt_bytes** model);
/** The same as a model, for sessions, verification and further rewrites. */
KVOPT_API kvopt_error* kvopt_result_model(const kvopt_result* result, kvopt_model** model);
/** Writes the model and the manifest beside it, together or not at all. No input is replaced.
 * Options, as of `kvopt rewrite`: --manifest, --genai-config, --external-data. */
KVOPT_API kvopt_error* kvopt_result_save(kvopt_result* result, const char* path,
                                         const kvopt_option* options, size_t option_count,
                                         const kvopt_progress* progress);
KVOPT_API void kvopt_result_free(kvopt_result* result);

/** Runs two models step by step and compares them. `equal` is 1 if no step differs, and `json` is
 * the report, kvopt/verify/1. `second` is null if the option --reference names recorded steps, or
 * data sets in ONNX's format, in place of a second model. Options, as of `kvopt verify`: --prompt,
 * --chunks, --steps, --batch, --pad, --depth, --atol, --rtol, --seed, --threads, --input,
 * --text-file, --token-file, --context, --reference. */
KVOPT_API kvopt_error* kvopt_verify(const kvopt_model* first, const kvopt_model* second,
                                    const kvopt_option* options, size_t option_count,
                                    const kvopt_progress* progress, int* equal, kvopt_bytes** json);

/** Checks that two models compute the same, without running them. `equal` is 1 if every output of
 * `after` is proved equal, and `json` is the report, kvopt/check/1, which has the verdict. Options,
 * as of `kvopt check`: --seed, --allow-tested, --counterexample. The latter names a new or empty
 * folder for the smallest step in which an output differs: the inputs, and the outputs of `before`.
 * `json` then has `replay`, and kvopt_verify(after, NULL, …) with the folder as --reference repeats
 * the comparison in floats. Without a difference, nothing is written. */
KVOPT_API kvopt_error* kvopt_check(const kvopt_model* before, const kvopt_model* after,
                                   const kvopt_option* options, size_t option_count,
                                   const kvopt_progress* progress, int* equal, kvopt_bytes** json);

/** What changed between two models as JSON, kvopt/diff/1. */
KVOPT_API kvopt_error* kvopt_diff(const kvopt_model* first, const kvopt_model* second,
                                  const kvopt_option* options, size_t option_count,
                                  const kvopt_progress* progress, kvopt_bytes** json);

/* ---- Sessions ---- */

/** A batch of sequences with their caches, decoded by kvopt's runtime. Calls need the session to
 * themselves; sessions of one model may run on several threads. */
typedef struct kvopt_session kvopt_session;

/** Creates a session of `batch` sequences without tokens. Options, as of `kvopt run`: --capacity,
 * --mode, --threads, --folded-constants-limit. */
KVOPT_API kvopt_error* kvopt_session_create(const kvopt_model* model, int64_t batch,
                                            const kvopt_option* options, size_t option_count,
                                            kvopt_session** session);
KVOPT_API void kvopt_session_free(kvopt_session* session);

/** Appends `count` tokens to every sequence and computes the outputs. `tokens` is [batch, count],
 * row-major. Masks, positions and lengths are fed as the model's manifest says. `count` may differ
 * from call to call: a prompt, a chunk of it, or one token. */
KVOPT_API kvopt_error* kvopt_session_feed(kvopt_session* session, const int64_t* tokens,
                                          int64_t count);

/** Appends `new_tokens` tokens to every sequence, with inputs that the caller makes: every input of
 * the model that is neither a cache nor a length of the manifest. */
KVOPT_API kvopt_error* kvopt_session_step(kvopt_session* session, const char* const* names,
                                          const kvopt_tensor* inputs, size_t input_count,
                                          int64_t new_tokens);

/** The same with DLPack tensors in the CPU's memory, which stay the caller's. */
KVOPT_API kvopt_error* kvopt_session_step_dlpack(kvopt_session* session, const char* const* names,
                                                 struct DLManagedTensor* const* inputs,
                                                 size_t input_count, int64_t new_tokens);

/** Number of outputs of the latest step, without caches; 0 before the first step. */
KVOPT_API size_t kvopt_session_output_count(const kvopt_session* session);
/** Name of an output; null for an index out of range. */
KVOPT_API const char* kvopt_session_output_name(const kvopt_session* session, size_t index);
/** An output of the latest step, which lives until the next call that changes the session. */
KVOPT_API kvopt_error* kvopt_session_output(const kvopt_session* session, size_t index,
                                            kvopt_tensor* output);
/** The same as a DLPack tensor that keeps the memory alive until its deleter is called, also after
 * further steps and after the session is freed. Nothing is copied. */
KVOPT_API kvopt_error* kvopt_session_output_dlpack(const kvopt_session* session, size_t index,
                                                   struct DLManagedTensor** output);

/** Chooses the next token of sequence `row` from the latest scores. Options, as of `kvopt run`:
 * --temperature, --top-k, --top-p, --seed; without any, the most likely token. */
KVOPT_API kvopt_error* kvopt_session_choose(const kvopt_session* session, int64_t row,
                                            const kvopt_option* options, size_t option_count,
                                            int64_t* token);

/** Number of valid tokens of the longest sequence. */
KVOPT_API int64_t kvopt_session_length(const kvopt_session* session);
/** Number of tokens that the caches have room for; INT64_MAX if they grow with every step. */
KVOPT_API int64_t kvopt_session_capacity(const kvopt_session* session);
KVOPT_API int64_t kvopt_session_batch(const kvopt_session* session);

/** Keeps the first `tokens` tokens of every sequence. */
KVOPT_API kvopt_error* kvopt_session_crop(kvopt_session* session, int64_t tokens);
/** Drops `dropped` tokens after the first `kept` and moves later ones forward, with the rotations
 * of their new positions. */
KVOPT_API kvopt_error* kvopt_session_shift(kvopt_session* session, int64_t kept, int64_t dropped);
/** Drops all tokens. */
KVOPT_API kvopt_error* kvopt_session_reset(kvopt_session* session);
/** Creates a session that continues from the same tokens, independently. Without any outputs. */
KVOPT_API kvopt_error* kvopt_session_fork(const kvopt_session* session, kvopt_session** fork);
/** Sequence i becomes what sequence rows[i] was. Rows may be repeated or left out. */
KVOPT_API kvopt_error* kvopt_session_reorder(kvopt_session* session, const int64_t* rows,
                                             size_t row_count);
/** Replaces the contents of the caches by `tokens` tokens. `names` are past inputs of the model as
 * it was exported, and each tensor has a row for each token. */
KVOPT_API kvopt_error* kvopt_session_seed(kvopt_session* session, const char* const* names,
                                          const kvopt_tensor* caches, size_t cache_count,
                                          int64_t tokens);
/** The same with DLPack tensors in the CPU's memory, which stay the caller's. */
KVOPT_API kvopt_error* kvopt_session_seed_dlpack(kvopt_session* session, const char* const* names,
                                                 struct DLManagedTensor* const* caches,
                                                 size_t cache_count, int64_t tokens);
/** Writes the valid rows of all caches to a file, which appears whole or not at all. */
KVOPT_API kvopt_error* kvopt_session_save(const kvopt_session* session, const char* path);
/** Continues from a saved file of the same model and batch size. */
KVOPT_API kvopt_error* kvopt_session_load(kvopt_session* session, const char* path);

/** Number of caches. */
KVOPT_API size_t kvopt_session_cache_count(const kvopt_session* session);
/** Name of the past input of a cache; null for an index out of range. */
KVOPT_API const char* kvopt_session_cache_name(const kvopt_session* session, size_t index);
/** Valid rows of a cache, with the axes of the model as it was exported, as a DLPack tensor. The
 * memory is the session's: rows change with the next step. Rows in blocks are copied. */
KVOPT_API kvopt_error* kvopt_session_cache_dlpack(const kvopt_session* session, size_t index,
                                                  struct DLManagedTensor** rows);

/** Counters of the session as JSON: steps, bytes of caches written, copied and moved, most
 * temporary memory of a step. `remark` is there if what an input is fed may be wrong: short runs
 * did not decide it. */
KVOPT_API kvopt_error* kvopt_session_statistics(const kvopt_session* session, kvopt_bytes** json);

#ifdef __cplusplus
}
#endif

#endif
