// Session: drives a model step by step as its manifest says, and owns the caches.
#pragma once

#include "runtime/session/cache_state.h"
#include "runtime/session/session_options.h"
#include "runtime/session/step_result.h"
#include "runtime/session/step_runner.h"

namespace kvopt::runtime {

/// A batch of sequences. Caches are the session's: growing ones are handed from step to step,
/// shared buffers stay where they are, and static ones and states, which the model writes itself,
/// start as zeros. Caches in blocks take them from a pool as they grow; where the blocks have fixed
/// extents, each step runs the smallest variant of the model that has room for the tokens there
/// are, made ready when it is first needed. Of a model in pieces, a step runs those, with a loop
/// over the blocks that hold tokens, and never the model itself. Cross-attention caches are inputs
/// that the caller gives with every step. A model without caches gets whole sequences.
///
/// Sessions share nothing that changes but a pool of blocks, which is locked: any number may run,
/// each on one thread. The model and kernels must outlive them and must not change.
///
/// Whatever fails leaves the session as it was, unless stated otherwise.
///
/// A StepRunner takes the steps, and a CacheState keeps what the caches hold between them.
class Session {
public:
  /// Fails for the contract that it does not drive (stateful), for a manifest that does not
  /// fit the model, and where Executor::create fails.
  static llvm::Expected<std::unique_ptr<Session>> create(const ir::Model& model,
                                                         const KernelRegistry& kernels,
                                                         const ir::Manifest& manifest,
                                                         const SessionOptions& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Runs the model on `newTokens` tokens a row after the earlier ones. `inputs` are all graph
  /// inputs but caches and lengths; lengths that are among them come before what the manifest says.
  /// A CapacityError where the new tokens exceed a fixed capacity.
  /// Where the manifest names an input that reorders batch rows, that is done first, and stays done
  /// where the step then fails.
  llvm::Expected<StepResult> step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens);
  /// The same into `result`, whose storage is used again: with the result of the step before,
  /// decoding with caches in place allocates nothing. Its former tensors stay until the step is
  /// over, so that inputs may be views of them. After an error `result` is as before.
  llvm::Error step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens, StepResult& result);

  /// Valid tokens in the caches: of the longest batch row, and of each.
  int64_t length() const { return state.length(); }
  llvm::ArrayRef<int64_t> rowLengths() const { return state.rowLengths(); }
  /// Tokens there is room for; INT64_MAX where caches grow with every step.
  int64_t capacity() const { return state.capacity(); }
  /// The most tokens that the next step may have; INT64_MAX where there is no limit but the
  /// capacity.
  int64_t mostStepTokens() const { return steps->mostStepTokens(); }
  /// A CapacityError where so many tokens more do not fit, and cannot be made to fit.
  llvm::Error checkRoom(int64_t newTokens) const { return state.checkRoom(newTokens); }
  int64_t batch() const { return state.batch(); }

  /// Keeps the first `tokens` tokens of every row, as if there had never been more; rows that have
  /// fewer stay. Fails where no row has as many, and for caches that do not hold what they were
  /// before (states, and rings that have dropped a row), unless nothing or everything is kept.
  llvm::Error crop(int64_t tokens) { return state.crop(tokens); }
  /// The same with a number for each row, none more than it has: to drop what a batch was padded
  /// with on the right, or drafts that were refused. Unequal lengths need a model that is told the
  /// length of each row; see hasLengthPerRow().
  llvm::Error cropRows(llvm::ArrayRef<int64_t> tokens) { return state.cropRows(tokens); }
  /// Whether batch rows may be of different lengths: every cache is a shared buffer, and every
  /// length is fed to the model per row (or is the longest row's total).
  bool hasLengthPerRow() const { return state.hasLengthPerRow(); }
  /// Drops the tokens [keptFirst, keptFirst + dropped) of every batch row and moves the later ones
  /// forward, so that each has the position of its new place: cached rows that positions rotate are
  /// rotated back by `dropped` positions. The next step is fed the session's length as its past.
  /// Rows of the first layer are then those of a session that has never seen the dropped tokens;
  /// rows of deeper layers were computed with them in sight. See checkShift() for what is refused.
  llvm::Error shift(int64_t keptFirst, int64_t dropped) { return state.shift(keptFirst, dropped); }
  /// Why no tokens can be dropped from the middle of this session: its manifest does not say what
  /// positions do to cached rows (Manifest::rotations), or a cache has no row for each token.
  llvm::Error checkShift() const { return state.checkShift(); }
  /// Tokens at the start whose rows are those of a session that has seen no others: INT64_MAX
  /// unless tokens were dropped behind them.
  int64_t intactTokens() const { return state.intactTokens(); }
  /// Back to length 0.
  llvm::Error reset() { return state.reset(); }
  /// Puts `tokens` made-up tokens into the caches, in place of all that they hold: numbers in
  /// [-1, 1] that 16 bits hold exactly and that depend on the cache's name and the element's place
  /// in the exported order. Rings hold the last of these rows and static caches the first, as after
  /// as many steps. States are zeros. Fails for caches of other numbers than floating-point ones,
  /// for caches of rows as attention reads them, for rings that the model itself writes, and where
  /// the tokens do not fit.
  llvm::Error preset(int64_t tokens) { return state.preset(tokens); }
  /// Replaces what caches hold, so that the session continues after `tokens` tokens.
  /// Each view has the name of a cache's past, or of the cache of that model that it is a part of,
  /// and the extents and axes of the model before it was rewritten (exportedCacheRows of any
  /// session of it): a row for each token; of a ring the last ones, at least as many as attention
  /// reads; of other caches of fixed extents all rows. Every cache must be given, unless the
  /// session holds `tokens` tokens already. A usage error names a cache that is unknown, missing,
  /// or of another type. Rows of int8 come with their scales, as caches of their own.
  /// Caches of rows as attention reads them (ManifestCache::holdsAttendedRows) take only those of
  /// this model.
  llvm::Error seed(llvm::ArrayRef<NamedView> seeds, int64_t tokens,
                   RowOrigin origin = RowOrigin::AnyModel) {
    return state.seed(seeds, tokens, origin);
  }

