#include "checkpoint/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <tuple>

#include "checkpoint/open_file.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/shown.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"

namespace diffuse {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{64} << 20;
constexpr const char* kConfig = "config.json";
constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{256} << 20;
// What the file of all weights is called, by the library that wrote the folder; shards are named by a file
// with kIndexSuffix behind it.
constexpr std::array<std::string_view, 2> kSingles = {"model.safetensors",
                                                      "diffusion_pytorch_model.safetensors"};
constexpr std::string_view kIndexSuffix = ".index.json";

Json read_object(const fs::path& path) {
  auto json = read_json(path, kMaxConfigBytes);
  if (!json.is_object()) throw_bad_data("'" + path.string() + "': not a JSON object");
  return json;
}

bool is_there(const fs::path& path) {
  std::error_code failed;
  return fs::exists(fs::symlink_status(path, failed));
}

// Anything else could name a file that the folder's owner never meant to be read.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Shard file name -> the tensors that it must hold, sorted.
std::map<std::string, std::vector<std::string>> read_index(const fs::path& path) {
  const auto what = "'" + path.string() + "'";
  const auto index = read_json(path, kMaxIndexBytes, DuplicateKeys::refuse);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object() || map->empty())
    throw_bad_data(what + ": has no weight_map object that names shards; get the file again");
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [name, value] : map->items()) {
    const auto* const file = value.get_ptr<const std::string*>();
    if (file == nullptr) throw_bad_data(what + ": weight_map gives no file name for tensor " + shown(name));
    if (!is_plain_file_name(*file)) {
      throw_bad_data(what + ": weight_map puts tensor " + shown(name) + " in " + shown(*file) +
                     ", which is not a plain file name in the same folder");
    }
    shards[*file].push_back(name);
  }
  return shards;
}

}  // namespace

struct Checkpoint::State {
  struct Tensor {
    std::shared_ptr<const OpenFile> file;
    std::size_t shard = 0;
    StoredTensor stored;
  };

  fs::path folder;
  LoadMode mode = LoadMode::mmap;
  Json config;
  std::optional<Json> generation_config;
  TensorHeaders headers;
  std::map<std::string, Json> components;
  std::map<std::string, Tensor> tensors;
  std::size_t shards = 0;
  mutable std::atomic<std::uint64_t> bytes_read{0};

  State(const fs::path& path, const char* config_name) : folder(path) {
    std::error_code failed;
    if (!fs::is_directory(folder, failed))
      throw_missing("opening checkpoint '" + folder.string() + "': not a folder; name the one with " +
                    config_name);
    config = read_object(folder / config_name);
    const auto generation = folder / "generation_config.json";
    if (is_there(generation)) generation_config = read_object(generation);
  }

  void open_component(const std::string& name) {
    const auto inside = folder / name;
    std::error_code failed;
    if (!fs::is_directory(inside, failed))
      throw_missing("opening checkpoint '" + folder.string() + "': it has no folder " + shown(name) +
                    ", which its model_index.json needs; download it again");
    components.emplace(name, read_object(inside / "config.json"));
    open_weights(inside, name + ".");
  }

  void open_weights(const fs::path& from, const std::string& prefix) {
    for (const auto single : kSingles) {
      const auto index = std::string(single) + std::string(kIndexSuffix);
      if (is_there(from / single)) {
        add_shard(std::make_shared<OpenFile>(from / single), prefix);
        return;
      }
      if (is_there(from / index)) {
        open_shards(from, index, prefix);
        return;
      }
    }
    const auto single = std::string(kSingles[prefix.empty() ? 0 : 1]);
    throw_missing("opening checkpoint '" + from.string() + "': it has neither " + single + " nor " + single +
                  std::string(kIndexSuffix) +
                  (is_there(from / "pytorch_model.bin") || is_there(from / "pytorch_model.bin.index.json")
                       ? "; pytorch_model.bin is not read (it can run code), convert it to safetensors"
                       : "; download the weights as safetensors into it"));
  }

