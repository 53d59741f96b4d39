#pragma once
// Previews of pictures under way as PNG files beside the result.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/media.hpp"
#include "pipeline/picture_request.hpp"

namespace diffuse {

class PreviewFiles {
 public:
  // OUT.h5 -> OUT.h5.previews
  static std::filesystem::path folder_of(const std::filesystem::path& output);

  // Names are those that `export` gives the samples of `requests`. Nothing is made yet.
  PreviewFiles(std::filesystem::path folder, const std::vector<PreparedPicture>& requests);

  // NAME.step-0010.png, whole or not at all; the first of a picture takes away those of an earlier run behind
  // that step. `frame`: a picture. Throws I/O. One call at a time.
  void write(std::size_t request, std::int64_t sample, std::int64_t step, const MediaArray& frame);

 private:
  void take_away(const std::string& name, std::int64_t step) const;

  std::filesystem::path folder_;
  std::vector<std::vector<std::string>> names_;  // [request][sample]
  std::set<std::string> begun_;
};

}  // namespace diffuse
