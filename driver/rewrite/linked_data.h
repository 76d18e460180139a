// LinkedData: hard links to the external data of a model, next to a model in another folder.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Paths that hard links to the model's external data have next to a model that is written to
/// `output`, for data that is not beneath that folder. A model cannot refer to such data, because a
/// location is a path beneath the model's folder. Empty if all of it can stay where it is. Data in
/// a subfolder of the model's folder has no link.
std::vector<std::string> linkedFiles(const ir::Model& model, const std::string& output);

/// Hard links of `linkedFiles`. They share their contents with the files of the model, so nothing
/// is copied. They are removed with this object unless `keep` was called.
class LinkedData {
public:
  /// Fails if a file cannot have a link, such as on another file system, or if another file has the
  /// name. No links are left then.
  static llvm::Expected<LinkedData> create(const ir::Model& model, const std::string& output);

  LinkedData(LinkedData&& other) noexcept : made(std::move(other.made)) { other.made.clear(); }
  LinkedData& operator=(LinkedData&&) = delete;
  ~LinkedData();

  void keep() { made.clear(); }

private:
  LinkedData() = default;

  std::vector<std::string> made;
};

} // namespace kvopt::driver
