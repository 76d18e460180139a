// Reading of the affinity mask, the topology of cores and control groups on Linux.
#include "runtime/threads/cpu_count.h"

#include "support/format.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <optional>
#include <sched.h>
#include <thread>
#include <vector>

namespace kvopt::runtime {
namespace {

/// Contents without whitespace at both ends; nullopt if the file cannot be read.
std::optional<std::string> contentsOf(const std::string& path) {
  auto file = llvm::MemoryBuffer::getFileAsStream(path);
  if (!file)
    return std::nullopt;
  return (*file)->getBuffer().trim().str();
}

/// CPUs of the affinity mask; empty if it is not available.
std::vector<unsigned> allowedCpus() {
  std::vector<unsigned> cpus;
  for (int count = 1024; count <= 65536; count *= 4) {
    cpu_set_t* set = CPU_ALLOC(count);
    if (!set)
      return cpus;
    size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, set);
    bool isKnown = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; isKnown && cpu < count; ++cpu)
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set))
        cpus.push_back(static_cast<unsigned>(cpu));
    CPU_FREE(set);
    if (isKnown)
      break;
  }
  return cpus;
}

/// Number of cores; hardware threads of the same core count once.
unsigned coresOf(llvm::ArrayRef<unsigned> cpus, const std::string& root) {
  llvm::StringSet<> cores;
  for (unsigned cpu : cpus) {
    // The list is the same for all threads of a core.
    auto siblings = contentsOf(
        formatted("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu));
    cores.insert(siblings && !siblings->empty() ? *siblings : formatted("{}", cpu));
  }
  return cores.size();
}

/// Number of CPUs for `quota` microseconds in every `period`, rounded up; nullopt without a limit.
std::optional<unsigned> cpusIn(llvm::StringRef quota, llvm::StringRef period) {
  int64_t used = 0;
  int64_t of = 0;
  if (quota.getAsInteger(10, used) || period.getAsInteger(10, of) || used <= 0 || of <= 0)
    return std::nullopt;
  return static_cast<unsigned>(std::clamp<int64_t>(used / of + (used % of != 0), 1, UINT16_MAX));
}

std::optional<unsigned> groupLimit(const std::string& folder, bool isUnified) {
  if (isUnified) {
    auto limit = contentsOf(folder + "/cpu.max"); // "200000 100000" or "max 100000"
    if (!limit)
      return std::nullopt;
    auto [quota, period] = llvm::StringRef(*limit).split(' ');
    return cpusIn(quota, period);
  }
  auto quota = contentsOf(folder + "/cpu.cfs_quota_us");
  auto period = contentsOf(folder + "/cpu.cfs_period_us");
  return quota && period ? cpusIn(*quota, *period) : std::nullopt;
}

/// Smallest limit of the process's control group and the groups that contain it.
unsigned quotaOf(const std::string& root) {
  unsigned least = UINT_MAX;
  auto groups = contentsOf(root + "/proc/self/cgroup");
  llvm::SmallVector<llvm::StringRef, 16> lines;
  if (groups)
    llvm::StringRef(*groups).split(lines, '\n', -1, false);
  for (llvm::StringRef line : lines) {
    // "0::/path" is the unified hierarchy, "4:cpu,cpuacct:/path" an old one.
    auto [hierarchy, rest] = line.split(':');
    auto [controllers, path] = rest.split(':');
    llvm::SmallVector<llvm::StringRef, 4> names;
    controllers.split(names, ',');
    bool isUnified = hierarchy == "0" && controllers.empty();
    if (!isUnified && std::find(names.begin(), names.end(), "cpu") == names.end())
      continue;
    std::string mount = root + "/sys/fs/cgroup" + (isUnified ? "" : "/cpu");
    // Up to the mount point, which in a container is the group in which the container runs.
    for (llvm::StringRef group = path.rtrim('/');; group = group.take_front(group.rfind('/'))) {
      if (auto limit = groupLimit(mount + group.str(), isUnified))
        least = std::min(least, *limit);
      if (group.find('/') == llvm::StringRef::npos)
        break;
    }
  }
  return least;
}

} // namespace

unsigned usableCores(llvm::ArrayRef<unsigned> cpus, const std::string& root) {
  return std::max(1u, std::min(coresOf(cpus, root), quotaOf(root)));
}

unsigned usableCores() {
  std::vector<unsigned> cpus = allowedCpus();
  for (unsigned cpu = 0; cpus.empty() && cpu < std::thread::hardware_concurrency(); ++cpu)
    cpus.push_back(cpu);
  return usableCores(cpus, "");
}

} // namespace kvopt::runtime
