// Session: drives a model step by step as its manifest says, and owns the caches.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/cache/cache_set.h"
#include "runtime/exec/executor.h"
#include "runtime/session/cut_decoder.h"
#include "runtime/session/pyramid.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <string>

namespace kvopt {
class FileAccess;
} // namespace kvopt

namespace kvopt::runtime {

struct SessionOptions {
  enum class Mode {
    AsManifest, ///< A shared buffer has a fixed capacity; exceeding it is an error.
    Stateful,   ///< A shared buffer grows geometrically as far as the manifest allows.
  };
  Mode mode = Mode::AsManifest;
  /// Tokens a shared buffer, or a static cache whose extent is open, has room for; 0 takes the
  /// manifest's capacity or, in Stateful mode, a small one.
  int64_t capacity = 0;
  int64_t batch = 1;
  /// As in ExecutorOptions. A session without a pool makes one, which its forks use too.
  unsigned threads = 0;
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<Allocator> allocator;
  bool timeOperators = false;
  /// As in ExecutorOptions; forks use the constants of the session they come from.
  int64_t foldedConstantsLimit = -1;
  /// Of a model with caches in blocks: how many the session and its forks may hold together; 0: as
  /// many as they need.
  int64_t blockLimit = 0;
  /// Fill fresh shared buffers and blocks with NaN instead of zeros, and blocks of fixed extents,
  /// which are read whole, with large numbers: nothing may depend on unwritten rows.
  bool poison = false;
  /// Of a model that comes in variants, or in pieces: where those are; null: the files that the
  /// manifest names, in the model's folder. Shared with forks.
  std::shared_ptr<VariantSource> variants;
};

/// Tokens do not fit into caches of a fixed capacity.
class CapacityError : public llvm::ErrorInfo<CapacityError, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<CapacityError, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct StepResult {
  /// Every graph output that is no cache, in order.
  std::vector<NamedTensor> outputs;
  const Tensor* find(llvm::StringRef name) const;
};

/// Accumulated over the steps of a session.
struct SessionStatistics {
  int64_t steps = 0;
  int64_t cacheReallocations = 0;
  int64_t inPlaceBytesCopied = 0;
  int64_t cacheBytesWritten = 0;
  int64_t cacheBytesMoved = 0; ///< by growth that copies
  /// Earlier rows that came back in other memory than they were given in. States aside.
  int64_t pastBytesCopied = 0;
  /// Of caches in blocks, within cacheBytesWritten: what was copied into them. Chunks that fill
  /// whole blocks are not.
  int64_t blockBytesCopied = 0;
  /// The most of RunStatistics::temporaryPeak over the steps.
  int64_t temporaryPeak = 0;
  RunStatistics lastRun;
};

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
  int64_t length() const { return caches.length(); }
  llvm::ArrayRef<int64_t> rowLengths() const { return caches.lengths(); }
  /// Tokens there is room for; INT64_MAX where caches grow with every step.
  int64_t capacity() const { return std::min(caches.room(), caches.staticRoom()); }
  /// The most tokens that the next step may have; INT64_MAX where there is no limit but the
  /// capacity.
  int64_t mostStepTokens() const;
  /// A CapacityError where so many tokens more do not fit, and cannot be made to fit.
  llvm::Error checkRoom(int64_t newTokens) const;
  int64_t batch() const { return caches.batch(); }

