#include "checkpoint/checkpoint.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "support.hpp"

namespace diffuse {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const fs::path kGolden = fs::path(DIFFUSE_TEST_DATA) / "golden";

std::string text_of(const TensorData& data) {
  const auto bytes = data.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A folder with two shards: "a" [2] and "c" [1] in the first, "b" [2] in the second.
class Sharded {
 public:
  Sharded() {
    write_file(folder / "config.json", R"({"model_type": "llama"})");
    write_file(folder / "one.safetensors",
               safetensors(R"({"c": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                               "a": {"dtype": "F16", "shape": [2], "data_offsets": [4, 8]}})",
                           "ccccaaaa"));
    write_file(folder / "two.safetensors",
               safetensors(R"({"b": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}})", "bbbb"));
    index(R"({"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"})");
  }
  void index(const std::string& map) {
    write_file(folder / "model.safetensors.index.json", R"({"metadata": {}, "weight_map": )" + map + "}");
  }
  std::string refused() const {
    return refusal([&] { Checkpoint::open(folder.path()); });
  }
  TempFolder folder;
};

class EachMode : public ::testing::TestWithParam<LoadMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, EachMode, ::testing::Values(LoadMode::mmap, LoadMode::read),
                         [](const auto& mode) { return mode.param == LoadMode::mmap ? "mmap" : "read"; });

TEST_P(EachMode, ReadsTheBytesOfEachTensorAndCountsThem) {
  const auto checkpoint = Checkpoint::open(kGolden / "llama-wide", GetParam());
  EXPECT_EQ(checkpoint.config().at("model_type"), "llama");
  ASSERT_TRUE(checkpoint.generation_config());
  const auto file = read_file(kGolden / "llama-wide" / "model.safetensors", 1U << 30);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), 8);
  const auto header = parse_json(std::string_view(file).substr(8, header_bytes), "header");
  std::uint64_t expected = 0;
  EXPECT_EQ(checkpoint.headers().size() + 1, header.size());
  EXPECT_EQ(checkpoint.bytes_read(), 0U);
  for (const auto& [name, stored] : checkpoint.headers()) {
    const auto data = checkpoint.read(name);
    const std::uint64_t begin = header.at(name).at("data_offsets").at(0);
    const std::uint64_t end = header.at(name).at("data_offsets").at(1);
    EXPECT_EQ(text_of(data), file.substr(8 + header_bytes + begin, end - begin)) << name;
    EXPECT_EQ(data.name(), name);
    EXPECT_EQ(data.header(), stored);
    EXPECT_EQ(checkpoint.bytes_of(name), end - begin);
    data.check_unchanged();
    expected += end - begin;
    EXPECT_EQ(checkpoint.bytes_read(), expected);
  }
}

TEST_P(EachMode, DataOutlivesTheCheckpoint) {
  const Sharded files;
  const auto data = [&] { return Checkpoint::open(files.folder.path(), GetParam()).read("a"); }();
  EXPECT_EQ(text_of(data), "aaaa");
  data.check_unchanged();
}

TEST_P(EachMode, ShardsAreOneCheckpointReadInFileOrder) {
  const Sharded files;
  const auto checkpoint = Checkpoint::open(files.folder.path(), GetParam());
  EXPECT_EQ(checkpoint.headers().at("a"), (TensorHeader{DType::f16, {2}}));
  EXPECT_THAT(checkpoint.in_file_order({"a", "b", "c"}), ElementsAre("c", "a", "b"));
  EXPECT_EQ(text_of(checkpoint.read("b")), "bbbb");
  EXPECT_EQ(text_of(checkpoint.read("c")), "cccc");
  EXPECT_EQ(checkpoint.bytes_read(), 8U);
}

