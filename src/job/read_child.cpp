#include "job/read_child.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <new>
#include <string_view>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/size.hpp"
#include "core/utf8.hpp"
#include "job/child_process.hpp"
#include "job/fd.hpp"
#include "job/file_reader.hpp"
#include "job/job_file.hpp"
#include "job/result_file.hpp"
#include "job/wire.hpp"

namespace diffuse {
namespace {

constexpr const char* kCommand = "__read-h5";
constexpr std::string_view kJob = "job";
constexpr std::string_view kResult = "result";
constexpr std::size_t kLongestMessage = 4096;
constexpr std::uint64_t kMebi = 1U << 20;

std::string file_what(std::string_view kind, const std::string& path) {
  return std::string(kind) + " file '" + path + "'";
}

std::string sha256_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Sha256 hash;
  std::vector<char> buffer(kMebi);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.update(std::as_bytes(std::span(buffer.data(), static_cast<std::size_t>(file.gcount()))));
  }
  if (!file.eof()) throw_io("reading '" + path + "' failed");
  return hash.hex_digest();
}

void write_value(wire::Writer& out, std::string_view kind, const std::string& path,
                 std::uint64_t data_bytes) {
  h5::Input file(path, file_what(kind, path), data_bytes);
  if (kind == kJob) {
    Job job = job_detail::job_of(file);
    job.sha256 = sha256_of(path);
    wire::write(out, job);
  } else {
    wire::write(out, job_detail::result_of(file));
  }
}

// An exit code, then a message or the value.
wire::Writer answer_of(std::string_view kind, const std::string& path, std::uint64_t data_bytes) {
  ExitCode code = ExitCode::bad_data;
  std::string message;
  try {
    wire::Writer out;
    out.number(static_cast<std::int32_t>(ExitCode::done));
    write_value(out, kind, path, data_bytes);
    return out;
  } catch (const Error& error) {
    // The parent has opened the file: what HDF5 cannot read now is damaged.
    code = error.code() == ExitCode::io ? ExitCode::bad_data : error.code();
    message = error.what();
    // Arithmetic on sizes does not know whose sizes they are.
    if (!message.starts_with(file_what(kind, path))) message = file_what(kind, path) + ": " + message;
  } catch (const std::bad_alloc&) {
    message = file_what(kind, path) + ": it asks for more memory than a file of its size may";
  } catch (const std::exception& error) {
    message = file_what(kind, path) + ": " + error.what();
  }
  wire::Writer out;
  out.number(static_cast<std::int32_t>(code));
  out.text(utf8_prefix(repair_utf8(message), kLongestMessage));
  return out;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno != EINTR) return false;
    if (wrote > 0) bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return true;
}

bool parse(std::string_view text, std::uint64_t& value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end == text.data() + text.size();
}

// Opens the file once, so that a missing or unreadable one is told from a damaged one. Returns its size.
std::uint64_t size_of_readable(std::string_view kind, const std::filesystem::path& path) {
  const std::string doing = "opening " + file_what(kind, path.string());
  const job_detail::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw_errno(doing);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw_errno(doing);
  if (!S_ISREG(status.st_mode)) throw_missing(doing + ": not a regular file");
  return static_cast<std::uint64_t>(status.st_size);
}

// `value` is one of the read_ functions of wire.hpp.
template <typename T>
T read_through_child(std::string_view kind, const std::filesystem::path& path, const ReadLimits& asked,
                     T (*value)(wire::Reader&)) {
  const ReadLimits limits = effective_limits(asked, size_of_readable(kind, path));
  const std::string what = file_what(kind, path.string());
  // An argument that begins with a dash or is relative stays what it is: the child looks at nothing else.
  const auto answer =
      job_detail::run_self({kCommand, std::string(kind), path.string(), std::to_string(limits.data_bytes),
                            std::to_string(limits.cpu_seconds)},
                           limits.silence, memory_limit(limits));
  const auto payload = wire::unsealed(std::as_bytes(std::span(answer.bytes)));
  if (payload.empty()) {
    const std::string reason =
        answer.too_long    ? "took longer than " + std::to_string(limits.silence.count() / 1000) + " s"
        : answer.too_large ? "handed back more than the file can hold"
        : answer.fate.empty()
            ? "gave no answer (if this is a test program: its main() has to hand __read-h5 on)"
            : answer.fate;
    throw_bad_data(what + ": the file is damaged or was made to do harm: the process that read it " + reason +
                   ". Make the file again, or look at it with h5dump");
  }
  wire::Reader in(payload, what);
  const auto code = in.number<std::int32_t>();
  if (code == static_cast<std::int32_t>(ExitCode::done)) {
    T read = value(in);
    in.expect_end();
    return read;
  }
  throw Error(code == static_cast<std::int32_t>(ExitCode::internal) ? ExitCode::internal : ExitCode::bad_data,
              visible(in.text()));
}

}  // namespace

ReadLimits effective_limits(const ReadLimits& limits, std::uint64_t file_bytes) {
  const auto seconds = file_bytes / (4 * kMebi);
  ReadLimits effective = limits;
  if (effective.data_bytes == 0) effective.data_bytes = (CheckedSize(file_bytes) * 16 + 256 * kMebi).value();
  if (effective.cpu_seconds == 0) effective.cpu_seconds = 60 + file_bytes / (16 * kMebi);
  if (effective.silence.count() == 0) effective.silence = std::chrono::seconds(300 + seconds);
  return effective;
}

std::uint64_t memory_limit(const ReadLimits& effective) {
  return (CheckedSize(effective.data_bytes) * 6 + 1024 * kMebi).value();
}

bool is_read_h5_command(int argc, char** argv) {
  return argc > 1 && std::string_view(argv[1]) == kCommand;
}

int read_h5_child(int argc, char** argv) {
  std::uint64_t data_bytes = 0;
  std::uint64_t cpu_seconds = 0;
  if (argc != 6 || !parse(argv[4], data_bytes) || !parse(argv[5], cpu_seconds)) return 2;
  const std::string_view kind = argv[2];
  if (kind != kJob && kind != kResult) return 2;
  job_detail::bound_this_process(memory_limit({data_bytes, cpu_seconds, {}}), cpu_seconds);
  const bool written = write_all(job_detail::kAnswerFd, wire::sealed(answer_of(kind, argv[3], data_bytes)));
  _exit(written ? 0 : 1);
}

Job read_job(const std::filesystem::path& path, const ReadLimits& limits) {
  Job job = read_through_child(kJob, path, limits, wire::read_job);
  job_detail::check_unique_ids(job, file_what(kJob, path.string()));
  return job;
}

Result read_result(const std::filesystem::path& path, const ReadLimits& limits) {
  return read_through_child(kResult, path, limits, wire::read_result);
}

}  // namespace diffuse
