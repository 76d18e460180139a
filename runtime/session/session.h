// Session: runs a model step by step according to its manifest, and owns the caches.
#pragma once

#include "runtime/session/cache_state.h"
#include "runtime/session/session_options.h"
#include "runtime/session/step_result.h"
#include "runtime/session/step_runner.h"

namespace kvopt::runtime {

/// A batch of sequences. The session owns the caches. Growing caches are passed from step to step,
/// shared buffers stay in place, and static caches and states, which the model updates itself, are
/// initially zero. Caches in blocks allocate them from a pool; if the blocks have fixed extents,
/// each step runs the smallest variant of the model with room for the current tokens, which is
/// prepared on first use. For a model in pieces, a step runs the pieces with a loop over the blocks
/// that hold tokens, and never the whole model. Cross-attention caches are inputs that the caller
/// provides with every step. A model without caches receives whole sequences.
///
/// Sessions share no mutable state except a pool of blocks, which has a lock: any number of them
/// may run, each on one thread. The model and kernels must outlive them and must not change.
///
/// An operation that fails leaves the session unchanged, unless stated otherwise.
///
/// A StepRunner runs the steps, and a CacheState keeps the caches between them.
class Session {
public:
  /// Fails for an unsupported way to drive the model (stateful), if the manifest does not fit the
  /// model, and if Executor::create fails.
  static llvm::Expected<std::unique_ptr<Session>> create(const ir::Model& model,
                                                         const KernelRegistry& kernels,
                                                         const ir::Manifest& manifest,
                                                         const SessionOptions& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Runs the model on `newTokens` tokens per row after the earlier ones. `inputs` are all graph
  /// inputs except caches and lengths; lengths in `inputs` replace those from the manifest. A
  /// CapacityError if the new tokens exceed a fixed capacity. If the manifest names an input that
  /// reorders batch rows, rows are reordered first, and stay so if the step then fails.
  llvm::Expected<StepResult> step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens);
  /// The same into `result`, whose storage is reused: with the result of the previous step,
  /// decoding with caches in place does not allocate memory. Its previous tensors live until the
  /// end of the step, so inputs may be views of them. After an error, `result` is unchanged.
  llvm::Error step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens, StepResult& result);

  /// Number of valid tokens in the caches: of the longest batch row, and of each.
  int64_t length() const { return state.length(); }
  llvm::ArrayRef<int64_t> rowLengths() const { return state.rowLengths(); }
  /// Capacity in tokens; INT64_MAX if caches grow with every step.
  int64_t capacity() const { return state.capacity(); }
  /// Maximum number of tokens of the next step; INT64_MAX if only the capacity limits it.
  int64_t mostStepTokens() const { return steps->mostStepTokens(); }
  /// A CapacityError if `newTokens` more tokens do not fit, even after growth.
  llvm::Error checkRoom(int64_t newTokens) const { return state.checkRoom(newTokens); }
  int64_t batch() const { return state.batch(); }

  /// Keeps the first `tokens` tokens of every row, as if there had never been more; shorter rows
  /// are unchanged. Fails if no row has that many, and for caches that have lost earlier contents
  /// (states, and rings that have dropped a row), unless nothing or everything is kept.
  llvm::Error crop(int64_t tokens) { return state.crop(tokens); }
  /// The same with a number for each row, at most its length: removes right padding of a batch, or
  /// drafts that were rejected. Different lengths require a model with the length of each row as an
  /// input; see hasLengthPerRow().
  llvm::Error cropRows(llvm::ArrayRef<int64_t> tokens) { return state.cropRows(tokens); }
  /// Whether batch rows may have different lengths: every cache is a shared buffer, and every
  /// length is fed to the model per row (or is the longest row's total).
  bool hasLengthPerRow() const { return state.hasLengthPerRow(); }
  /// Drops the tokens [keptFirst, keptFirst + dropped) of every batch row and moves the later ones
  /// forward to their new positions: cached rows that depend on rotations are rotated back by
  /// `dropped` positions. The past of the next step is the session's new length. Rows of the first
  /// layer are then equal to those of a session that has never seen the dropped tokens; rows of
  /// deeper layers were computed with them visible. checkShift() gives the restrictions.
  llvm::Error shift(int64_t keptFirst, int64_t dropped) { return state.shift(keptFirst, dropped); }
  /// An error with the reason that tokens cannot be dropped from the middle: the manifest does not
  /// describe the effect of positions on cached rows (Manifest::rotations), or a cache does not
  /// have a row for each token.
  llvm::Error checkShift() const { return state.checkShift(); }
  /// Number of tokens at the start whose rows are equal to those of a session without other tokens;
  /// INT64_MAX unless tokens after them were dropped.
  int64_t intactTokens() const { return state.intactTokens(); }
  /// Resets the length to 0.
  llvm::Error reset() { return state.reset(); }
  /// Replaces all contents of the caches by `tokens` synthetic tokens: numbers in [-1, 1] that 16
  /// bits represent exactly and that depend on the cache's name and the element's position in the
  /// exported order. As after that many steps, rings hold the last of these rows and static caches
  /// the first. States are zeros. Fails for caches of other than floating-point numbers, for caches
  /// of rows as attention reads them, for rings that the model itself writes, and if the tokens do
  /// not fit.
  llvm::Error preset(int64_t tokens) { return state.preset(tokens); }
  /// Replaces the contents of caches, so that the session continues after `tokens` tokens. Each
  /// view has the name of a cache's past, or of the exported model's cache that contains it, and
  /// the extents and axes of the exported model (exportedCacheRows of any session of it): one row
  /// for each token; for a ring the last ones, at least those that attention reads; for other
  /// caches of fixed extents all rows. Every cache must be given, unless the session already holds
  /// `tokens` tokens. A usage error names a cache that is unknown, missing, or of another type.
  /// Int8 rows require their scales, which are separate caches. Caches of rows as attention reads
  /// them (ManifestCache::holdsAttendedRows) accept only rows of this model.
  llvm::Error seed(llvm::ArrayRef<NamedView> seeds, int64_t tokens,
                   SeedOrigin origin = SeedOrigin::AnyModel) {
    return state.seed(seeds, tokens, origin);
  }

