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
    SubtitleOptions subtitles;
  };
  auto flags = std::make_shared<Flags>();
  auto* command =
      app.add_subcommand("export", "Write a result as files of text, sound, pictures and video, and tables");
  command->add_option("result", flags->result, "Result file")->required();
  command->add_option("folder", flags->folder, "Folder, made where missing")->required();
  command->add_option("--format", flags->format,
                      "Files of videos: a list of mp4, webp, gif and png (each frame); default mp4,webp,png");
  auto& subtitles = flags->subtitles;
  const auto words = [](const std::string& what) { return "Of subtitles with words: " + what; };
  command->add_option("--max-line-width", subtitles.max_line_width, words("characters of a line at most"))
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-line-count", subtitles.max_line_count,
                   words("lines at most; with a width too, without regard to segments"))
      ->check(CLI::PositiveNumber);
  command->add_option("--max-words-per-line", subtitles.max_words_per_line, words("words at most"))
      ->check(CLI::PositiveNumber)
      ->excludes("--max-line-width");
  command->add_flag("--highlight-words", subtitles.highlight_words, words("one a word, underlined"));
  command->callback([flags, &chosen] {
    chosen = [flags] {
      const auto formats = video_formats(flags->format);
      const auto written = export_result(
          read_result(flags->result), flags->folder,
          [&](const MediaArray& media) { return media_files(media, formats); }, flags->subtitles);
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
