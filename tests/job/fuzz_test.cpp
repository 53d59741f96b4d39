// Files with seeded damage: each is read or is an Error, whatever HDF5 does with it.

#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "job/h5.hpp"
#include "job/job_file.hpp"
#include "job/journal.hpp"
#include "job/result_file.hpp"
#include "job/wire.hpp"
#include "tests/job/support.hpp"

namespace diffuse::test {
namespace {

constexpr ReadLimits kLimits{64U << 20, 3, std::chrono::seconds(10)};

// A few bytes set to telling values, a stretch of noise or zeros, or the end cut off.
std::string mutant(const std::string& whole, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes = whole;
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  const auto flips = 1 + below(4);
  constexpr unsigned char kValues[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
  switch (below(4)) {
    case 0:
      for (std::size_t i = 0; i < flips; ++i) bytes[below(bytes.size())] ^= static_cast<char>(1U << below(8));
      break;
    case 1:
      for (std::size_t i = 0; i < flips; ++i)
        bytes[below(bytes.size())] = static_cast<char>(kValues[below(5)]);
      break;
    case 2: {
      const auto start = below(bytes.size());
      const bool zeros = below(2) == 0;
      for (std::size_t i = start; i < std::min(bytes.size(), start + 1 + below(64)); ++i)
        bytes[i] = zeros ? '\0' : static_cast<char>(random());
      break;
    }
    default:
      bytes.resize(below(bytes.size()));
  }
  return bytes;
}

struct Outcomes {
  int read = 0;
  int refused = 0;
  int died = 0;
};

Outcomes fuzz(const std::string& whole, int count, const std::filesystem::path& path,
              const std::function<void()>& read) {
  Outcomes outcomes;
  for (int seed = 0; seed < count; ++seed) {
    write_bytes(path, mutant(whole, static_cast<std::uint64_t>(seed)));
    try {
      read();
      ++outcomes.read;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ExitCode::bad_data) << seed << ": " << error.what();
      ++(std::string_view(error.what()).find("the process that read it") == std::string_view::npos
             ? outcomes.refused
             : outcomes.died);
    }
  }
  std::cout << outcomes.read << " read, " << outcomes.refused << " refused, " << outcomes.died
            << " crashed or hung\n";
  return outcomes;
}

TEST(fuzz, job_files) {
  const TempFolder folder;
  write_job(folder / "job.h5", sample_job());
  const auto whole = read_file(folder / "job.h5", 1U << 20);
  const auto outcomes =
      fuzz(whole, 200, folder / "mutant.h5", [&] { read_job(folder / "mutant.h5", kLimits); });
  EXPECT_GT(outcomes.refused, 20);
  EXPECT_GT(outcomes.read, 10);
}

// Strings of variable length, as h5py writes them, are where HDF5 follows most pointers.
TEST(fuzz, job_files_of_strings) {
  const TempFolder folder;
  auto file = h5::create_file(folder / "job.h5");
  h5::write_strings(file.get(), "prompts", {"one", "two", "three"});
  h5::write_strings(file.get(), "id", {"a", "b", "c"});
  h5::write_attribute(file.get(), "generate", "{}");
  file.close("test");
  const auto whole = read_file(folder / "job.h5", 1U << 20);
  const auto outcomes =
      fuzz(whole, 200, folder / "mutant.h5", [&] { read_job(folder / "mutant.h5", kLimits); });
  EXPECT_GT(outcomes.refused, 20);
  EXPECT_GT(outcomes.read, 10);
}

TEST(fuzz, result_files) {
  const TempFolder folder;
  write_result(folder / "out.h5", sample_result(8));
  const auto whole = read_file(folder / "out.h5", 1U << 20);
  const auto outcomes =
      fuzz(whole, 300, folder / "mutant.h5", [&] { read_result(folder / "mutant.h5", kLimits); });
  EXPECT_GT(outcomes.refused, 30);
  EXPECT_GT(outcomes.read, 10);
}

TEST(fuzz, journals) {
  const TempFolder folder;
  const auto path = folder / "journal";
  {
    auto journal = Journal::open_or_create(path, {{"job", "aa"}});
    journal.write_seeds(std::vector<std::uint64_t>{1, 2});
    const auto result = sample_result(5);
    for (std::uint64_t i = 0; i < 5; ++i) journal.append(i, result.requests[i]);
  }
  const auto whole = read_file(path, 1U << 20);
  const auto outcomes = fuzz(whole, 1000, path, [&] { Journal::open_or_create(path, {{"job", "aa"}}); });
  EXPECT_GT(outcomes.refused, 300);
}

// The answers themselves, without the checksum in front: a child that HDF5 has corrupted may well compute
// that right.
template <typename T>
void fuzz_wire(const std::string& whole, T (*read)(wire::Reader&)) {
  int good = 0;
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const auto bytes = mutant(whole, seed);
    try {
      wire::Reader in(std::as_bytes(std::span(bytes)), "answer");
      read(in);
      in.expect_end();
      ++good;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_data) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(good, 10);
}

TEST(fuzz, answers) {
  fuzz_wire(bytes_of(sample_job()), wire::read_job);
  fuzz_wire(bytes_of(sample_result(8)), wire::read_result);
}

TEST(fuzz, seals) {
  wire::Writer payload;
  wire::write(payload, sample_job());
  const auto whole = wire::sealed(payload);
  const auto opened = [](const std::string& bytes) {
    return wire::unsealed(std::as_bytes(std::span(bytes))).size();
  };
  EXPECT_EQ(opened(whole), payload.bytes().size());
  EXPECT_EQ(opened(whole + "x"), 0U);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    ASSERT_EQ(opened(damaged), 0U) << at;
    ASSERT_EQ(opened(whole.substr(0, at)), 0U) << at;
  }
}

}  // namespace
}  // namespace diffuse::test