TEST_P(EachMode, AnEmptyTensorHasNoBytes) {
  const TempFolder folder;
  write_file(folder / "config.json", "{}");
  write_file(folder / "model.safetensors",
             safetensors(R"({"a": {"dtype": "F32", "shape": [0, 4], "data_offsets": [0, 0]}})", ""));
  EXPECT_TRUE(Checkpoint::open(folder.path(), GetParam()).read("a").bytes().empty());
}

TEST_P(EachMode, ATensorLargerThanABlockIsWhole) {
  const TempFolder folder;
  std::string data((std::size_t{33} << 20) + 3, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 2654435761U >> 13);
  write_file(folder / "config.json", "{}");
  const auto size = std::to_string(data.size());
  write_file(folder / "model.safetensors", safetensors(R"({"a": {"dtype": "U8", "shape": [)" + size +
                                                           R"(], "data_offsets": [0, )" + size + "]}}",
                                                       data));
  EXPECT_TRUE(text_of(Checkpoint::open(folder.path(), GetParam()).read("a")) == data);
}

TEST_P(EachMode, AFileThatShrankIsAnErrorAndNotASignal) {
  const Sharded files;
  const auto checkpoint = Checkpoint::open(files.folder.path(), GetParam());
  fs::resize_file(files.folder / "two.safetensors", 20);
  const std::string found = GetParam() == LoadMode::mmap ? "it has 20 bytes now" : "it ends at byte";
  EXPECT_THAT(refusal([&] { checkpoint.read("b"); }),
              AllOf(StartsWith("74: "), HasSubstr("two.safetensors"), HasSubstr(found)));
}

TEST_P(EachMode, ManyRanksReadAtOnce) {
  const auto checkpoint = Checkpoint::open(kGolden / "mixtral", GetParam());
  std::uint64_t once = 0;
  for (const auto& [name, header] : checkpoint.headers()) once += checkpoint.bytes_of(name);
  std::vector<std::map<std::string, std::uint64_t>> hashes(4);
  std::vector<std::thread> ranks;
  for (auto& mine : hashes) {
    ranks.emplace_back([&] {
      for (const auto& [name, header] : checkpoint.headers())
        mine[name] = content_hash(checkpoint.read(name));
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(checkpoint.bytes_read(), 4 * once);
  for (const auto& mine : hashes) EXPECT_EQ(mine, hashes.front());
}

TEST(Checkpoint, SeesAFileThatWasWrittenWhileItsTensorWasUsed) {
  const Sharded files;
  const auto checkpoint = Checkpoint::open(files.folder.path(), LoadMode::mmap);
  const auto data = checkpoint.read("b");
  const auto path = files.folder / "two.safetensors";
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  EXPECT_THAT(refusal([&] { data.check_unchanged(); }),
              AllOf(StartsWith("74: "), HasSubstr("was written after")));
}

TEST(Checkpoint, HashesDependOnContentAndNotOnShards) {
  const Sharded files;
  const TempFolder whole;
  write_file(whole / "config.json", "{}");
  write_file(whole / "model.safetensors",
             safetensors(R"({"b": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
                             "a": {"dtype": "F16", "shape": [2], "data_offsets": [4, 8]},
                             "c": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]},
                             "d": {"dtype": "F16", "shape": [2, 1], "data_offsets": [12, 16]}})",
                         "bbbbaaaaccccaaaa"));
  const auto hashes_of = [](const Checkpoint& checkpoint, const std::vector<std::string>& names) {
    std::map<std::string, std::uint64_t> hashes;
    for (const auto& name : names) hashes[name] = content_hash(checkpoint.read(name));
    return hashes;
  };
  const auto one = Checkpoint::open(whole.path());
  const auto two = Checkpoint::open(files.folder.path());
  const auto all = hashes_of(one, {"a", "b", "c"});
  EXPECT_EQ(all, hashes_of(two, {"c", "b", "a"}));
  auto split = hashes_of(two, {"b"});
  split.merge(hashes_of(two, {"a", "c"}));
  EXPECT_EQ(combined_hash(all), combined_hash(split));
  EXPECT_EQ(combined_hash(all).size(), 64U);
  EXPECT_NE(content_hash(one.read("a")), content_hash(one.read("d"))) << "the shape counts";
  auto renamed = all;
  renamed["x"] = renamed.extract("a").mapped();
  EXPECT_NE(combined_hash(all), combined_hash(renamed));
}

