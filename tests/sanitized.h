// Whether the tests are built with sanitizers, under which they take about ten times as long.
#pragma once

#ifdef __has_feature
#define KVOPT_HAS_SANITIZER(name) __has_feature(name)
#else
#define KVOPT_HAS_SANITIZER(name) 0
#endif

namespace kvopt {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    KVOPT_HAS_SANITIZER(address_sanitizer) || KVOPT_HAS_SANITIZER(thread_sanitizer)
constexpr bool isSanitized = true;
#else
constexpr bool isSanitized = false;
#endif

} // namespace kvopt
