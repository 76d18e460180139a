// Machines as /sys and /proc show them: hyperthreads, affinity, control groups of both kinds.
#include "runtime/threads/cpu_count.h"
#include "support/format.h"

#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace kvopt {
using namespace runtime;

namespace {

namespace fs = std::filesystem;

class CpuCountTest : public testing::Test {
protected:
  void write(const std::string& path, const std::string& text) {
    fs::path file = fs::path(root.path()) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  /// CPUs 0 … cpus-1; CPU i and i + cpus/2 are threads of one core.
  void writeHyperthreads(unsigned cpus) {
    for (unsigned cpu = 0; cpu < cpus; ++cpu)
      write(formatted("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu),
            formatted("{},{}\n", cpu % (cpus / 2), cpu % (cpus / 2) + cpus / 2));
  }
  unsigned cores(std::vector<unsigned> cpus) { return usableCores(cpus, root.path()); }

  TemporaryFolder root;
};

TEST_F(CpuCountTest, ThreadsOfOneCoreCountOnce) {
  writeHyperthreads(8);
  EXPECT_EQ(cores({0, 1, 2, 3, 4, 5, 6, 7}), 4u);
  EXPECT_EQ(cores({0, 1, 4, 5}), 2u);
  EXPECT_EQ(cores({0, 4}), 1u);
  EXPECT_EQ(cores({3, 5}), 2u);
}

TEST_F(CpuCountTest, WithoutTopologyEveryCpuIsACore) {
  EXPECT_EQ(cores({0, 1, 2}), 3u);
  EXPECT_EQ(cores({}), 1u);
}

TEST_F(CpuCountTest, UnifiedGroupsLimitFromEveryLevel) {
  writeHyperthreads(16);
  std::vector<unsigned> all(16);
  for (unsigned i = 0; i < 16; ++i)
    all[i] = i;
  write("proc/self/cgroup", "0::/jobs/one\n");
  EXPECT_EQ(cores(all), 8u);
  write("sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  EXPECT_EQ(cores(all), 8u);
  write("sys/fs/cgroup/jobs/cpu.max", "350000 100000\n");
  EXPECT_EQ(cores(all), 4u) << "three and a half CPUs are worth four threads";
  write("sys/fs/cgroup/jobs/one/cpu.max", "50000 100000\n");
  EXPECT_EQ(cores(all), 1u);
}

TEST_F(CpuCountTest, InAContainerTheMountIsTheGroup) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(cores({0, 1, 2, 3}), 2u);
  // The host's path, which is not to be seen from here.
  write("proc/self/cgroup", "0::/docker/0123456789abcdef\n");
  EXPECT_EQ(cores({0, 1, 2, 3}), 2u);
}

TEST_F(CpuCountTest, OldGroupsLimitToo) {
  write("proc/self/cgroup", "7:memory:/a\n4:cpu,cpuacct:/a/b\n");
  write("sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores({0, 1, 2, 3}), 4u);
  write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores({0, 1, 2, 3}), 3u);
}

TEST_F(CpuCountTest, GarbageLimitsNothing) {
  write("proc/self/cgroup", "\n::\n0\n0::\n4:cpu\n:cpu:\n");
  write("sys/fs/cgroup/cpu.max", "many few");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "0");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "0");
  EXPECT_EQ(cores({0, 1}), 2u);
}

TEST(CpuCount, ThisMachineHasACore) { EXPECT_GE(usableCores(), 1u); }

} // namespace
} // namespace kvopt