TEST(Checkpoint, ConfigAloneIsEnoughForAVerdict) {
  const TempFolder folder;
  write_file(folder / "config.json", R"({"model_type": "llama"})");
  const auto checkpoint = Checkpoint::open_config_only(folder.path());
  EXPECT_EQ(checkpoint.config().at("model_type"), "llama");
  EXPECT_FALSE(checkpoint.generation_config());
  EXPECT_TRUE(checkpoint.headers().empty());
}

// A pipeline of two components: one file of weights in the one, two shards in the other.
TEST_P(EachMode, ComponentsAreOneCheckpoint) {
  const TempFolder folder;
  const std::vector<std::string> both = {"net", "text"};
  const auto opened = [&] { return refusal([&] { Checkpoint::open_components(folder.path(), both); }); };
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("model_index.json")));
  write_file(folder / "model_index.json", R"({"net": ["diffusers", "Net"]})");
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("has no folder \"net\"")));
  fs::create_directory(folder / "net");
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("config.json")));
  write_file(folder / "net/config.json", R"({"width": 3})");
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("neither diffusion_pytorch_model.safetensors")));
  write_file(folder / "net/diffusion_pytorch_model.safetensors.index.json",
             R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  write_file(folder / "net/one.safetensors",
             safetensors(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})", "aaaa"));
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("shard \"two.safetensors\" is missing")));
  write_file(folder / "net/two.safetensors",
             safetensors(R"({"b": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})", "bbbb"));
  fs::create_directory(folder / "text");
  write_file(folder / "text/config.json", R"({"width": 5})");
  write_file(folder / "text/model.safetensors",
             safetensors(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})", "AAAA"));
  const auto checkpoint = Checkpoint::open_components(folder.path(), both, GetParam());
  EXPECT_TRUE(checkpoint.config().contains("net"));
  EXPECT_EQ(checkpoint.component_configs().at("net").at("width"), 3);
  EXPECT_EQ(checkpoint.component_configs().at("text").at("width"), 5);
  EXPECT_THAT(checkpoint.in_file_order({"text.a", "net.b", "net.a"}),
              ElementsAre("net.a", "net.b", "text.a"));
  EXPECT_EQ(checkpoint.headers().size(), 3U);
  EXPECT_EQ(text_of(checkpoint.read("net.a")), "aaaa");
  EXPECT_EQ(text_of(checkpoint.read("net.b")), "bbbb");
  EXPECT_EQ(text_of(checkpoint.read("text.a")), "AAAA");
}

TEST(Checkpoint, SaysWhatIsMissing) {
  const TempFolder folder;
  const auto opened = [&] { return refusal([&] { Checkpoint::open(folder.path()); }); };
  EXPECT_THAT(refusal([&] { Checkpoint::open(folder / "nowhere"); }),
              AllOf(StartsWith("66: "), HasSubstr("not a folder")));
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("config.json")));
  write_file(folder / "config.json", "[]");
  EXPECT_THAT(opened(), AllOf(StartsWith("65: "), HasSubstr("not a JSON object")));
  write_file(folder / "config.json", "{}");
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("neither model.safetensors nor")));
  write_file(folder / "pytorch_model.bin", "");
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("convert it to safetensors")));
  write_file(folder / "generation_config.json", "3");
  EXPECT_THAT(opened(), AllOf(StartsWith("65: "), HasSubstr("generation_config.json")));
}

