# Toolchain file: builds for 64-bit Arm Linux with Debian's cross compiler and runs what it built
# under QEMU's user-mode emulation. The libraries are those of Debian's arm64 packages
# (scripts/packages.sh, cross_packages). The environment variable QEMU_CPU names the emulated CPU.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
