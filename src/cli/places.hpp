#pragma once
// Where commands write: found to be possible before the work, and never over what somebody may still want.

#include <filesystem>
#include <optional>
#include <string>

namespace diffuse {

// Throws where no file of that name can be written: found before a run, not after it. Missing input where
// there is no such folder, I/O else.
void check_place(const std::filesystem::path& file);

// Throws usage where both are one file: what a command reads would be lost.
void check_apart(const std::filesystem::path& output, const std::filesystem::path& input);

// A file that stands where `file` is to be written is kept as FILE_prev, in the place of one of that name.
// Returns what to say of it; nothing where there is none. Throws I/O.
std::optional<std::string> keep_earlier(const std::filesystem::path& file);

}  // namespace diffuse
