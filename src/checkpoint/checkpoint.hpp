#pragma once
// A Hugging Face checkpoint folder, opened once: config.json, generation_config.json, and the weights as
// model.safetensors or as shards named by model.safetensors.index.json. All headers are checked when it is
// opened; a tensor's bytes are read only when they are asked for, and nothing but them.
//
// Every file must be a regular file at the end of its symbolic links (a hub cache consists of links). What a
// file holds is a stranger's: a broken rule is bad data and names file, tensor, what was found and what to
// do.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/tensor_header.hpp"
#include "core/json.hpp"

namespace diffuse {

// mmap: maps the pages of one tensor; best on a local disk. read: reads exactly its range in large sequential
// blocks; best on Lustre and NFS.
enum class LoadMode : std::uint8_t { mmap, read };

class OpenFile;

// The bytes of one tensor, row-major and little-endian, kept alive by the object and its copies. They can
// start at any address: a safetensors file promises no alignment.
class TensorData {
 public:
  TensorData(std::string name, TensorHeader header, std::shared_ptr<const OpenFile> file,
             std::shared_ptr<const std::byte> owner, std::size_t bytes)
      : name_(std::move(name)),
        header_(std::move(header)),
        file_(std::move(file)),
        owner_(std::move(owner)),
        bytes_(bytes) {}

  const std::string& name() const { return name_; }
  const TensorHeader& header() const { return header_; }
  std::span<const std::byte> bytes() const { return {owner_.get(), bytes_}; }

  // For mapped bytes, after they were used: throws an I/O error where the file's size or time of change is no
  // longer what it was when the checkpoint was opened, so what was seen may be neither the old nor the new
  // tensor. (A file that shrinks under a map also ends the process by SIGBUS at the next touch; nothing but
  // not mapping it, LoadMode::read, prevents that.)
  void check_unchanged() const;

 private:
  std::string name_;
  TensorHeader header_;
  std::shared_ptr<const OpenFile> file_;
  std::shared_ptr<const std::byte> owner_;
  std::size_t bytes_;
};

// Safe for concurrent use: all members are const and reading keeps no position.
class Checkpoint {
 public:
  // Reads the configs and the headers of all shards. Throws missing input where the folder, config.json, the
  // weights or a shard are not there, bad data where a rule is broken, refused for a tensor type that this
  // build does not read.
  static Checkpoint open(const std::filesystem::path& folder, LoadMode mode = LoadMode::mmap);
  // A folder whose model_index.json names components with a folder each, of which those named here are
  // opened. A tensor's name is its component's, a dot, and its own there; config() is model_index.json.
  static Checkpoint open_components(const std::filesystem::path& folder,
                                    std::span<const std::string> components, LoadMode mode = LoadMode::mmap);
  // The configs alone: for a verdict on a folder without weights. headers() is empty.
  static Checkpoint open_config_only(const std::filesystem::path& folder);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::filesystem::path& folder() const;
  const Json& config() const;  // an object
  // config.json of each component; empty where open() made it.
  const std::map<std::string, Json>& component_configs() const;
  const std::optional<Json>& generation_config() const;
  const TensorHeaders& headers() const;

  // Of one tensor in the file. Throws internal for a name that headers() does not have.
  std::uint64_t bytes_of(const std::string& name) const;
  // The same tensors in the order in which they lie in the shards: read in it, a disk never seeks back.
  std::vector<std::string> in_file_order(std::vector<std::string> names) const;
  // Throws I/O where the file fails or has changed since it was opened; internal for an unknown name.
  TensorData read(const std::string& name) const;
  // Tensor bytes asked for by read() so far, the same in both modes (a map touches whole pages).
  std::uint64_t bytes_read() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Digest of one tensor: its type, shape and bytes; not its name, shard or place in it.
std::uint64_t content_hash(const TensorData& data);
// Digest of a checkpoint from those of its tensors (SHA-256 in hex, in name order): the same for any split of
// the tensors over ranks and shards.
std::string combined_hash(const std::map<std::string, std::uint64_t>& hashes);

}  // namespace diffuse