  /// Keeps the first `tokens` tokens of every row, as if there had never been more; rows that have
  /// fewer stay. Fails where no row has as many, and for caches that do not hold what they were
  /// before (states, and rings that have dropped a row), unless nothing or everything is kept.
  llvm::Error crop(int64_t tokens);
  /// The same with a number for each row, none more than it has: to drop what a batch was padded
  /// with on the right, or drafts that were refused. Unequal lengths need a model that is told the
  /// length of each row; see hasLengthPerRow().
  llvm::Error cropRows(llvm::ArrayRef<int64_t> tokens);
  /// Whether batch rows may be of different lengths: every cache is a shared buffer, and every
  /// length is fed to the model per row (or is the longest row's total).
  bool hasLengthPerRow() const { return lengthPerRowObstacle.empty(); }
  /// Drops the tokens [keptFirst, keptFirst + dropped) of every batch row and moves the later ones
  /// forward, so that each has the position of its new place: cached rows that positions rotate are
  /// rotated back by `dropped` positions. The next step is fed the session's length as its past.
  /// Rows of the first layer are then those of a session that has never seen the dropped tokens;
  /// rows of deeper layers were computed with them in sight. See checkShift() for what is refused.
  llvm::Error shift(int64_t keptFirst, int64_t dropped);
  /// Why no tokens can be dropped from the middle of this session: its manifest does not say what
  /// positions do to cached rows (Manifest::rotations), or a cache has no row for each token.
  llvm::Error checkShift() const;
  /// Tokens at the start whose rows are those of a session that has seen no others: INT64_MAX
  /// unless tokens were dropped behind them.
  int64_t intactTokens() const { return intact; }
  /// Back to length 0.
  llvm::Error reset();
  /// Puts `tokens` made-up tokens into the caches, in place of all that they hold: numbers in
  /// [-1, 1] that 16 bits hold exactly and that depend on the cache's name and the element's place
  /// in the exported order. Rings hold the last of these rows and static caches the first, as after
  /// as many steps. States are zeros. Fails for caches of other numbers than floating-point ones,
  /// for caches of rows as attention reads them, for rings that the model itself writes, and where
  /// the tokens do not fit.
  llvm::Error preset(int64_t tokens);
  /// Where rows that a session is seeded with come from.
  enum class RowOrigin {
    AnyModel, ///< the exported model, or one that was made of it
    ThisModel ///< this very model
  };
  /// Replaces what caches hold, so that the session continues after `tokens` tokens.
  /// Each view has the name of a cache's past, or of the cache of that model that it is a part of,
  /// and the extents and axes of the model before it was rewritten (exportedCacheView of any
  /// session of it): a row for each token; of a ring the last ones, at least as many as attention
  /// reads; of other caches of fixed extents all rows. Every cache must be given, unless the
  /// session holds `tokens` tokens already. A usage error names a cache that is unknown, missing,
  /// or of another type. Rows of int8 come with their scales, as caches of their own.
  /// Caches of rows as attention reads them (ManifestCache::holdsAttendedRows) take only those of
  /// this model.
  llvm::Error seed(llvm::ArrayRef<NamedView> seeds, int64_t tokens,
                   RowOrigin origin = RowOrigin::AnyModel);

  /// A session of its own that goes on from here. Of a frozen session, one that is frozen too and
  /// shares its memory until it is thawed.
  llvm::Expected<std::unique_ptr<Session>> fork() const;
  /// Batch row i becomes what row `rows[i]` was; rows may be repeated and left out, so that the
  /// batch size may change where the model's is open. What the caller feeds (cross-attention
  /// caches, masks) it has to rearrange itself.
  llvm::Error reorder(llvm::ArrayRef<int64_t> rows);

  /// Gives back all memory but that of valid rows: what caches have room for, and what is kept for
  /// the next step. Until `thaw`, a frozen session can only be read, saved and forked.
  llvm::Error freeze();
  llvm::Error thaw();
  bool isFrozen() const { return caches.isFrozen(); }

  /// Writes the valid rows of all caches to a file (docs/cache-file.md), which appears whole or not
  /// at all. Nothing else is kept: neither what the caller feeds nor options. The file is an output
  /// of `access`; it is not one that the model consists of.
  llvm::Error save(const std::string& path, FileAccess& access) const;
  /// The same for a program that reads and writes nothing else.
  llvm::Error save(const std::string& path) const;
  /// Goes on from a saved state of the same model, driven in the same way, with the same batch
  /// size. Errors say what does not fit, or where the file is damaged.
  llvm::Error load(const std::string& path);
  /// What recognizes the model in files; computed when it is first needed.
  const ModelFingerprint& fingerprint() const;

  size_t cacheCount() const { return caches.size(); }
  const ir::ManifestCache& cacheInfo(size_t index) const { return description.caches[index]; }
  const ir::Manifest& manifest() const { return description; }
  /// The valid region of a cache, strided; all of a cache that the model itself keeps in place. It
  /// is overwritten or invalid after the next step. Where rows are of different lengths, what
  /// shorter ones hold beyond theirs means nothing.
  TensorView cacheView(size_t index) const { return caches.view(index); }
  /// The same with its axes in the order of the model before it was rewritten; and which of them is
  /// the sequence's.
  TensorView exportedCacheView(size_t index) const;
  unsigned exportedSequenceAxis(size_t index) const;
  /// The axis with one entry a batch row, in the same order; nullopt where there is none.
  std::optional<unsigned> exportedBatchAxis(size_t index) const;
  /// The whole memory of a cache.
  TensorView cacheBuffer(size_t index) const { return caches.buffer(index); }
  /// Bytes that all caches have room for, touched or not; of blocks, with those that forks hold and
  /// those kept warm.
  int64_t cacheBytes() const { return caches.bytes(); }
  /// The blocks that hold the tokens, where caches are in blocks; null otherwise.
  const BlockTable* blocks() const { return caches.blocks(); }
  /// The variants of the model, of which the last is the model itself; empty without any.
  const Pyramid& variants() const { return pyramid; }
  /// Which of them took the latest step; that of none is the last.
  size_t latestVariant() const { return runningVariant; }