  /// A session of its own that goes on from here. Of a frozen session, one that is frozen too and
  /// shares its memory until it is thawed.
  llvm::Expected<std::unique_ptr<Session>> fork() const;
  /// Batch row i becomes what row `rows[i]` was; rows may be repeated and left out, so that the
  /// batch size may change where the model's is open. What the caller feeds (cross-attention
  /// caches, masks) it has to rearrange itself.
  llvm::Error reorder(llvm::ArrayRef<int64_t> rows) { return state.reorder(rows); }

  /// Gives back all memory but that of valid rows: what caches have room for, and what is kept for
  /// the next step. Until `thaw`, a frozen session can only be read, saved and forked.
  llvm::Error freeze();
  llvm::Error thaw() { return state.thaw(); }
  bool isFrozen() const { return state.isFrozen(); }

  /// Writes the valid rows of all caches to a file (docs/cache-file.md), which appears whole or not
  /// at all. Nothing else is kept: neither what the caller feeds nor options. The file is an output
  /// of `access`; it is not one that the model consists of.
  llvm::Error save(const std::string& path, FileAccess& access) const {
    return state.save(path, access);
  }
  /// The same for a program that reads and writes nothing else.
  llvm::Error save(const std::string& path) const;
  /// Goes on from a saved state of the same model, driven in the same way, with the same batch
  /// size. Errors say what does not fit, or where the file is damaged.
  llvm::Error load(const std::string& path) { return state.load(path); }
  /// What recognizes the model in files; computed when it is first needed.
  const ModelFingerprint& fingerprint() const { return state.fingerprint(); }

  /// The caches by themselves.
  CacheState& caches() { return state; }
  const CacheState& caches() const { return state; }
  size_t cacheCount() const { return state.size(); }
  const ir::ManifestCache& cacheInfo(size_t index) const { return state.info(index); }
  const ir::Manifest& manifest() const { return description; }
  /// The valid rows of a cache, strided; all of a cache that the model itself keeps in place. A
  /// view, which is overwritten or invalid after the next step, unless the rows are in blocks:
  /// those are copied. Where rows are of different lengths, what shorter ones hold beyond theirs
  /// means nothing.
  llvm::Expected<Tensor> cacheRows(size_t index) const { return state.rows(index); }
  /// The same with its axes in the order of the model before it was rewritten; and which of them is
  /// the sequence's.
  llvm::Expected<Tensor> exportedCacheRows(size_t index) const { return state.exportedRows(index); }
  unsigned exportedSequenceAxis(size_t index) const { return state.exportedSequenceAxis(index); }
  /// The axis with one entry a batch row, in the same order; nullopt where there is none.
  std::optional<unsigned> exportedBatchAxis(size_t index) const {
    return state.exportedBatchAxis(index);
  }
  /// The whole memory of a cache.
  TensorView cacheBuffer(size_t index) const { return state.set().buffer(index); }
  /// Bytes that all caches have room for, touched or not; of blocks, with those that forks hold and
  /// those kept warm.
  int64_t cacheBytes() const { return state.set().bytes(); }
  /// The blocks that hold the tokens, where caches are in blocks; null otherwise.
  const BlockTable* blocks() const { return state.set().blocks(); }
  /// The variants of the model, of which the last is the model itself; empty without any.
  const Pyramid& variants() const { return steps->model().variants(); }
  /// Which of them took the latest step; that of none is the last.
  size_t latestVariant() const { return steps->model().latestVariant(); }

  /// Graph inputs that a caller must give.
  llvm::ArrayRef<const ir::Value*> callerInputs() const { return steps->callerInputs(); }
  const ir::Graph& graph() const { return steps->model().graph(); }
  /// The file that the model was read from; empty for one that was not.
  llvm::StringRef modelPath() const { return model.path; }
  const SessionStatistics& statistics() const { return steps->statistics(); }
  const std::shared_ptr<Allocator>& allocator() const { return options.allocator; }

private:
  Session(const ir::Model& sessionModel, const KernelRegistry& sessionKernels,
          const ir::Manifest& manifest, const SessionOptions& sessionOptions);
  /// `like` is a session of the same model whose constants are used; null: the session has its own.
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