  void open_shards(const fs::path& from, const std::string& index_name, const std::string& prefix) {
    const auto index = from / index_name;
    for (const auto& [name, expected] : read_index(index)) {
      const auto path = from / name;
      if (!is_there(path)) {
        throw_missing("opening checkpoint '" + from.string() + "': shard " + shown(name) + " is missing, " +
                      index_name + " puts " + std::to_string(expected.size()) +
                      " tensors there; download it again");
      }
      const auto held = add_shard(std::make_shared<OpenFile>(path), prefix);
      for (const auto& tensor : expected) {
        if (!std::binary_search(held.begin(), held.end(), tensor)) {
          throw_bad_data("'" + index.string() + "': puts tensor " + shown(tensor) + " in " + shown(name) +
                         ", whose header does not have it; index and shards are not of one checkpoint");
        }
      }
      for (const auto& tensor : held) {
        if (!std::binary_search(expected.begin(), expected.end(), tensor)) {
          throw_bad_data("'" + path.string() + "': holds tensor " + shown(tensor) + ", which " + index_name +
                         " does not put there; index and shards are not of one checkpoint");
        }
      }
    }
  }

  // The names it holds, sorted, without the prefix that they are kept under.
  std::vector<std::string> add_shard(std::shared_ptr<const OpenFile> file, const std::string& prefix) {
    std::vector<std::string> names;
    for (auto& [name, stored] : read_safetensors_header(*file)) {
      names.push_back(name);
      headers.emplace(prefix + name, stored.header);
      tensors.emplace(prefix + name, Tensor{file, shards, stored});
    }
    ++shards;
    return names;
  }

  const Tensor& tensor(const std::string& name) const {
    const auto found = tensors.find(name);
    if (found == tensors.end())
      throw_internal("asking checkpoint '" + folder.string() + "' for tensor " + shown(name) +
                     ", which it does not have");
    return found->second;
  }
};

void TensorData::check_unchanged() const {
  file_->check_unchanged();
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const fs::path& folder, LoadMode mode) {
  auto state = std::make_unique<State>(folder, kConfig);
  state->mode = mode;
  state->open_weights(folder, "");
  return Checkpoint(std::move(state));
}

Checkpoint Checkpoint::open_components(const fs::path& folder, std::span<const std::string> components,
                                       LoadMode mode) {
  auto state = std::make_unique<State>(folder, "model_index.json");
  state->mode = mode;
  for (const auto& name : components) state->open_component(name);
  return Checkpoint(std::move(state));
}

Checkpoint Checkpoint::open_config_only(const fs::path& folder) {
  return Checkpoint(std::make_unique<State>(folder, kConfig));
}

const fs::path& Checkpoint::folder() const {
  return state_->folder;
}
const Json& Checkpoint::config() const {
  return state_->config;
}
const std::map<std::string, Json>& Checkpoint::component_configs() const {
  return state_->components;
}
const std::optional<Json>& Checkpoint::generation_config() const {
  return state_->generation_config;
}
const TensorHeaders& Checkpoint::headers() const {
  return state_->headers;
}
std::uint64_t Checkpoint::bytes_of(const std::string& name) const {
  return state_->tensor(name).stored.bytes;
}
std::uint64_t Checkpoint::bytes_read() const {
  return state_->bytes_read.load(std::memory_order_relaxed);
}

std::vector<std::string> Checkpoint::in_file_order(std::vector<std::string> names) const {
  const auto place = [&](const std::string& name) {
    const auto& tensor = state_->tensor(name);
    return std::tuple(tensor.shard, tensor.stored.offset, std::string_view(name));
  };
  std::sort(names.begin(), names.end(),
            [&](const auto& left, const auto& right) { return place(left) < place(right); });
  return names;
}

TensorData Checkpoint::read(const std::string& name) const {
  const auto& [file, shard, stored] = state_->tensor(name);
  auto owner = state_->mode == LoadMode::mmap ? file->map_range(stored.offset, stored.bytes)
                                              : file->read_range(stored.offset, stored.bytes);
  state_->bytes_read.fetch_add(stored.bytes, std::memory_order_relaxed);
  return {name, stored.header, file, std::move(owner), static_cast<std::size_t>(stored.bytes)};
}

std::uint64_t content_hash(const TensorData& data) {
  std::string header(name_of(data.header().dtype));
  for (const auto dimension : data.header().shape) header += " " + std::to_string(dimension);
  return digest64(data.bytes(), digest64(std::as_bytes(std::span(header))));
}

std::string combined_hash(const std::map<std::string, std::uint64_t>& hashes) {
  Sha256 combined;
  for (const auto& [name, hash] : hashes) {
    combined.update(std::to_string(name.size()) + " " + name + " " + std::to_string(hash) + "\n");
  }
  return combined.hex_digest();
}

}  // namespace diffuse
