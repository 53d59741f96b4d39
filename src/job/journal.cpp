#include "job/journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/utf8.hpp"
#include "job/part_file.hpp"
#include "job/result_file.hpp"
#include "job/wire.hpp"

namespace diffuse {
namespace {

constexpr std::string_view kFirstLine = "diffuse journal 1\n";
constexpr std::uint32_t kRecordMagic = 0x314A5244;  // "DRJ1"
constexpr std::uint64_t kLongestRecord = 1ULL << 36;

enum : std::uint32_t { kIdentity = 1, kSeeds = 2, kFinished = 3, kWindow = 4 };

struct Head {
  std::uint32_t magic;
  std::uint32_t type;
  std::uint64_t length;
  std::uint64_t payload_digest;
  std::uint64_t
      head_digest;  // of the fields before it: without it a damaged length would look like a torn end

  std::uint64_t own_digest() const {
    return digest64(std::as_bytes(std::span(this, 1)).first(offsetof(Head, head_digest)));
  }
  bool sound() const {
    return magic == kRecordMagic && head_digest == own_digest() && length <= kLongestRecord;
  }
};
static_assert(sizeof(Head) == 32);

std::string quoted(const std::filesystem::path& path) {
  return "journal '" + path.string() + "'";
}

// Dotted names and values of everything in a JSON object that has no parts of its own.
void flatten(const Json& value, const std::string& name, std::map<std::string, std::string>& out) {
  if (!value.is_object() || value.empty()) {
    out[name] = dump(value);
    return;
  }
  for (const auto& [key, item] : value.items()) flatten(item, name.empty() ? key : name + "." + key, out);
}

std::string shown(const std::map<std::string, std::string>& values, const std::string& key) {
  constexpr std::size_t kMost = 100;
  const auto found = values.find(key);
  if (found == values.end()) return "missing";
  const auto start = utf8_prefix(found->second, kMost);
  return visible(start) + (start.size() < found->second.size() ? "…" : "");
}

// One line a key that differs; empty where none does.
std::string differences(const Json& before, const Json& now) {
  std::map<std::string, std::string> old_values;
  std::map<std::string, std::string> new_values;
  flatten(before, "", old_values);
  flatten(now, "", new_values);
  std::set<std::string> keys;
  for (const auto& [key, value] : old_values) keys.insert(key);
  for (const auto& [key, value] : new_values) keys.insert(key);
  std::string text;
  for (const auto& key : keys) {
    const auto before_text = shown(old_values, key);
    const auto now_text = shown(new_values, key);
    const bool same =
        old_values.contains(key) && new_values.contains(key) && old_values[key] == new_values[key];
    if (!same)
      text += (text.empty() ? "" : "; ") + visible(key) + ": was " + before_text + ", is " + now_text;
  }
  return text;
}

bool same_file(int fd, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// Throws I/O where another process holds the lock. Returns false where the file system has no locks.
bool lock(int fd, const std::filesystem::path& path) {
  int failed = 0;
  do {
    failed = flock(fd, LOCK_EX | LOCK_NB);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return true;
  if (errno == EWOULDBLOCK)
    throw_io(quoted(path) +
             ": another run is writing it; wait for that run, or give this one another output");
  return false;
}

}  // namespace

std::filesystem::path Journal::path_of(const std::filesystem::path& output) {
  auto path = output;
  path += ".journal";
  return path;
}

Journal Journal::open_or_create(const std::filesystem::path& path, const Json& identity) {
  Journal journal;
  journal.path_ = path;
  do {  // again where the file was moved aside between opening and locking it
    journal.file_ = job_detail::Fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (journal.file_.get() < 0) throw_errno("opening " + quoted(path));
    journal.locked_ = lock(journal.file_.get(), path);
  } while (!same_file(journal.file_.get(), path));
  journal.read_back(identity);
  if (!journal.resumed_) journal.create(identity);
  return journal;
}

Json Journal::identity_of(const std::filesystem::path& path) {
  // It comes first; behind it there may be gigabytes.
  constexpr std::uint64_t kLongestIdentity = 1U << 24;
  std::ifstream file(path, std::ios::binary);
  std::string line(kFirstLine.size(), '\0');
  Head head{};
  if (!file.read(line.data(), static_cast<std::streamsize>(line.size())) || line != kFirstLine) return {};
  if (!file.read(reinterpret_cast<char*>(&head), sizeof head) || !head.sound()) return {};
  if (head.type != kIdentity || head.length > kLongestIdentity) return {};
  std::vector<std::byte> payload(head.length);
  if (!file.read(reinterpret_cast<char*>(payload.data()), static_cast<std::streamsize>(payload.size())))
    return {};
  return digest64(payload) == head.payload_digest ? wire::Reader(payload, quoted(path)).json() : Json();
}

bool Journal::move_aside(const std::filesystem::path& path) {
  const job_detail::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT) return false;
  if (file.get() < 0) throw_errno("opening '" + path.string() + "'");
  lock(file.get(), path);
  auto aside = path;
  aside += "_prev";
  if (rename(path.c_str(), aside.c_str()) != 0)
    throw_errno("renaming '" + path.string() + "' to '" + aside.string() + "'");
  job_detail::sync_folder_of(path);
  return true;
}

std::map<std::uint64_t, RequestResult> Journal::take_finished() {
  return std::exchange(finished_, {});
}

std::map<std::uint64_t, KeptWindows> Journal::take_windows() {
  return std::exchange(windows_, {});
}

void Journal::create(const Json& identity) {
  end_ = 0;
  if (ftruncate(file_.get(), 0) != 0) throw_errno("emptying " + quoted(path_));
  if (pwrite(file_.get(), kFirstLine.data(), kFirstLine.size(), 0) != static_cast<ssize_t>(kFirstLine.size()))
    throw_errno("writing " + quoted(path_));
  end_ = kFirstLine.size();
  wire::Writer out;
  out.json(identity);
  write_record(kIdentity, std::as_bytes(std::span(out.bytes())));
  job_detail::sync_folder_of(path_);
}

void Journal::read_back(const Json& identity) {
  const std::string text = read_file(path_, UINT64_MAX);
  const auto bytes = std::as_bytes(std::span(text));
  const auto torn_from = [&](std::uint64_t at) { dropped_ = bytes.size() - at; };
  if (!text.starts_with(kFirstLine)) {
    if (!kFirstLine.starts_with(text)) throw_bad_data(quoted(path_) + ": it is no journal of this program");
    return torn_from(0);  // empty, or the run died within its first line
  }
  end_ = kFirstLine.size();
  while (end_ < bytes.size()) {
    const auto rest = bytes.subspan(end_);
    Head head{};
    if (rest.size() < sizeof head) break;
    std::memcpy(&head, rest.data(), sizeof head);
    // A machine that lost power may leave zeros where the last record was to stand.
    const bool zeros = std::ranges::all_of(rest, [](std::byte byte) { return byte == std::byte{0}; });
    if (zeros) break;
    const std::string where = quoted(path_) + ": the record at byte " + std::to_string(end_);
    constexpr const char* kAdvice = "; start anew with --no-resume, which keeps the old file as _prev";
    if (!head.sound()) throw_bad_data(where + " is damaged" + kAdvice);
    if (head.length > rest.size() - sizeof head) break;
    const auto payload = rest.subspan(sizeof head, head.length);
    const bool last = payload.size() == rest.size() - sizeof head;
    if (digest64(payload) != head.payload_digest) {
      if (last) break;
      throw_bad_data(where + " is damaged" + kAdvice);
    }
    take_record(head.type, payload, identity);
    end_ += sizeof head + head.length;
  }
  torn_from(end_);
  if (dropped_ > 0 && ftruncate(file_.get(), static_cast<off_t>(end_)) != 0)
    throw_errno("cutting the torn end off " + quoted(path_));
}

void Journal::take_record(std::uint32_t type, std::span<const std::byte> payload, const Json& identity) {
  wire::Reader in(payload, quoted(path_));
  if ((type == kIdentity) == resumed_)
    throw_bad_data(quoted(path_) + ": it does not begin with one identity");
  switch (type) {
    case kIdentity: {
      const auto changed = differences(in.json(), identity);
      if (!changed.empty())
        throw_bad_data(quoted(path_) + " belongs to another run; what changed: " + changed +
                       "; run as before, or start anew with --no-resume");
      resumed_ = true;
      break;
    }
    case kSeeds:
      seeds_ = in.list<std::uint64_t>();
      break;
    case kFinished: {
      const auto index = in.number<std::uint64_t>();
      finished_.insert_or_assign(index, wire::read_request_result(in));
      windows_.erase(index);
      break;
    }
    case kWindow:
      take_window(in);
      break;
    default:
      throw_bad_data(quoted(path_) + ": a record of type " + std::to_string(type) +
                     ", which this program does not know; use a newer diffuse");
  }
  in.expect_end();
}

void Journal::take_window(wire::Reader& in) {
  const auto index = in.number<std::uint64_t>();
  auto& windows = windows_[index][in.number<std::uint64_t>()];
  const auto number = in.number<std::uint64_t>();
  if (number > windows.size())
    throw_bad_data(quoted(path_) + ": windows of request " + std::to_string(index) + " before number " +
                   std::to_string(number) + " are missing; start anew with --no-resume");
  windows.resize(number);
  windows.push_back(wire::read_window(in));
}

void Journal::write_record(std::uint32_t type, std::span<const std::byte> payload) {
  Head head{kRecordMagic, type, payload.size(), digest64(payload), 0};
  head.head_digest = head.own_digest();
  std::string record(reinterpret_cast<const char*>(&head), sizeof head);
  record.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  std::size_t written = 0;
  bool failed = false;
  while (written < record.size() && !failed) {
    const ssize_t wrote = pwrite(file_.get(), record.data() + written, record.size() - written,
                                 static_cast<off_t>(end_ + written));
    failed = wrote < 0 && errno != EINTR;
    if (wrote > 0) written += static_cast<std::size_t>(wrote);
  }
  if (failed || fsync(file_.get()) != 0) {
    const int why = errno;
    // Half a record would be cut off by the next run anyhow; without it this one can try again.
    if (ftruncate(file_.get(), static_cast<off_t>(end_)) == 0) fsync(file_.get());
    errno = why;
    throw_errno("writing " + quoted(path_));
  }
  end_ += record.size();
}

void Journal::write_seeds(std::span<const std::uint64_t> seeds) {
  wire::Writer out;
  out.list(std::vector<std::uint64_t>(seeds.begin(), seeds.end()));
  write_record(kSeeds, std::as_bytes(std::span(out.bytes())));
  seeds_.assign(seeds.begin(), seeds.end());
}

void Journal::append(std::uint64_t index, const RequestResult& request) {
  check_request_result(request, ExitCode::internal, "appending to " + quoted(path_));
  wire::Writer out;
  out.number(index);
  wire::write(out, request);
  write_record(kFinished, std::as_bytes(std::span(out.bytes())));
}

void Journal::append_window(std::uint64_t index, std::uint64_t piece, std::uint64_t number,
                            const TranscriptWindow& window) {
  wire::Writer out;
  for (const auto value : {index, piece, number}) out.number(value);
  wire::write(out, window);
  write_record(kWindow, std::as_bytes(std::span(out.bytes())));
}

void Journal::remove() {
  if (unlink(path_.c_str()) != 0) throw_errno("deleting " + quoted(path_));
  file_.reset();
  job_detail::sync_folder_of(path_);
}

}  // namespace diffuse