  /// Graph inputs that a caller must give.
  llvm::ArrayRef<const ir::Value*> callerInputs() const { return given; }
  const ir::Graph& graph() const { return executor ? executor->graph() : model.graph(); }
  /// The file that the model was read from; empty for one that was not.
  llvm::StringRef modelPath() const { return model.path; }
  const SessionStatistics& statistics() const { return counters; }
  const std::shared_ptr<Allocator>& allocator() const { return options.allocator; }

private:
  Session(const ir::Model& sessionModel, const KernelRegistry& sessionKernels,
          const ir::Manifest& manifest, const SessionOptions& sessionOptions);
  llvm::Error start();
  /// `like` is a session of the same model whose constants are used; null: the session has its own.
  llvm::Error startExecutor(const Session* like = nullptr);
  llvm::Error startVariants();
  llvm::Error startPieces(const Session* like);
  llvm::Expected<std::unique_ptr<Executor>> createExecutor(const ir::Model& executed,
                                                           const Executor* constantsOf) const;
  llvm::Error checkVariant(const ir::Graph& variant, int64_t blocks) const;
  llvm::Error chooseVariant();
  llvm::Error feedBlocks(size_t index);
  llvm::Error runModel();
  void dropMemory();
  llvm::Error checkInterface() const;
  llvm::Error checkBlocks(const ir::ManifestCache& cache, llvm::StringSet<>& names) const;
  llvm::Error findOutputs();
  void listInputs();
  void findLengthPerRowObstacle();
  llvm::Expected<int64_t> firstRoom() const;
  /// The least multiple of the blocks of pools that is at least `room`; without pools, `room`.
  int64_t wholeBlocks(int64_t room) const;
  llvm::Error checkPool(const ir::ManifestCache& cache) const;
  /// A cache that is a pool as the model has it: [blocks, block size, heads, width].
  TensorView poolView(size_t index) const;
  llvm::Error fillBlockTable(size_t index);
  /// Room that shared buffers must have, or get, for `tokens`; an error where they cannot.
  llvm::Expected<int64_t> roomFor(int64_t tokens) const;
  llvm::Expected<std::vector<Tensor>> lengthTensors(int64_t batch) const;
  llvm::Error fillLengths(int64_t newTokens);
  llvm::Error takeOrder(llvm::ArrayRef<NamedView> inputs);
  llvm::Error makeRoom(int64_t tokens);
  void replaceCache(size_t index, Tensor present);
  void noteRun();
  llvm::Error feedCaches();
  llvm::Error writeBlocks();
  /// Puts new rows that a model hands out behind those of the past.
  llvm::Error joinNewRows();
  void takeResult(StepResult& result);
  bool isLength(llvm::StringRef input) const;
  llvm::Error checkInputs(llvm::ArrayRef<NamedView> inputs, int64_t newTokens) const;
  llvm::Error checkPresents(llvm::ArrayRef<Tensor> outputs, int64_t newTokens) const;
  llvm::Error checkRunning() const;
  /// Replaces all that the caches hold.
  llvm::Error restoreRows(const CacheFileContents& contents, int64_t room);
  llvm::Error adopt(const CacheFileContents& contents);
  llvm::Expected<Tensor> presetRows(size_t index, int64_t tokens) const;
  /// Notes the view as what the cache of that name, or each part of it, is seeded with.
  llvm::Error findSeeded(const NamedView& view, RowOrigin origin,
                         std::vector<std::optional<TensorView>>& sources) const;
  llvm::Expected<Tensor> seededRows(size_t index, const TensorView& exported, int64_t tokens) const;
  bool isOverwritten(size_t cache) const { return caches.geometry(cache).isOverwritten; }
  bool hasShared() const;

  const ir::Model& model;
  const KernelRegistry& kernels;
  ir::Manifest description;
  SessionOptions options;
  /// Of the model, and null where it is run in pieces.
  std::unique_ptr<Executor> executor;
  std::unique_ptr<CutDecoder> pieces;
  Pyramid pyramid;
  /// By variant; null for the last, and for those that no step has needed.
  std::vector<std::unique_ptr<Executor>> variantExecutors;
  Executor* running = nullptr; ///< the one of the latest step; null as `executor` is
  size_t runningVariant = 0;
  CacheSet caches;
  std::vector<Tensor> lengths;          ///< one for each of the manifest's
  std::vector<const ir::Value*> given;  ///< inputs that are the caller's
  llvm::StringSet<> takenInputs;        ///< those, and those that have a default
  std::vector<unsigned> presentOutputs; ///< index of the graph output, per cache
  std::vector<unsigned> resultOutputs;  ///< indices of the others
  std::string lengthPerRowObstacle;     ///< empty: there is none
  int64_t intact = INT64_MAX;
  mutable std::optional<ModelFingerprint> knownFingerprint;
  SessionStatistics counters;

  /// What every step uses again, so that it allocates nothing.
  std::vector<NamedView> stepInputs;
  std::vector<Binding> stepBindings;
  std::vector<Tensor> stepOutputs;
};

} // namespace kvopt::runtime