TEST(Checkpoint, OpensRegularFilesOnly) {
  const TempFolder folder;
  write_file(folder / "config.json", "{}");
  const auto weights = folder / "model.safetensors";
  const auto opened = [&] { return refusal([&] { Checkpoint::open(folder.path()); }); };
  ASSERT_EQ(mkfifo(weights.c_str(), 0600), 0);
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("not a regular file")));
  fs::remove(weights);
  fs::create_directory(weights);
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("not a regular file")));
  fs::remove(weights);
  fs::create_symlink("/dev/zero", weights);
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("not a regular file")));
  fs::remove(weights);
  fs::create_symlink(folder / "gone", weights);
  EXPECT_THAT(opened(), AllOf(StartsWith("66: "), HasSubstr("No such file")));
  fs::remove(weights);
  // A hub cache consists of links to files elsewhere.
  fs::create_symlink(kGolden / "qwen2" / "model.safetensors", weights);
  EXPECT_EQ(opened(), "nothing");
}

TEST(CheckpointIndex, NamesTheShardThatIsMissing) {
  const Sharded files;
  fs::remove(files.folder / "two.safetensors");
  EXPECT_THAT(files.refused(), AllOf(StartsWith("66: "), HasSubstr("shard \"two.safetensors\" is missing")));
}

TEST(CheckpointIndex, NamesPlainFilesOnly) {
  for (const std::string name : {"../two.safetensors", "/etc/passwd", "sub/two.safetensors", "..", ".", "",
                                 "two.safetensors\\u0000x"}) {
    Sharded files;
    files.index(R"({"a": "one.safetensors", "b": ")" + name + R"(", "c": "one.safetensors"})");
    EXPECT_THAT(files.refused(), AllOf(StartsWith("65: "), HasSubstr("not a plain file name"))) << name;
  }
}

TEST(CheckpointIndex, AgreesWithTheShardsBothWays) {
  Sharded files;
  files.index(
      R"({"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors", "d": "two.safetensors"})");
  EXPECT_THAT(
      files.refused(),
      AllOf(StartsWith("65: "), HasSubstr(R"(puts tensor "d" in "two.safetensors", whose header does not)")));
  files.index(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  EXPECT_THAT(files.refused(), AllOf(StartsWith("65: "), HasSubstr(R"(holds tensor "c")")));
}

TEST(CheckpointIndex, RefusesOneTensorInTwoShards) {
  Sharded files;
  write_file(files.folder / "two.safetensors",
             safetensors(R"({"b": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
                             "a": {"dtype": "F16", "shape": [2], "data_offsets": [4, 8]}})",
                         "bbbbaaaa"));
  EXPECT_THAT(files.refused(), AllOf(StartsWith("65: "), HasSubstr(R"(holds tensor "a")")));
}

TEST(CheckpointIndex, RefusesAnIndexOfAnotherForm) {
  Sharded files;
  files.index("[]");
  EXPECT_THAT(files.refused(), AllOf(StartsWith("65: "), HasSubstr("no weight_map object")));
  files.index("{}");
  EXPECT_THAT(files.refused(), AllOf(StartsWith("65: "), HasSubstr("no weight_map object")));
  files.index(R"({"a": 1})");
  EXPECT_THAT(files.refused(), AllOf(StartsWith("65: "), HasSubstr(R"(no file name for tensor "a")")));
  files.index(R"({"a": "one.safetensors", "a": "two.safetensors"})");
  EXPECT_THAT(files.refused(), AllOf(StartsWith("65: "), HasSubstr("stands there twice")));
  write_file(files.folder / "model.safetensors.index.json", "3");
  EXPECT_THAT(files.refused(), AllOf(StartsWith("65: "), HasSubstr("no weight_map object")));
}

TEST(Checkpoint, AskingForAnUnknownTensorIsTheProgramsOwnFault) {
  const Sharded files;
  const auto checkpoint = Checkpoint::open(files.folder.path());
  EXPECT_THAT(refusal([&] { checkpoint.read("x"); }), StartsWith("70: "));
}

}  // namespace
}  // namespace diffuse
