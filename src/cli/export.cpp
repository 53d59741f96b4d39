// diffuse export: a result as plain files.

#include <cstdio>

#include "cli/commands.hpp"
#include "cli/media_files.hpp"
#include "job/export.hpp"
#include "job/result_file.hpp"

namespace diffuse {

void add_export(CLI::App& app, ChosenCommand& chosen) {
  struct Flags {
    std::string result;
    std::string folder;
    std::string format = "mp4,webp,png";
  };
  auto flags = std::make_shared<Flags>();
  auto* command =
      app.add_subcommand("export", "Write a result as files of text, sound, pictures and video, and tables");
  command->add_option("result", flags->result, "Result file")->required();
  command->add_option("folder", flags->folder, "Folder, made where missing")->required();
  command->add_option("--format", flags->format,
                      "Files of videos: a list of mp4, webp, gif and png (each frame); default mp4,webp,png");
  command->callback([flags, &chosen] {
    chosen = [flags] {
      const auto formats = video_formats(flags->format);
      const auto written =
          export_result(read_result(flags->result), flags->folder,
                        [&](const MediaArray& media) { return media_files(media, formats); });
      const auto count = [](std::uint64_t number, const char* what) {
        return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
      };
      const auto what = written.media == 0   ? std::to_string(written.texts) + " texts"
                        : written.texts == 0 ? count(written.media, "media file")
                                             : std::to_string(written.texts) + " texts and " +
                                                   count(written.media, "media file");
      std::printf("%s in %s", what.c_str(), flags->folder.c_str());
      if (written.unfinished > 0)
        std::printf(", %llu requests have none", static_cast<unsigned long long>(written.unfinished));
      std::printf("\n");
      return 0;
    };
  });
}

}  // namespace diffuse