  /// An independent session that continues from here. A fork of a frozen session is frozen, too,
  /// and shares its memory until it is thawed.
  llvm::Expected<std::unique_ptr<Session>> fork() const;
  /// Makes batch row i a copy of row `rows[i]`. Rows may be repeated and omitted, so the batch size
  /// may change if the model's is symbolic. The caller must reorder its own inputs (cross-attention
  /// caches, masks).
  llvm::Error reorder(llvm::ArrayRef<int64_t> rows) { return state.reorder(rows); }

  /// Releases all memory except valid rows: unused capacity, and memory kept for the next step.
  /// Until `thaw`, a frozen session can only be read, saved and forked.
  llvm::Error freeze();
  llvm::Error thaw() { return state.thaw(); }
  bool isFrozen() const { return state.isFrozen(); }

  /// Writes the valid rows of all caches to a file (docs/cache-file.md), which appears completely
  /// or not at all. Inputs of the caller and options are not saved. The file is an output of
  /// `access`; it must not belong to the model.
  llvm::Error save(const std::string& path, FileAccess& access) const {
    return state.save(path, access);
  }
  /// The same for a program that reads and writes no other files.
  llvm::Error save(const std::string& path) const;
  /// Continues from a saved state of the same model, with the same driver and the same batch size.
  /// Errors describe what does not fit, or where the file is damaged.
  llvm::Error load(const std::string& path) { return state.load(path); }
  /// Identifier of the model in files; computed on first use.
  const ModelFingerprint& fingerprint() const { return state.fingerprint(); }

  /// The caches without the steps.
  CacheState& caches() { return state; }
  const CacheState& caches() const { return state; }
  size_t cacheCount() const { return state.size(); }
  const ir::ManifestCache& cacheInfo(size_t index) const { return state.info(index); }
  const ir::Manifest& manifest() const { return description; }
  /// Valid rows of a cache, strided; all rows of a cache that the model itself keeps in place. The
  /// result is a view, which the next step overwrites or invalidates, or a copy if the rows are in
  /// blocks. If batch rows have different lengths, the contents after the end of shorter ones are
  /// undefined.
  llvm::Expected<Tensor> cacheRows(size_t index) const { return state.rows(index); }
  /// The same with the axes of the exported model, and the index of the sequence axis.
  llvm::Expected<Tensor> exportedCacheRows(size_t index) const { return state.exportedRows(index); }
  unsigned exportedSequenceAxis(size_t index) const { return state.exportedSequenceAxis(index); }
  /// Axis of batch rows in the same order; nullopt if there is none.
  std::optional<unsigned> exportedBatchAxis(size_t index) const {
    return state.exportedBatchAxis(index);
  }
  /// Whole memory of a cache.
  TensorView cacheBuffer(size_t index) const { return state.set().buffer(index); }
  /// Capacity of all caches in bytes, whether pages are resident or not; for blocks, including
  /// those of forks and free ones with memory.
  int64_t cacheBytes() const { return state.set().bytes(); }
  /// Blocks with the tokens, if caches are in blocks; null otherwise.
  const BlockTable* blocks() const { return state.set().blocks(); }
  /// Variants of the model; the last one is the model itself. Empty without variants.
  const Pyramid& variants() const { return steps->model().variants(); }
  /// Index of the variant that ran the latest step; the last one if there was no step.
  size_t latestVariant() const { return steps->model().latestVariant(); }

  /// Graph inputs that a caller must provide.
  llvm::ArrayRef<const ir::Value*> callerInputs() const { return steps->callerInputs(); }
  const ir::Graph& graph() const { return steps->model().graph(); }
  /// File from which the model was read; empty if there is none.
  llvm::StringRef modelPath() const { return model.path; }
  const SessionStatistics& statistics() const { return steps->statistics(); }
  const std::shared_ptr<Allocator>& allocator() const { return options.allocator; }

private:
  Session(const ir::Model& sessionModel, const KernelRegistry& sessionKernels,
          const ir::Manifest& manifest, const SessionOptions& sessionOptions);
  /// The constants of `like`, a session of the same model, are shared; null: separate constants.
  llvm::Error startSteps(const Session* like);
  llvm::Error start();

  const ir::Model& model;
  const KernelRegistry& kernels;
  ir::Manifest description;
  SessionOptions options; ///< with a pool and an allocator
  CacheState state;
  std::unique_ptr<StepRunner> steps;
};

} // namespace kvopt::runtime
