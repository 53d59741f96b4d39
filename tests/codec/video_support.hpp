#pragma once
// Autoencoders of videos, as they lie in a pipeline's folder.

#include <unistd.h>

#include <filesystem>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "recipe/video_codec_recipe.hpp"

namespace diffuse::test {

// Opens a component's folder by itself: its weights under the name that such a folder has elsewhere.
class ComponentFolder {
 public:
  explicit ComponentFolder(const std::filesystem::path& component) {
    std::string name = (std::filesystem::temp_directory_path() / "diffuse-vae-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
    const auto whole = std::filesystem::absolute(component);
    std::filesystem::create_symlink(whole / "config.json", folder_ / "config.json");
    std::filesystem::create_symlink(whole / "diffusion_pytorch_model.safetensors",
                                    folder_ / "model.safetensors");
  }
  ~ComponentFolder() { std::filesystem::remove_all(folder_); }
  ComponentFolder(const ComponentFolder&) = delete;
  ComponentFolder& operator=(const ComponentFolder&) = delete;

  const std::filesystem::path& path() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

struct TestVideoCodec {
  explicit TestVideoCodec(const std::filesystem::path& component)
      : folder(component),
        checkpoint(Checkpoint::open(folder.path())),
        codec(read_video_codec(checkpoint.config(), checkpoint.headers())) {}
  ComponentFolder folder;
  Checkpoint checkpoint;
  VideoCodec codec;
};

}  // namespace diffuse::test
