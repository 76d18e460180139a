// Bookkeeping and memory of the pool.
#include "runtime/cache/block_manager.h"

#include "runtime/exec/input_binding.h"
#include "support/diagnostic.h"

#include <algorithm>
#include <cstring>

namespace kvopt::runtime {
using namespace ir;

namespace {

template <class T> void fillWith(const TensorView& view, T value) {
  std::fill_n(view.as<T>(), view.elementCount(), value);
}

/// Fills memory with finite numbers that are large in every type.
void fillLarge(const TensorView& view) {
  constexpr uint16_t largeHalf = 0x7753;  // 30000
  constexpr uint16_t largeBrain = 0x46ea; // 29952
  switch (view.element) {
  case ElementType::Float:
    return fillWith(view, 3e4f);
  case ElementType::Double:
    return fillWith(view, 3e4);
  case ElementType::Float16:
    return fillWith(view, largeHalf);
  case ElementType::BFloat16:
    return fillWith(view, largeBrain);
  default:
    std::memset(view.data, 0x4d, static_cast<size_t>(view.byteSize()));
  }
}

} // namespace

llvm::Expected<std::shared_ptr<BlockManager>> BlockManager::create(BlockManagerOptions options) {
  if (options.blockTokens < 1 || options.maxBlocks < 1)
    return usageError("a pool needs blocks of at least one token, and at least one of them");
  for (const BlockPart& part : options.parts) {
    if (part.tokenAxis >= part.shape.size() || part.shape[part.tokenAxis] != options.blockTokens)
      return usageError("extents {} have no {} tokens on axis {}", extentsText(part.shape),
                        options.blockTokens, part.tokenAxis);
    llvm::Expected<int64_t> bytes = checkedTensorBytes(part.element, part.shape);
    if (!bytes)
      return bytes.takeError();
  }
  if (!options.allocator)
    options.allocator = std::make_shared<Allocator>();
  return std::shared_ptr<BlockManager>(new BlockManager(std::move(options)));
}

const BlockManager::Block* BlockManager::findTaken(BlockId block) const {
  if (block < 0 || block >= static_cast<BlockId>(blocks.size()))
    return nullptr;
  const Block& found = blocks[static_cast<size_t>(block)];
  return found.holders == 0 ? nullptr : &found;
}

llvm::Expected<BlockManager::Block*> BlockManager::taken(BlockId block) {
  if (block < 0 || block >= maxBlocks())
    return usageError("there is no block {}: the pool has {}", block, maxBlocks());
  if (!findTaken(block))
    return usageError("block {} is free", block);
  return &blocks[static_cast<size_t>(block)];
}

std::optional<BlockId> BlockManager::take() {
  BlockId block = 0;
  if (!freeStack.empty()) {
    block = freeStack.back();
    freeStack.pop_back();
  } else if (static_cast<int64_t>(blocks.size()) < maxBlocks()) {
    block = static_cast<BlockId>(blocks.size());
    blocks.emplace_back();
    blocks.back().parts.resize(partCount());
    blocks.back().adopted.resize(partCount(), false);
  } else {
    return std::nullopt;
  }
  Block& given = blocks[static_cast<size_t>(block)];
  given.holders = 1;
  given.tokens = 0;
  return block;
}

/// Returns a block to the pool, with the memory that it owns.
void BlockManager::give(BlockId block) {
  Block& returned = blocks[static_cast<size_t>(block)];
  returned.holders = 0;
  returned.tokens = 0;
  for (size_t i = 0; i < partCount(); ++i)
    if (returned.adopted[i]) {
      returned.parts[i] = Tensor();
      returned.adopted[i] = false;
    }
  freeStack.push_back(block);
}

std::optional<BlockId> BlockManager::allocate() {
  std::lock_guard lock(guard);
  return take();
}

llvm::Error BlockManager::acquire(BlockId block) {
  std::lock_guard lock(guard);
  llvm::Expected<Block*> found = taken(block);
  if (!found)
    return found.takeError();
  ++(*found)->holders;
  return llvm::Error::success();
}

llvm::Error BlockManager::release(BlockId block) {
  std::lock_guard lock(guard);
  llvm::Expected<Block*> found = taken(block);
  if (!found)
    return found.takeError();
  if (--(*found)->holders == 0)
    give(block);
  return llvm::Error::success();
}

llvm::Error BlockManager::setTokens(BlockId block, int64_t tokens) {
  std::lock_guard lock(guard);
  llvm::Expected<Block*> found = taken(block);
  if (!found)
    return found.takeError();
  if (tokens < 0 || tokens > blockTokens())
    return usageError("a block of {} tokens cannot hold {}", blockTokens(), tokens);
  (*found)->tokens = tokens;
  return llvm::Error::success();
}

BlockState BlockManager::state(BlockId block) const {
  std::lock_guard lock(guard);
  const Block* found = findTaken(block);
  if (!found)
    return BlockState::Free;
  return found->tokens == blockTokens() ? BlockState::Full : BlockState::Partial;
}

llvm::Expected<int64_t> BlockManager::tokens(BlockId block) const {
  std::lock_guard lock(guard);
  if (const Block* found = findTaken(block))
    return found->tokens;
  return usageError("block {} is nobody's", block);
}

int64_t BlockManager::holders(BlockId block) const {
  std::lock_guard lock(guard);
  const Block* found = findTaken(block);
  return found ? found->holders : 0;
}

bool BlockManager::isWritable(BlockId block) const {
  std::lock_guard lock(guard);
  const Block* found = findTaken(block);
  if (!found || found->holders != 1)
    return false;
  for (bool foreign : found->adopted)
    if (foreign)
      return false;
  return true;
}

int64_t BlockManager::freeBlocks() const {
  std::lock_guard lock(guard);
  return maxBlocks() - static_cast<int64_t>(blocks.size()) + static_cast<int64_t>(freeStack.size());
}

int64_t BlockManager::memoryBytes() const {
  std::lock_guard lock(guard);
  int64_t bytes = 0;
  for (const Block& block : blocks)
    for (const Tensor& part : block.parts)
      bytes += part.view.data ? part.view.byteSize() : 0;
  return bytes;
}

llvm::Expected<TensorView> BlockManager::memoryOf(Block& block, size_t index) {
  assert(index < partCount());
  Tensor& tensor = block.parts[index];
  if (tensor.view.data)
    return tensor.view;
  const BlockPart& part = options.parts[index];
  llvm::Expected<Tensor> made = Tensor::create(options.allocator, part.element, part.shape);
  if (!made)
    return made.takeError();
  tensor = std::move(*made);
  const auto bytes = static_cast<size_t>(tensor.view.byteSize());
  // A number whose bits are all ones is a NaN in every floating-point format.
  if (options.poison && !options.readsWhole)
    std::memset(tensor.view.data, 0xff, bytes);
  else if (options.poison)
    fillLarge(tensor.view);
  else if (options.readsWhole)
    std::memset(tensor.view.data, 0, bytes);
  return tensor.view;
}

llvm::Expected<TensorView> BlockManager::memory(BlockId block, size_t index) {
  std::lock_guard lock(guard);
  llvm::Expected<Block*> found = taken(block);
  if (!found)
    return found.takeError();
  return memoryOf(**found, index);
}

llvm::Error BlockManager::adopt(BlockId block, size_t index, Tensor tensor) {
  assert(index < partCount());
  std::lock_guard lock(guard);
  llvm::Expected<Block*> found = taken(block);
  if (!found)
    return found.takeError();
  if ((*found)->holders != 1)
    return usageError("block {} has {} holders", block, (*found)->holders);
  const BlockPart& part = options.parts[index];
  const TensorView& view = tensor.view;
  bool fits = view.element == part.element && view.rank() == part.shape.size();
  for (unsigned axis = 0; fits && axis < part.shape.size(); ++axis)
    fits = axis == part.tokenAxis ? view.shape[axis] <= part.shape[axis]
                                  : view.shape[axis] == part.shape[axis];
  if (!fits)
    return usageError("a tensor of extents {} is not a block of {}", extentsText(view.shape),
                      extentsText(part.shape));
  (*found)->parts[index] = std::move(tensor);
  (*found)->adopted[index] = true;
  return llvm::Error::success();
}

llvm::Error BlockManager::copyRows(Block& to, Block& from, int64_t tokens) {
  for (size_t i = 0; i < partCount(); ++i) {
    if (!from.parts[i].view.data)
      continue;
    llvm::Expected<TensorView> target = memoryOf(to, i);
    if (!target)
      return target.takeError();
    const unsigned axis = options.parts[i].tokenAxis;
    copyElements(sliceAxis(from.parts[i].view, axis, 0, tokens),
                 sliceAxis(*target, axis, 0, tokens));
  }
  to.tokens = tokens;
  return llvm::Error::success();
}

llvm::Expected<std::optional<BlockId>> BlockManager::copy(BlockId block, int64_t tokens) {
  std::lock_guard lock(guard);
  llvm::Expected<Block*> found = taken(block);
  if (!found)
    return found.takeError();
  if (tokens < 0 || tokens > (*found)->tokens)
    return usageError("block {} holds {} tokens, not {}", block, (*found)->tokens, tokens);
  std::optional<BlockId> made = take();
  if (!made)
    return made;
  // `take` may have moved the blocks.
  if (llvm::Error error = copyRows(blocks[static_cast<size_t>(*made)],
                                   blocks[static_cast<size_t>(block)], tokens)) {
    give(*made);
    return error;
  }
  return made;
}

void BlockManager::trim(int64_t warmBlocks) {
  std::lock_guard lock(guard);
  const auto keep =
      std::min(freeStack.size(), static_cast<size_t>(std::max<int64_t>(warmBlocks, 0)));
  for (size_t i = 0; i + keep < freeStack.size(); ++i)
    for (Tensor& part : blocks[static_cast<size_t>(freeStack[i])].parts)
      part = Tensor();
}

} // namespace kvopt::runtime
