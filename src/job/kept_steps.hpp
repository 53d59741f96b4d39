#pragma once
// Pictures between two of their steps, kept beside the journal so that a killed run goes on from there: a
// file for each in the folder OUT.h5.kept, replaced as a whole by the next step's.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace diffuse {

struct KeptStep {
  std::int64_t step = 0;           // the next one
  std::vector<float> rows;         // the latent, as the schedule cuts it
  std::vector<std::byte> sampler;  // the scheduler's state
  bool operator==(const KeptStep&) const = default;
};

class KeptSteps {
 public:
  // OUT.h5 -> OUT.h5.kept
  static std::filesystem::path folder_of(const std::filesystem::path& output);

  // `identity`: a digest of what must not change between a run and its resumption; files of another are
  // passed over. The folder is made by the first keep().
  KeptSteps(std::filesystem::path output, std::uint64_t identity);

  // On disk when it returns. Throws I/O.
  void keep(std::uint64_t request, std::int64_t sample, const KeptStep& step) const;
  // Nothing where there is none, or it is another run's, or damaged: then the picture starts anew.
  std::optional<KeptStep> find(std::uint64_t request, std::int64_t sample) const;
  // Where a picture is finished; and all of them, with the folder.
  void drop(std::uint64_t request, std::int64_t sample) const;
  void drop_all() const;

 private:
  std::filesystem::path file_of(std::uint64_t request, std::int64_t sample) const;

  std::filesystem::path folder_;
  std::uint64_t identity_;
};

}  // namespace diffuse
