#pragma once
// The journal: what a run has finished, kept so that a killed one goes on. A plain file beside the result
// (OUT.h5.journal), only ever appended to; every record is checksummed and fsync'd before append() returns.
//
//     "diffuse journal 1\n", then records of a 32-byte head {magic, type, length, digest of the head, digest
//     of the payload} and their payload: first the identity (JSON), then seeds, then a finished request each,
//     or a finished window of a recording that is under way.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "core/transcript.hpp"
#include "job/fd.hpp"
#include "job/result.hpp"

namespace diffuse {

namespace wire {
class Reader;
}

// One writer, one thread at a time. Owns the open file and, where the file system has locks, a lock on it: a
// second run that opens the same journal gets an I/O error that says so.
class Journal {
 public:
  // OUT.h5 -> OUT.h5.journal
  static std::filesystem::path path_of(const std::filesystem::path& output);

  // Opens `path`, or creates it with `identity`: an object that holds what must not change between a run and
  // its resumption (hashes of job and tensors, compute mode, SIMD target, patch settings, …). Reads back what
  // stands there; a record that was being written when the run died is cut off. Throws bad data where the
  // file is no journal, where a record other than the last is damaged, or where the identity differs, naming
  // each key that changed with its old and new value.
  static Journal open_or_create(const std::filesystem::path& path, const Json& identity);

  // The identity that the file holds; null where it has none that is sound.
  static Json identity_of(const std::filesystem::path& path);

  // Moves a file (a journal or an old result) to the same name with "_prev" at the end, replacing an older
  // one; for
  // --no-resume. Returns false where there is none. Throws I/O where a run holds it.
  static bool move_aside(const std::filesystem::path& path);

  bool resumed() const { return resumed_; }                 // whether the file held an identity
  std::uint64_t dropped_bytes() const { return dropped_; }  // of the record that was cut off
  bool locked() const { return locked_; }                   // false: this file system has no locks

  // The seeds of the first run, by request index; empty where it died before it wrote them. A resumed run
  // uses these and draws none.
  const std::vector<std::uint64_t>& seeds() const { return seeds_; }

  // Finished requests that were read back, by index in the job; the second call gets nothing.
  std::map<std::uint64_t, RequestResult> take_finished();

  // Windows of recordings that were not finished, by index in the job; the second call gets nothing.
  std::map<std::uint64_t, KeptWindows> take_windows();

  // All throw I/O where the disk refuses; the file is then cut back to its last whole record. An index that
  // is appended twice: the later one counts. Windows of a piece are numbered from 0 on; where a number comes
  // again, it and those behind it take the place of what was there.
  void write_seeds(std::span<const std::uint64_t> seeds);
  void append(std::uint64_t index, const RequestResult& request);
  void append_window(std::uint64_t index, std::uint64_t piece, std::uint64_t number,
                     const TranscriptWindow& window);

  // Deletes the file: everything it holds stands in the result. The object takes no records after it.
  void remove();

 private:
  Journal() = default;
  void create(const Json& identity);
  void read_back(const Json& identity);
  void take_record(std::uint32_t type, std::span<const std::byte> payload, const Json& identity);
  void take_window(wire::Reader& in);
  void write_record(std::uint32_t type, std::span<const std::byte> payload);

  std::filesystem::path path_;
  job_detail::Fd file_;
  bool locked_ = false;
  bool resumed_ = false;
  std::uint64_t end_ = 0;  // behind the last whole record
  std::uint64_t dropped_ = 0;
  std::vector<std::uint64_t> seeds_;
  std::map<std::uint64_t, RequestResult> finished_;
  std::map<std::uint64_t, KeptWindows> windows_;
};

}  // namespace diffuse
