#include "checkpoint/safetensors.hpp"

#include "support.hpp"

namespace diffuse {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Bad {
  std::string name;
  std::string bytes;
  std::string found;  // what the message says
  std::string code = "65: ";
};

std::string nested(int depth) {
  return R"({"a": {"x": )" + std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']') + "}}";
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" + offsets +
         "}}";
}

std::string two(const std::string& first, const std::string& second) {
  const std::string begin = R"({"dtype": "F32", "shape": [1], "data_offsets": )";
  return R"({"a": )" + begin + first + R"(}, "b": )" + begin + second + "}}";
}

const std::vector<Bad> kBad = {
    {"too_short_for_a_length", "1234567", "7 bytes, too few"},
    {"length_over_the_limit", std::string("\x01\xe1\xf5\x05\0\0\0\0", 8) + "{}",
     "100000001 bytes, more than the 100000000"},
    {"length_beyond_the_file", std::string("\x03\0\0\0\0\0\0\0", 8) + "{}",
     "3 bytes, more than the file has"},
    {"no_header", std::string(8, '\0'), "does not begin with '{'"},
    {"space_before_the_brace", safetensors(" {}", ""), "does not begin with '{'"},
    {"a_list", safetensors("[]", ""), "does not begin with '{'"},
    {"not_json", safetensors("{]", ""), "not valid JSON"},
    {"not_utf8", safetensors("{\"\xff\": 1}", ""), "UTF-8"},
    {"too_deep", safetensors(nested(63), ""), "nests deeper than 64"},
    {"repeated_tensor",
     safetensors(R"({"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
                     "a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})",
                 ""),
     "the key 'a' stands there twice"},
    {"metadata_is_no_object", safetensors(R"({"__metadata__": "pt"})", ""), R"(__metadata__ is "pt")"},
    {"metadata_value_is_no_text", safetensors(R"({"__metadata__": {"n": 1}})", ""), R"(has 1 at "n")"},
    {"tensor_is_no_object", safetensors(R"({"a": 3})", ""), R"(tensor "a": it is described by 3)"},
    {"no_dtype", safetensors(R"({"a": {"shape": [], "data_offsets": [0, 0]}})", ""), "it has no dtype"},
    {"no_shape", safetensors(R"({"a": {"dtype": "F32", "data_offsets": [0, 0]}})", ""), "it has no shape"},
    {"no_offsets", safetensors(R"({"a": {"dtype": "F32", "shape": []}})", ""), "it has no data_offsets"},
    {"dtype_is_no_text", safetensors(R"({"a": {"dtype": 1, "shape": [], "data_offsets": [0, 0]}})", ""),
     "dtype is 1, not a text"},
    {"unknown_dtype", safetensors(tensor("F7", "[1]", "[0, 4]"), "1234"), R"(dtype "F7" is not one)"},
    {"dtype_not_read", safetensors(tensor("F8_E4M3", "[4]", "[0, 4]"), "1234"),
     "has type F8_E4M3, which this build cannot run yet", "69: "},
    {"shape_is_no_list", safetensors(tensor("F32", "1", "[0, 4]"), "1234"), "shape is 1, not a list"},
    {"negative_dimension", safetensors(tensor("F32", "[-1]", "[0, 4]"), "1234"), "shape holds -1"},
    {"fractional_dimension", safetensors(tensor("F32", "[1.0]", "[0, 4]"), "1234"), "shape holds 1.0"},
    {"dimension_over_63_bits", safetensors(tensor("F32", "[9223372036854775808, 0]", "[0, 0]"), ""),
     "shape holds 9223372036854775808"},
    {"three_offsets", safetensors(tensor("F32", "[1]", "[0, 4, 4]"), "1234"), "not [begin, end]"},
    {"negative_offset", safetensors(tensor("F32", "[1]", "[-4, 0]"), "1234"), "data_offsets holds -4"},
    {"offsets_backwards", safetensors(tensor("F32", "[1]", "[4, 0]"), "1234"), "end before they begin"},
    {"offsets_beyond_the_file", safetensors(tensor("F32", "[2]", "[0, 8]"), "1234"),
     "reach over the 4 bytes"},
    {"hole_at_the_start", safetensors(tensor("F32", "[1]", "[4, 8]"), "12345678"),
     "leaving a hole after byte 0"},
    {"hole_between", safetensors(two("[0, 4]", "[8, 12]"), "123456789012"), "leaving a hole after byte 4"},
    {"overlap", safetensors(two("[0, 4]", "[2, 6]"), "123456"), "overlapping the tensor before byte 4"},
    {"same_place_twice", safetensors(two("[0, 4]", "[0, 4]"), "1234"),
     "overlapping the tensor before byte 4"},
    {"bytes_behind_the_last", safetensors(tensor("F32", "[1]", "[0, 4]"), "12345"),
     "its tensors end at byte"},
    {"size_is_not_shape_times_type", safetensors(tensor("F32", "[2]", "[0, 4]"), "1234"),
     "takes 8 bytes, data_offsets give it 4"},
    // 2^62 elements of 4 bytes would pass for nothing in 64 bits.
    {"size_overflows", safetensors(tensor("F32", "[2147483648, 2147483648]", "[0, 0]"), ""),
     "overflows 64 bits"},
};

class BadSafetensors : public ::testing::TestWithParam<Bad> {};

TEST_P(BadSafetensors, IsRefusedInOneClearLine) {
  const TempFolder folder;
  const auto path = folder / "model.safetensors";
  write_file(path, GetParam().bytes);
  const auto message = refusal([&] { read_safetensors_header(OpenFile(path)); });
  EXPECT_THAT(message,
              AllOf(StartsWith(GetParam().code), HasSubstr(path.string()), HasSubstr(GetParam().found)));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Rules, BadSafetensors, ::testing::ValuesIn(kBad),
                         [](const auto& rule) { return rule.param.name; });

TEST(Safetensors, ReadsWhatTheFormatAllows) {
  const TempFolder folder;
  const auto path = folder / "model.safetensors";
  const std::string header = R"({"__metadata__": {"format": "pt"},
      "scalar": {"dtype": "BOOL", "shape": [], "data_offsets": [0, 1]},
      "nothing": {"dtype": "F32", "shape": [3, 0], "data_offsets": [1, 1]},
      "matrix": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [1, 13]}}   )";
  write_file(path, safetensors(header, std::string(13, 'x')));
  const auto tensors = read_safetensors_header(OpenFile(path));
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors.at("scalar").header, (TensorHeader{DType::boolean, {}}));
  EXPECT_EQ(tensors.at("nothing").header, (TensorHeader{DType::f32, {3, 0}}));
  EXPECT_EQ(tensors.at("nothing").bytes, 0U);
  EXPECT_EQ(tensors.at("matrix").header, (TensorHeader{DType::bf16, {2, 3}}));
  EXPECT_EQ(tensors.at("matrix").offset, 8 + header.size() + 1);
  EXPECT_EQ(tensors.at("matrix").bytes, 12U);
}

TEST(Safetensors, ReadsAFileWithoutTensors) {
  const TempFolder folder;
  write_file(folder / "x", safetensors("{}", ""));
  EXPECT_TRUE(read_safetensors_header(OpenFile(folder / "x")).empty());
}

TEST(Safetensors, DepthOf64IsAllowed) {
  const TempFolder folder;
  write_file(folder / "x", safetensors(nested(62), ""));
  EXPECT_THAT(refusal([&] { read_safetensors_header(OpenFile(folder / "x")); }),
              HasSubstr("it has no dtype"));
}

}  // namespace
}  // namespace diffuse
